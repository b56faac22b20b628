"""silver.transactions: both sources in one form, and the rules that rows break."""

import hashlib
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakehouse.bronze.event_stream import event_stream
from lakehouse.bronze.events import events
from lakehouse.bronze.online_retail import online_retail
from lakehouse.build.build import build as build_days
from lakehouse.build.result import BuildResult
from lakehouse.build.route import routed
from lakehouse.checks.producers import judge_clocks, producer_days, producers
from lakehouse.contracts import Clock, Topic
from lakehouse.lineage.provenance import Tracer
from lakehouse.silver.transactions import transactions
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import put, rows_of

DAY = date(2011, 1, 5)


def _frame(spark: SparkSession, table: Any, rows: list[dict[str, Any]]) -> DataFrame:
    blank: dict[str, Any] = dict.fromkeys(table.columns)
    origin = {"_arrival_date": DAY, "_event_date": DAY, "_source_file": "f"}
    return spark.createDataFrame(
        [{**blank, **origin, "_source_row": n, **row} for n, row in enumerate(rows, 2)], table.schema
    )


def _retail(**fields: Any) -> dict[str, Any]:
    line = {
        "InvoiceNo": "536365", "StockCode": "85123A", "Description": "HOLDER", "Quantity": "6",
        "InvoiceDate": "2011-01-05 08:26:00", "UnitPrice": "2.55", "CustomerID": "17850.0", "Country": "United Kingdom",
    }  # fmt: skip
    return line | fields


def _event(**fields: Any) -> dict[str, Any]:
    event = {
        "event_id": "e1", "user_id": "u1", "event_type": "purchase", "event_time": "2011-01-05T10:00:00Z",
        "order_id": "o1", "amount": "10.00", "currency": "EUR", "country": "France",
    }  # fmt: skip
    return event | fields


def _message(n: int, time: datetime, arrived: datetime) -> dict[str, Any]:
    came = {"_event_date": time.date(), "_arrival_date": arrived.date(), "_arrived_at": arrived}
    origin = {"_source_file": "topic/web-events/00", "_source_row": n}
    return _event(event_id=f"{n}", event_time=time.isoformat()) | came | origin


@pytest.fixture(scope="module")
def build(spark: SparkSession) -> Any:
    """Transform and route hand-written bronze rows."""

    def run(
        retail: list[dict[str, Any]] = [],  # noqa: B006
        web: list[dict[str, Any]] = [],  # noqa: B006
        messages: list[dict[str, Any]] = [],  # noqa: B006
    ) -> list[dict[str, Any]]:
        frame = transactions.transform(
            online_retail=_frame(spark, online_retail, retail),
            events=_frame(spark, events, web),
            event_stream=_frame(spark, event_stream, messages),
        )
        return [r.asDict() for r in routed(transactions, frame).collect()]

    return run


def test_a_retail_line_in_the_common_form(build: Any) -> None:
    """The golden row of DOMAIN: hash over the raw texts, exact money, user without `.0`."""
    (row,) = build([_retail()])
    raw = "536365|85123A|HOLDER|6|2011-01-05 08:26:00|2.55|17850.0|United Kingdom"
    assert row["event_id"] == hashlib.sha256(raw.encode()).hexdigest()[:32]
    assert (row["source"], row["order_id"], row["user_id"]) == ("online_retail", "536365", "17850")
    assert (row["amount"], row["currency"], row["quantity"]) == (Decimal("15.30"), "GBP", 6)
    assert row["event_time"].replace(tzinfo=UTC) == datetime(2011, 1, 5, 8, 26, tzinfo=UTC)
    assert row["route"] == "valid"


def test_a_guest_has_no_user(build: Any) -> None:
    """An empty CustomerID must not become a user named ''."""
    assert [r["user_id"] for r in build([_retail(CustomerID=None)])] == [None]


def test_exact_repeats_are_one_event(build: Any) -> None:
    """The export repeats lines; each repeat counted would be revenue that never was."""
    rows = build([_retail(), _retail(), _retail(Quantity="7")])
    assert {r["quantity"]: r["_copies"] for r in rows} == {6: 2, 7: 1}


def test_the_earliest_arrival_of_an_event_wins(build: Any) -> None:
    """A re-sent event must not replace what was published from the first."""
    rows = build(web=[_event(_arrival_date=date(2011, 1, 7), amount="99.00"), _event(amount="10.00")])
    assert [(str(r["amount"]), r["_copies"]) for r in rows] == [("10.00", 2)]


