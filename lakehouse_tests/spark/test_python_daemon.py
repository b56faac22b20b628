"""Python workers of a warm engine start with their libraries, and with the code of now."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakehouse.spark.options import REMOTE


def test_workers_have_their_libraries_and_nothing_of_this_package(spark: SparkSession) -> None:
    """Without it, each task in Python would load them for half a second, or run code that has changed since."""
    if REMOTE not in os.environ:
        pytest.skip("an engine in this process keeps its workers")

    def loaded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import sys

        import pyarrow as pa

        for _ in batches:
            names = [each for each in sys.modules if each.startswith(("lakehouse", "pandas", "redis"))]
            yield pa.RecordBatch.from_pydict({"pid": [os.getpid()] * len(names), "name": names})

    frame = spark.range(1).coalesce(1).mapInArrow(loaded, "pid long, name string")
    first, second = (frame.collect() for _ in range(2))
    assert {"pandas", "redis"} <= {row["name"] for row in first}
    assert {row["name"] for row in first if row["name"].startswith("lakehouse")} == {"lakehouse", "lakehouse.spark"}
    assert not {row["pid"] for row in first} & {row["pid"] for row in second}, "a worker outlived its task"
