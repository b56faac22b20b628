"""A small table behind the commit door, and what readers and its log say of it."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as T

from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.target import Commit, Target
from lakehouse_tests.fixtures.making import Row, rows_of, stage_rows

MONDAY, TUESDAY, WEDNESDAY = date(2026, 3, 2), date(2026, 3, 3), date(2026, 3, 4)
SCHEMA = T.StructType(
    [
        T.StructField("id", T.StringType()),
        T.StructField("day", T.DateType()),
        T.StructField("n", T.LongType()),
        T.StructField("amount", T.DecimalType(18, 2)),
        T.StructField("at", T.TimestampType()),
        T.StructField("email_token", T.StringType()),
    ]
)


def row(key: str, day: date, n: int | None = 0, **cells: Any) -> Row:
    """A row with every column filled."""
    moment = datetime(2026, 3, 2, 12, tzinfo=UTC)
    return {"id": key, "day": day, "n": n, "amount": Decimal("1.50"), "at": moment, "email_token": "ff", **cells}


@pytest.fixture
def target(tmp_path: Path) -> Target:
    """A table that holds one row on Monday and one on Tuesday."""
    made = Target(
        tmp_path / "silver" / "sales", SCHEMA, ("day",), required={"id", "day"}, pii=("email_token",),
        extra_columns=("_raw",), description="Sales\nin full",
    )  # fmt: skip
    base = ensure_table(made)
    files = stage_rows(made, [row("m", MONDAY), row("t", TUESDAY)])
    assert replace_days(made, base, files, [MONDAY, TUESDAY], Commit({"day/mon": 1}, {"note": "first"})) == 1
    return made


def ids(target: Target, version: int | None = None) -> list[str]:
    """The ids that readers see."""
    return sorted(each["id"] for each in rows_of(target.path, version))


def entry(target: Target, version: int) -> list[dict[str, Any]]:
    """The actions of one log entry."""
    text = (target.path / "_delta_log" / f"{version:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]