# What is not as usual in an event, and the rules that it breaks.
LIMITS: list[tuple[dict[str, Any], list[str] | None]] = [
    ({"event_id": None}, ["event_id_present"]),
    ({"event_time": "1294221600"}, ["event_time_present", "event_time_not_a_number"]),
    ({"event_time": "1294221600000"}, ["event_time_present", "event_time_not_a_number"]),
    ({"event_time": "1.2942216e9"}, ["event_time_present", "event_time_not_a_number"]),
    ({"event_time": "soon"}, ["event_time_present"]),
    ({"event_time": None}, ["event_time_present"]),
    ({"event_time": "1970-01-15T23:30:21.600Z"}, ["event_time_not_too_old", "event_time_in_right_unit"]),
    ({"event_time": "1970-01-01T00:21:34.221600Z"}, ["event_time_not_too_old", "event_time_in_right_unit"]),
    ({"event_time": "+42982-01-05T10:00:00Z"}, ["event_time_present", "event_time_in_right_unit"]),
    ({"event_time": "1970-02-20T00:00:00Z"}, ["event_time_not_too_old"]),
    ({"event_time": "2038-01-19T03:14:08Z"}, ["event_time_not_in_future"]),
    ({"event_time": "0001-01-03T00:00:00Z"}, ["event_time_not_too_old"]),
    ({"event_time": "9999-12-31T23:59:59.999999Z"}, ["event_time_not_in_future"]),
    ({"event_time": "2009-12-01T00:00:00Z"}, None),
    ({"event_time": "2009-11-30T23:59:59.999999Z"}, ["event_time_not_too_old"]),
    ({"event_time": "2011-01-06T00:15:00Z"}, None),
    ({"event_time": "2011-01-06T00:15:00.000001Z"}, ["event_time_not_in_future"]),
    ({"event_time": "1970-01-01T00:00:00Z"}, ["event_time_not_too_old"]),
    ({"event_type": "refund"}, ["event_type_known"]),
    ({"event_type": None}, ["event_type_known"]),
    ({"amount": "0"}, ["purchase_amount_positive"]),
    ({"amount": None}, ["amount_within_bounds", "purchase_amount_positive"]),
    ({"amount": "12,50"}, ["amount_within_bounds", "purchase_amount_positive"]),
    ({"event_type": "cancellation"}, ["cancellation_amount_negative"]),
    ({"currency": "XXX"}, ["currency_known"]),
    ({"amount": "1000000.00"}, None),
    ({"amount": "1000000.01"}, ["amount_within_bounds"]),
    ({"amount": "-5", "currency": None}, ["currency_known", "purchase_amount_positive"]),
    ({"user_id": None, "order_id": None, "country": None, "payment_method": None}, None),
]


@pytest.fixture(scope="module")
def at_limits(build: Any) -> dict[str | None, dict[str, Any]]:
    """Those events by id, all of one build: each has its row, whatever is beside it."""
    rows = build(web=[_event(**{"event_id": f"e{n}"} | fields) for n, (fields, _) in enumerate(LIMITS)])
    assert len(rows) == len(LIMITS)
    return {row["event_id"]: row for row in rows}


@pytest.mark.parametrize(("fields", "failed"), LIMITS)
def test_each_rule_and_its_limit(
    at_limits: dict[str | None, dict[str, Any]], fields: dict[str, Any], failed: list[str] | None
) -> None:
    """A row names every rule it broke, and a row on the limit passes."""
    row = at_limits[fields.get("event_id", f"e{LIMITS.index((fields, failed))}")]
    assert (sorted(row["_failed_rules"] or []) or None) == (sorted(failed) if failed else None)
    assert row["route"] == ("quarantined" if failed else "valid")


def test_an_adjustment_is_quarantined(build: Any) -> None:
    """Bad-debt invoices (A…) are no sales."""
    (row,) = build([_retail(InvoiceNo="A563185", Quantity="1", UnitPrice="11062.06")])
    assert row["_failed_rules"] == ["event_type_known"]


def test_money_is_rounded_half_up(build: Any) -> None:
    """Banker's rounding would differ from the books by a penny."""
    rows = build(web=[_event(event_id=str(n), amount=a) for n, a in enumerate(["0.125", "0.135", "2.675", "1e2"])])
    assert {r["event_id"]: str(r["amount"]) for r in rows} == {"0": "0.13", "1": "0.14", "2": "2.68", "3": "100.00"}


def test_every_row_in_is_a_row_out(build: Any) -> None:
    """Conservation starts with a transform that drops nothing, however bad the row."""
    retail = [_retail(), _retail(InvoiceDate="??"), dict.fromkeys(_retail())]
    rows = build(retail, [_event(), _event(), _event(event_id=None), dict.fromkeys(_event())])
    assert sum(r["_copies"] for r in rows) == 7


def test_an_event_is_the_same_row_in_a_file_and_in_a_message(build: Any) -> None:
    """Without it, a lake that is fed by a stream could differ from one that is backfilled from files."""
    ((landed,), (streamed,)) = build(web=[_event()]), build(messages=[_event()])
    assert landed == streamed
    (both,) = build(web=[_event()], messages=[_event()])
    assert both["_copies"] == 2


