"""Parquet files that are not written by the engine: whoever looks for rows in them finds those that are there."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakehouse.store import parquet

ROWS = pa.table(
    {
        "n": pa.array([1, 2]),
        "x": pa.array([1.0, math.nan]),
        "y": pa.array([1.0, None], pa.float32()),
        "nested": pa.array([{"x": 1.0}, {"x": math.nan}]),
        "list": pa.array([["a"], []], pa.list_(pa.string())),
    }
)


def with_bounds(path: Path) -> set[str]:
    """The columns of which the footer tells bounds."""
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {each.path_in_schema for each in columns if each.is_stats_set and each.statistics.has_min_max}


@pytest.mark.spark
def test_spark_finds_rows_with_nan(spark: SparkSession, tmp_path: Path) -> None:
    """Without it, a table that somebody was erased from would lack such rows: to Spark NaN is above all bounds."""
    parquet.write(ROWS, path := tmp_path / "a.parquet")
    assert with_bounds(path) == {"n", "y"}
    rows = spark.read.parquet(str(path))
    for condition in ("x > 1", "nested.x > 1", "not x <= 1"):
        assert [row.n for row in rows.where(condition).select("n").collect()] == [2], condition
    assert [row.n for row in rows.where("y >= 1").select("n").collect()] == [1]


def test_without_nan_all_bounds_are_told(tmp_path: Path) -> None:
    """Without it, no file of a table with such columns could be passed over any more."""
    parquet.write(ROWS.slice(0, 1).drop_columns(["nested"]), path := tmp_path / "a.parquet")
    assert with_bounds(path) == {"n", "x", "y", "list.list.element"}


def test_of_rows_that_are_still_to_come_the_type_decides() -> None:
    """Without it, a file that is written piece by piece would have bounds from before its first NaN."""
    assert parquet.safe_statistics(ROWS.schema) == ["n", "list"]
    assert parquet.safe_statistics(ROWS.select(["n", "list"]).schema) is True
