"""A table of features with a history, without an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pandera.pyspark as pa
from pyspark.sql import types as T

from lakehouse.contracts import Features, Input, Table
from lakehouse.read.lake import Lake
from lakehouse_tests.fixtures.making import model, put, rewrite_entry, table

FIRST = date(2024, 1, 1)
ZERO = datetime(2024, 1, 1, tzinfo=UTC)
COLUMNS = {
    "user": (T.StringType(), pa.Field()),
    "day": (T.DateType(), pa.Field()),
    "value": (T.LongType(), pa.Field(nullable=True)),
    "word": (T.StringType(), pa.Field(nullable=True)),
}


def nothing(rows: Any) -> Any:
    """A transform that no test runs."""
    return rows


def features(name: str = "gold.seen", ttl: timedelta = timedelta(days=2)) -> Table:
    """A table of features of users."""

    def transform(rows: Any) -> Any:
        return rows

    said = Features(entity="user", key=("user",), ttl=ttl)
    inputs = {"rows": Input("silver.rows")}
    return table(name, model("Seen", **COLUMNS), transform, inputs, key=("user", "day"), features=said)


def publish(lake: Lake, made: Table, day: date, values: Mapping[str, int], at: datetime | None = None) -> int:
    """Publish a day as its whole content, at a time by the log; returns the version."""
    rows = [{"user": user, "value": value, "word": f"{user}{value}"} for user, value in values.items()]
    version = put(lake, made, day, rows)
    if at is not None:
        stamp(lake, made, version, at)
        if version == 1:  # the first entry makes the table
            stamp(lake, made, 0, at)
    return version


def stamp(lake: Lake, made: Table, version: int, at: datetime) -> None:
    """Make the log say that a commit was at a time."""

    def change(kind: str, body: dict[str, Any]) -> None:
        if kind == "commitInfo":
            body["timestamp"] = round(at.timestamp() * 1000)

    rewrite_entry(lake.path(made.id), version, change)


def labels(lake: Lake, rows: Sequence[tuple[str, datetime | str | None]]) -> Any:
    """Labels of users at times, numbered."""
    kind = "string" if isinstance(rows[0][1], str) else "timestamp"
    numbered = [(number, user, at) for number, (user, at) in enumerate(rows)]
    return lake.spark.createDataFrame(numbered, f"number int, user string, event_time {kind}")