def test_a_message_is_held_to_the_moment_of_its_arrival(build: Any) -> None:
    """As a line of a file is, a clock that is hours ahead would be published, all day but for its end."""
    noon = datetime(2011, 1, 5, 12, tzinfo=UTC)
    times = {"at the bound": "12:15:00Z", "beyond": "12:15:00.000001Z", "hours": "17:00:00Z", "landed": "17:00:00Z"}
    rows = build(
        messages=[
            _event(event_id=name, event_time=f"2011-01-05T{time}", _arrived_at=None if name == "landed" else noon)
            for name, time in times.items()
        ]
    )
    failed = {row["event_id"]: row["_failed_rules"] for row in rows}
    ahead = ["event_time_not_in_future"]
    assert failed == {"at the bound": None, "beyond": ahead, "hours": ahead, "landed": None}
    assert {row["_arrived_at"].replace(tzinfo=UTC) for row in rows if row["route"] == "quarantined"} == {noon}


def test_a_message_that_is_no_row_is_set_aside(build: Any) -> None:
    """Without it, it would be told by what it lacks alone, or by nothing."""
    (row,) = build(messages=[{"_error": "not a JSON object", "_raw": "{"}])
    assert row["route"] == "quarantined"
    assert "message_readable" in row["_failed_rules"]


def _names_the_clock(result: BuildResult, ahead: str) -> None:
    passed, told = judge_clocks(Clock("event_time"), result.producers)
    assert not passed
    assert told == (
        f"the clock of event_stream is wrong on 1 day(s), last {DAY}: 40 of 100 rows are ahead of their arrival by "
        f"{ahead}"
    )


def test_the_clock_behind_a_topic_is_named(lake: LakeFactory) -> None:
    """Its rows would be set aside, and nobody told whose clock it is: messages have no files that name a producer."""
    shop = lake(online_retail, events, event_stream, transactions)
    noon, following = datetime(2011, 1, 5, 12, tzinfo=UTC), DAY + timedelta(days=1)

    put(shop, event_stream, DAY, [_message(n, noon + timedelta(hours=3 if n < 40 else 0), noon) for n in range(100)])
    next_noon = noon + timedelta(days=1)
    put(shop, event_stream, following, [_message(n, noon, next_noon) for n in range(100, 107)])
    result = build_days(shop, transactions, [DAY, following], run_id="r")
    assert {day: each.metrics.quarantined for day, each in result.days.items()} == {DAY: 40, following: 0}

    days = {each.day: each for each in producer_days(shop, transactions)}
    assert {each.producer for each in days.values()} == {"event_stream"}
    assert (days[DAY]["rows"], days[DAY].wrong, days[DAY]["late"]) == (100, {"far_ahead": 40}, 0)
    assert (days[DAY]["far_ahead_p50"], days[DAY]["far_ahead_most"]) == (3 * 3600, 3 * 3600)
    assert [days[following][name] for name in ("rows", "late", "late_most")] == [7, 7, 1]
    _names_the_clock(result, "3 h (median) or more")


def test_a_clock_that_dates_messages_into_the_next_day_is_named(lake: LakeFactory) -> None:
    """Its rows are in the quarantine of a day on which they did not arrive: in the evening no clock would be wrong."""
    shop = lake(online_retail, events, event_stream, transactions)
    evening, following = datetime(2011, 1, 5, 22, tzinfo=UTC), DAY + timedelta(days=1)

    times = [evening + timedelta(hours=3 if n < 40 else 0) for n in range(100)]
    put(shop, event_stream, DAY, [_message(n, time, evening) for n, time in enumerate(times)])
    result = build_days(shop, transactions, [following], run_id="r")  # held back: it has no other rows
    _names_the_clock(result, "3 h (median) to 3 h")


def test_a_row_of_a_message_is_followed_to_its_partition_and_offset(lake: LakeFactory) -> None:
    """Nobody could explain a row of the stream: its table is made of no other, and was computed from nothing."""
    shop = lake(online_retail, events, event_stream, transactions)
    noon = datetime(2011, 1, 5, 12, tzinfo=UTC)
    put(shop, event_stream, DAY, [_message(7, noon, noon)])
    build_days(shop, transactions, [DAY], run_id="r")
    rows = rows_of(shop.path(transactions.id))
    step = Tracer(shop).trace(transactions, rows)
    assert step.differences == []
    (message,) = step.inputs
    assert (message.name, message.places) == ("bronze.event_stream", ["topic/web-events/00:7"])
    assert message.differences is None


def test_a_topic_that_two_tables_read_is_named_as_the_table_has_it(lake: LakeFactory) -> None:
    """Its wrong rows would count for one source and all its rows for the other, so that no clock were ever wrong."""
    ((parameter, topic),) = event_stream.inputs.items()
    assert isinstance(topic, Topic)
    copy = replace(event_stream, name="zz_copy", inputs={parameter: replace(topic, source="zz_copy")})
    shop = lake(online_retail, events, event_stream, transactions, copy)
    assert producers(shop, transactions)("topic/web-events/00000") == "event_stream"
