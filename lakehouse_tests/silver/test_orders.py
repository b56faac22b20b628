"""silver.orders: what the events of an order say of it."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse.silver.orders import orders
from lakehouse.silver.transactions import transactions


def transaction(
    event_id: str, order: str | None, kind: str, moment: str, amount: str, user: str = "u1", source: str = "events"
) -> dict[str, Any]:
    """A row of silver.transactions."""
    at = datetime.fromisoformat(moment).replace(tzinfo=UTC)
    row: dict[str, Any] = dict.fromkeys(transactions.columns)
    return row | {
        "event_id": event_id, "source": source, "order_id": order, "event_type": kind, "event_time": at, "event_date": at.date(),
        "amount": Decimal(amount), "user_id": user, "currency": "EUR", "country": "France",
    }  # fmt: skip


@pytest.fixture
def build(spark: SparkSession) -> Any:
    """The transform over hand-written transactions, by order."""

    def run(*rows: dict[str, Any]) -> dict[str, dict[str, Any]]:
        frame = spark.createDataFrame(list(rows), transactions.schema)
        return {r["order_id"]: r.asDict() for r in orders.transform(frame).collect()}

    return run


def test_an_order_is_the_sum_of_its_events(build: Any) -> None:
    """Lines and amounts of all orders then add up to those of all transactions."""
    made = build(
        transaction("a", "o1", "purchase", "2011-01-05T10:00", "2.50"),
        transaction("b", "o1", "purchase", "2011-01-05T10:01", "1.25"),
    )["o1"]
    assert (made["lines"], made["amount"], made["status"]) == (2, Decimal("3.75"), "placed")
    assert made["order_date"] == date(2011, 1, 5)


def test_a_later_cancellation_changes_the_order_in_its_own_day(build: Any) -> None:
    """A reader of the order's own day must see that it was cancelled, and that nothing is left to pay."""
    made = build(
        transaction("a", "o1", "purchase", "2011-01-05T10:00", "2.50"),
        transaction("c", "o1", "cancellation", "2011-02-09T09:00", "-2.50"),
    )["o1"]
    assert (made["status"], made["order_date"]) == ("cancelled", date(2011, 1, 5))
    assert (made["lines"], made["amount"]) == (2, Decimal("0.00"))
    assert made["_event_days"] == [date(2011, 1, 5), date(2011, 2, 9)]


def test_a_cancellation_alone_is_a_cancelled_order(build: Any) -> None:
    """C invoices of the retail system have an order id of their own."""
    made = build(transaction("c", "C9", "cancellation", "2011-01-05T10:00", "-7.00"))["C9"]
    assert (made["status"], made["lines"], made["amount"]) == ("cancelled", 1, Decimal("-7.00"))


def test_the_first_event_decides_who_and_when(build: Any) -> None:
    """Rows arrive in any order; the result must not depend on it."""
    late = transaction("b", "o1", "purchase", "2011-01-06T10:00", "1.00", user="u2")
    first = transaction("a", "o1", "purchase", "2011-01-05T10:00", "1.00", user="u1")
    assert build(late, first) == build(first, late)
    assert build(late, first)["o1"]["user_id"] == "u1"


def test_orders_of_two_shops_with_one_id_are_two(spark: SparkSession) -> None:
    """Else a stranger's web order would be cancelled, or paid for, by an invoice of the retail system."""
    rows = [
        transaction("a", "o1", "purchase", "2011-01-05T10:00", "2.50"),
        transaction("b", "o1", "purchase", "2011-01-04T10:00", "9.00", "u2", source="online_retail"),
        transaction("c", "o1", "cancellation", "2011-01-06T10:00", "-2.50"),
    ]
    made = orders.transform(spark.createDataFrame(rows, transactions.schema)).collect()
    assert sorted((r["source"], r["user_id"], r["status"], str(r["amount"])) for r in made) == [
        ("events", "u1", "cancelled", "0.00"),
        ("online_retail", "u2", "placed", "9.00"),
    ]


def test_events_without_an_order_make_none(build: Any) -> None:
    """All of them together would be one enormous order named null."""
    assert build(transaction("a", None, "purchase", "2011-01-05T10:00", "1.00")) == {}
