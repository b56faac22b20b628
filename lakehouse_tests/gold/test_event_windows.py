"""gold.event_windows: hours of events, and when a stream closed them."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse.bronze.event_stream import event_stream
from lakehouse.build.intake.closings import with_closing
from lakehouse.contracts import Input
from lakehouse.gold.event_windows import ALLOWED_LATENESS, event_windows
from lakehouse.silver.transactions import transactions
from lakehouse_tests.silver.test_orders import transaction

Made = dict[tuple[datetime, str, str], dict[str, Any]]


@pytest.fixture
def build(spark: SparkSession) -> Any:
    """Windows of hand-written transactions by hour, source and currency."""
    columns = with_closing(Input("bronze.event_stream", hours_close_after=ALLOWED_LATENESS), event_stream.schema)

    def run(*rows: dict[str, Any], messages: Sequence[dict[str, Any]] = ()) -> Made:
        events = spark.createDataFrame(list(rows), transactions.schema)
        stream = spark.createDataFrame([dict.fromkeys(columns.names) | each for each in messages], columns)
        made = event_windows.transform(events, stream).collect()
        return {(r["window_start"].replace(tzinfo=UTC), r["source"], r["currency"]): r.asDict() for r in made}

    return run


def hour(day: int, at: int) -> datetime:
    return datetime(2011, 1, day, at, tzinfo=UTC)


def test_an_hour_holds_its_start_and_not_its_end(build: Any) -> None:
    """An event on the border must be in one window, and the last of a day in that day's."""
    made = build(
        transaction("a", "o1", "purchase", "2011-01-05T10:00", "1.00"),
        transaction("b", "o1", "purchase", "2011-01-05T10:59:59.999999", "2.00"),
        transaction("c", "o1", "purchase", "2011-01-05T11:00", "4.00"),
        transaction("d", "o1", "purchase", "2011-01-05T23:59:59", "8.00"),
        transaction("e", "o1", "purchase", "2011-01-06T00:00", "16.00"),
    )
    assert {at: row["gross_revenue"] for (at, _, _), row in made.items()} == {
        hour(5, 10): Decimal("3.00"), hour(5, 11): Decimal("4.00"), hour(5, 23): Decimal("8.00"), hour(6, 0): Decimal("16.00"),
    }  # fmt: skip
    assert [row["event_date"] for _, row in sorted(made.items())] == [*[date(2011, 1, 5)] * 3, date(2011, 1, 6)]


def test_shops_and_currencies_have_windows_of_their_own(build: Any) -> None:
    """Pounds and euros are never added, and a shop that is down must not be hidden by the other."""
    made = build(
        transaction("a", "o1", "purchase", "2011-01-05T10:00", "1.00"),
        transaction("b", "o1", "purchase", "2011-01-05T10:00", "2.00", source="online_retail"),
        transaction("c", "o1", "purchase", "2011-01-05T10:00", "4.00") | {"currency": "GBP"},
    )
    assert {key[1:]: str(row["gross_revenue"]) for key, row in made.items()} == {
        ("events", "EUR"): "1.00",
        ("online_retail", "EUR"): "2.00",
        ("events", "GBP"): "4.00",
    }


def test_guests_and_cancellations_are_events(build: Any) -> None:
    """Every event is in one window; users are distinct and known, and revenue is of purchases alone."""
    ((key, row),) = build(
        transaction("a", "o1", "purchase", "2011-01-05T10:01", "5.00"),
        transaction("b", "o2", "purchase", "2011-01-05T10:02", "7.00"),
        transaction("c", "o1", "cancellation", "2011-01-05T10:03", "-5.00"),
        transaction("d", "o3", "cancellation", "2011-01-05T10:04", "-1.00", user="u2"),
        transaction("e", None, "purchase", "2011-01-05T10:05", "1.00") | {"user_id": None},
    ).items()
    assert key == (hour(5, 10), "events", "EUR")
    assert (row["events"], row["purchases"], row["cancellations"], row["users"]) == (5, 3, 2, 2)
    assert row["gross_revenue"] == Decimal("13.00")


def message(event_id: str, moment: str, closed: datetime | None = None, *, late: bool | None = None) -> dict[str, Any]:
    """A row of bronze.event_stream with what its hour's closing says of it."""
    at = datetime.fromisoformat(moment).replace(tzinfo=UTC)
    return {"event_id": event_id, "_event_at": at, "_closed_at": closed, "_came_after": late}


def test_a_closed_hour_says_by_which_watermark_and_what_corrected_it(build: Any) -> None:
    """Without it, nobody could tell a number that still moves from one that was final and has moved."""
    closed = hour(5, 12) + timedelta(minutes=3)
    made = build(
        *[transaction(each, "o1", "purchase", "2011-01-05T10:00", "1.00") for each in ("a", "b", "c", "file")],
        transaction("d", "o1", "purchase", "2011-01-05T10:30", "1.00", source="online_retail"),
        transaction("e", "o1", "purchase", "2011-01-05T11:00", "1.00"),
        messages=[
            message("a", "2011-01-05T10:00", closed, late=False),
            message("b", "2011-01-05T10:00", closed, late=True),
            message("b", "2011-01-05T10:00", closed, late=True),
            # Sent again after the hour was closed: that changes nothing.
            message("c", "2011-01-05T10:00", closed, late=True),
            message("c", "2011-01-05T10:00", closed, late=False),
            # Set aside by a rule: no event of the hour.
            message("bad", "2011-01-05T10:00", closed, late=True),
            message("e", "2011-01-05T11:00"),
        ],
    )
    told = {
        (at.hour, source): (r["events"], r["closed_at_watermark"], r["corrections"])
        for (at, source, _), r in made.items()
    }
    assert told == {
        (10, "events"): (4, closed.replace(tzinfo=None), 1), (10, "online_retail"): (1, None, 0), (11, "events"): (1, None, 0),
    }  # fmt: skip


def test_a_batch_closes_and_corrects_nothing(build: Any) -> None:
    """What is of a stream alone must not look as if one had been there."""
    ((_, row),) = build(transaction("c", "o1", "cancellation", "2011-01-05T10:00", "-5.00")).items()
    assert (row["closed_at_watermark"], row["corrections"]) == (None, 0)
    assert row["gross_revenue"] == Decimal("0.00")
