"""silver.order_status: what the versions of an order say it is now."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse.bronze.orders import orders
from lakehouse.silver.order_status import order_status

DAY = date(2026, 3, 1)


def version(order: str, status: str | None, minute: int, batch: int, **more: Any) -> dict[str, Any]:
    """A row of bronze.orders; without a status it is a tombstone."""
    at = f"2026-03-01T10:{minute:02}:00.000000Z"
    row: dict[str, Any] = dict.fromkeys(orders.columns)
    row |= {"order_id": order, "_batch": batch, "_xid": 100 + batch, "_tombstone": status is None, "_event_date": DAY}
    row |= {"updated_at": at, "created_at": "2026-03-01T09:00:00.000000Z"}
    row |= {"deleted_at": at} if status is None else {"status": status, "amount": "2.505", "currency": "EUR"}
    return row | more


@pytest.fixture
def made(spark: SparkSession) -> Any:
    """The transform over versions, by order; their sequence must not matter."""

    def run(*versions: dict[str, Any]) -> dict[str, dict[str, Any]]:
        shuffled = random.Random(len(versions)).sample(versions, len(versions))
        frame = spark.createDataFrame(shuffled, orders.schema)
        return {row["order_id"]: row.asDict() for row in order_status.transform(frame).collect()}

    return run


def test_versions_repeats_and_tombstones(made: Any) -> None:
    """Without it, an update that arrives late would undo a newer one, and deleted orders would live, or live ones die."""
    found = made(
        version("late", "paid", 5, 1), version("late", "placed", 1, 2),  # an older version arrives in a later batch
        version("twice", "placed", 1, 1), version("twice", "placed", 1, 2, _xid=101),
        version("tie", "placed", 1, 1), version("tie", "paid", 1, 2),
        version("deleted", "placed", 1, 1), version("deleted", None, 2, 2),
        version("reborn", "placed", 1, 1), version("reborn", None, 3, 2), version("reborn", "again", 2, 2),
        version("brief", None, 2, 2),
        version("marked", "placed", 1, 1, deleted_at="2026-03-01T11:00:00.000000Z"),
    )  # fmt: skip
    statuses = {order: (row["status"], row["deleted_at"] is not None) for order, row in found.items()}
    assert statuses == {
        "late": ("paid", False), "twice": ("placed", False), "tie": ("paid", False), "deleted": ("placed", True),
        "reborn": ("again", False), "marked": ("placed", True),
    }  # fmt: skip


def test_an_order_whose_last_version_has_no_time_that_can_be_read_is_no_older_one(made: Any) -> None:
    """Without it, the database and the table said two things of it, and every check was green."""
    found = made(
        version("null", "placed", 1, 1), version("null", "paid", 2, 2, updated_at=None),
        version("far", "placed", 1, 1), version("far", "paid", 2, 2, updated_at="12026-03-01T10:00:00.000000Z"),
        version("mended", "placed", 1, 1), version("mended", "paid", 2, 2, updated_at="infinity"),
        version("mended", "sent", 3, 3),
        version("gone", "placed", 1, 1, updated_at=None), version("gone", None, 2, 2),
    )  # fmt: skip
    said = {order: (row["status"], row["updated_at"] is not None, row["deleted_at"] is not None)
            for order, row in found.items()}  # fmt: skip
    assert said == {
        "null": ("paid", False, False), "far": ("paid", False, False), "mended": ("sent", True, False),
        "gone": ("placed", False, True),
    }  # fmt: skip


def test_values_are_typed_and_the_day_is_the_newest_versions(made: Any) -> None:
    """Without it, an order whose date was corrected could be in two days."""
    moved = {"_event_date": date(2026, 2, 28), "created_at": "2026-02-28T09:00:00.000000Z"}
    row = made(version("o", "placed", 1, 1), version("o", "paid", 2, 2, **moved))["o"]
    assert (row["order_date"], row["_event_days"]) == (date(2026, 2, 28), [date(2026, 2, 28), DAY])
    assert (row["amount"], row["deleted_at"]) == (Decimal("2.51"), None)
    assert row["created_at"].replace(tzinfo=UTC) == datetime(2026, 2, 28, 9, tzinfo=UTC)
