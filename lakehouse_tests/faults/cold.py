"""A table is read by a process that has no engine yet: orders of the laboratory."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from lakehouse.read.lake import Lake
from lakehouse_tests.conftest import engine_settings
from lakehouse_tests.fixtures.making import model, put, table

DAY, EMPTY = date(2026, 3, 2), date(2026, 3, 7)


def on_order(order: dict[str, Any], engine: SparkSession) -> list[int]:
    """Read a day with a row and one without; returns how many rows each has.

    The process has an engine only once it is asked for one; without, pyspark makes no column.
    """
    columns = {"id": (T.StringType(), pa.Field()), "day": (T.DateType(), pa.Field())}
    rows = table("silver.rows", model(**columns), lambda: None, {})
    context = SparkContext._active_spark_context

    def started() -> SparkSession:
        SparkContext._active_spark_context = context
        return engine

    found = []
    lake = Lake(engine_settings(Path(order["root"])), {rows.id: rows}, started)
    put(lake, rows, DAY, [{"id": "a"}])
    for day in (DAY, EMPTY):
        cold = Lake(lake.settings, lake.tables, started)
        SparkContext._active_spark_context = None
        found.append(cold.read(rows, [day], cold.snapshot(rows.id)).count())
    return found
