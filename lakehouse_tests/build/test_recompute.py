"""Rows are computed again as they were built."""

from __future__ import annotations

import pandera.pyspark as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from lakehouse.build import recompute
from lakehouse.build.recompute import recomputed, rows_of
from lakehouse.contracts import Input
from lakehouse_tests.fixtures.making import model, table

pytestmark = pytest.mark.spark


def test_the_engine_is_asked_for_no_filter_by_all_rules(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark makes a chain of it: with 1,500 rules its task overflowed Java's stack, which ended the warm engine."""
    numbers = {f"n_{n}": (T.LongType(), pa.Field(nullable=True, ge=0)) for n in range(3)}
    contract = model("Sales", id=(T.LongType(), pa.Field()), day=(T.DateType(), pa.Field()), **numbers)
    made = table("silver.sales", contract, lambda rows: rows, {"rows": Input("bronze.rows")})
    rows = spark.range(2).selectExpr("id", "DATE '2026-03-01' AS day", *[f"-id AS {name}" for name in numbers])
    asked: list[DataFrame] = []
    monkeypatch.setattr(recompute, "rows_of", lambda frame: asked.append(frame) or rows_of(frame))
    assert [row["id"] for row in recomputed(made, {"rows": rows}, quarantined=False)] == [0]
    assert [row["id"] for row in recomputed(made, {"rows": rows}, quarantined=True)] == [1]
    capsys.readouterr()
    for frame in asked:
        frame.explain()
    assert "Filter" not in capsys.readouterr().out
