"""gold.user_features: point in time, no look into the future."""

from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from lakehouse.contracts import SliceBy
from lakehouse.gold.user_features import user_features
from lakehouse.silver.transactions import transactions
from lakehouse_tests.silver.test_orders import transaction


@pytest.fixture
def build(spark: SparkSession) -> Any:
    """Features of hand-written transactions by user and day."""

    def run(*rows: dict[str, Any]) -> dict[tuple[str, date], tuple[Any, ...]]:
        made = user_features.transform(spark.createDataFrame(list(rows), transactions.schema)).collect()
        return {
            (r["user_id"], r["feature_date"]): (
                r["rolling_7d_transaction_count"], r["rolling_7d_amount"], r["user_7d_order_count"],
                r["last_event_time"].replace(tzinfo=UTC),
            )
            for r in made
        }  # fmt: skip

    return run


def test_a_purchase_counts_on_its_day_and_six_days_more(build: Any) -> None:
    """The window is the feature day and the six days before it."""
    made = build(transaction("a", "o1", "purchase", "2011-01-05T10:00", "2.50"))
    assert sorted(day for _, day in made) == [date(2011, 1, 5 + n) for n in range(7)]
    assert made["u1", date(2011, 1, 11)] == (1, Decimal("2.50"), 1, datetime(2011, 1, 5, 10, tzinfo=UTC))


def test_a_later_cancellation_does_not_reach_back(build: Any) -> None:
    """A training row that knows of tomorrow's cancellation is a leak."""
    made = build(
        transaction("a", "o1", "purchase", "2011-01-05T10:00", "2.50"),
        transaction("c", "o1", "cancellation", "2011-01-07T10:00", "-2.50"),
    )
    assert [made["u1", date(2011, 1, d)][2] for d in (5, 6, 7, 8)] == [1, 1, 0, 0]
    assert made["u1", date(2011, 1, 7)][0] == 1
    assert made["u1", date(2011, 1, 7)][3] == datetime(2011, 1, 7, 10, tzinfo=UTC)


def test_without_a_purchase_in_the_window_there_is_no_row(build: Any) -> None:
    """A cancellation alone, or a guest, makes no user known."""
    guest = transaction("g", "o2", "purchase", "2011-01-05T10:00", "1.00") | {"user_id": None}
    assert build(guest, transaction("c", "o1", "cancellation", "2011-01-05T10:00", "-1.00")) == {}


_SIGN = {"purchase": 1, "cancellation": -1}
_EVENTS = st.lists(
    st.tuples(
        st.integers(0, 11), st.sampled_from(["u1", "u2"]), st.sampled_from(["o1", "o2", "o3"]),
        st.sampled_from(["purchase", "purchase", "cancellation"]), st.integers(1, 999),
        st.sampled_from(["events", "online_retail"]),
    ),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example([(0, "u1", "o1", "purchase", 2, "events"), (1, "u1", "o1", "cancellation", 2, "online_retail")])
@given(_EVENTS)
def test_features_equal_a_plain_recomputation(build: Any, drawn: list[tuple[int, str, str, str, int, str]]) -> None:
    """Spreading orders over days must give what looking back from each day gives."""
    rows = [_row(n, *each) for n, each in enumerate(drawn)]
    expected = {}
    for user in {r["user_id"] for r in rows}:
        for offset in range(18):
            today = date(2011, 1, 1 + offset)
            seen = [r for r in rows if r["user_id"] == user and 0 <= (today - r["event_date"]).days <= 6]
            bought = [r for r in seen if r["event_type"] == "purchase"]
            if bought:
                window = [r for r in rows if 0 <= (today - r["event_date"]).days <= 6]
                cancelled = {_order(r) for r in window if r["event_type"] == "cancellation"}
                expected[user, today] = (
                    len(bought),
                    sum(r["amount"] for r in bought),
                    len({_order(r) for r in bought} - cancelled),
                    max(r["event_time"] for r in seen),
                )
    assert build(*rows) == expected


SHARED = [(0, "u1", "o1", "purchase", 250, "events"), (2, "u2", "o1", "cancellation", 250, "events")]


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(SHARED, 2)
@given(_EVENTS, st.sampled_from([2, 4]))
def test_slices_together_are_the_whole(
    spark: SparkSession, drawn: list[tuple[int, str, str, str, int, str]], slices: int
) -> None:
    """Without it, an order that one user bought and another one cancelled would count in a backfill by slices."""
    frame = spark.createDataFrame([_row(n, *each) for n, each in enumerate(drawn)], transactions.schema)
    assert _sliced(frame, slices) == sorted(user_features.transform(frame).collect())


def test_what_every_slice_reads_is_needed(spark: SparkSession) -> None:
    """Without it, the test above could pass with slices that read nothing but their own users."""
    frame = spark.createDataFrame([_row(n, *each) for n, each in enumerate(SHARED)], transactions.schema)
    assert _sliced(frame, 2, SliceBy(("user_id",), {"transactions": "false"})) != sorted(
        user_features.transform(frame).collect()
    )


def _order(row: dict[str, Any]) -> tuple[str, str]:
    return row["source"], row["order_id"]


def _row(n: int, day: int, user: str, order: str, kind: str, cents: int, source: str) -> dict[str, Any]:
    amount = f"{_SIGN[kind] * cents / 100:.2f}"
    return transaction(str(n), order, kind, f"2011-01-{1 + day:02d}T10:00", amount, user, source)


def _sliced(frame: DataFrame, slices: int, cut: SliceBy | None = None) -> list[Any]:
    cut = cut or user_features.layout.slice_by
    assert cut is not None
    parts = [
        user_features.transform(**cut.cut({"transactions": frame}, n, slices)).where(cut.mine(n, slices))
        for n in range(slices)
    ]
    return sorted(reduce(DataFrame.unionByName, parts).collect())
