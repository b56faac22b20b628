"""Files of one partition made into one: the engine reads the rows that it read before, whatever it looks for."""

from __future__ import annotations

import math
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from lakehouse.delta.maintenance import Compactable, compact
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.staged import live_file

DAY = date(2026, 3, 2)
SCHEMA = T.StructType(
    [
        T.StructField("day", T.DateType()),
        T.StructField("score", T.DoubleType()),
        T.StructField("weight", T.FloatType()),
        T.StructField("plain", T.DoubleType()),
    ]
)


@pytest.mark.spark
def test_rows_with_nan_are_found_after_a_merge(spark: SparkSession, tmp_path: Path) -> None:
    """Without it, a build after a night of upkeep would lack rows: to Spark NaN is greater than what the footer tells."""
    path = tmp_path / "table"
    for score, weight in ((1.0, 2.0), (math.nan, 3.0), (None, math.nan)):
        rows = spark.createDataFrame([(DAY, score, weight, 1.0)], SCHEMA).coalesce(1)
        rows.write.format("delta").partitionBy("day").mode("append").save(str(path))

    def found() -> list[int]:
        table = spark.read.format("delta").load(str(path))
        return [table.where(each).count() for each in ("score > 1", "weight >= 100", "not score <= 1", "plain > 1")]

    assert found() == [1, 1, 1, 0]
    assert (compact(Compactable(path, SCHEMA)).files_after, open_snapshot(path).live.number) == (1, 1)
    assert found() == [1, 1, 1, 0]
    (merged,) = open_snapshot(path).live
    told = live_file(path, ("day",), merged)
    assert (told.low, told.high, told.nulls) == ({"plain": 1.0}, {"plain": 1.0}, {"plain": 0})
