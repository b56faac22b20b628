"""Rows of the tables `ops.…` are read as Arrow itself would give them, only sooner."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from pyspark.sql import types as T

from lakehouse.delta.opening import open_snapshot
from lakehouse.records.ops import add_rows, ops_target, rows_about
from lakehouse.store import parquet

TEXT, LONG = T.StringType(), T.LongType()
SCHEMA = T.StructType(
    [
        T.StructField("table", TEXT),
        T.StructField("day", T.DateType()),
        T.StructField("at", T.TimestampType()),
        T.StructField("counts", T.MapType(TEXT, LONG)),
        T.StructField("sums", T.MapType(TEXT, T.DecimalType(38, 6))),
        T.StructField("nested", T.MapType(TEXT, T.MapType(TEXT, LONG))),
        T.StructField("checks", T.MapType(TEXT, T.StructType([T.StructField("found", TEXT)]))),
        T.StructField("lists", T.MapType(TEXT, T.ArrayType(LONG))),
    ]
)
AT = datetime(2026, 3, 2, 1, 2, 3, 456789, tzinfo=UTC)
ROWS = [
    {
        "day": date(2026, 3, 2 + n), "at": AT.replace(day=2 + n), "counts": [("a", n), ("b", None)],
        "sums": [("a", Decimal("0.000001"))] * (n % 2), "nested": [("x", [("y", n), ("z", 2)]), ("empty", [])],
        "checks": [("volume", {"found": "few"})], "lists": [("r", [1, 2][:n])],
    }
    for n in range(4)
]  # fmt: skip
NOTHING = dict.fromkeys(("day", "at", "counts", "sums", "nested", "checks", "lists"))


def test_rows_are_what_arrow_gives(tmp_path: Path) -> None:
    """Maps, maps of maps, moments and nulls, all rows or those of some days: filtered columns keep their offsets."""
    target = ops_target(tmp_path, "ops.things", SCHEMA, "")
    add_rows(target, "a", ROWS, {"a": 1})
    add_rows(target, "b", [*ROWS, NOTHING], {"b": 1})
    snapshot = open_snapshot(target.path)
    for about, days in (("a", None), ("b", None), ("a", {date(2026, 3, 4), date(2026, 3, 5)}), ("a", set())):
        found = list(rows_about(snapshot, about, days))
        plain = pa.concat_tables(parquet.read(target.path / file.path) for file in snapshot.of(about)).to_pylist()
        assert found == [row for row in plain if days is None or row["day"] in days]
    assert found == []
    assert next(iter(rows_about(snapshot, "a")))["at"].utcoffset() == AT.utcoffset()
