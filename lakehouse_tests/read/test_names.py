"""Partition columns are called as their table's file calls them, also where a folder cannot be."""

from __future__ import annotations

from datetime import date

import pandera.pyspark as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.build.build import build
from lakehouse.build.result import PUBLISHED
from lakehouse.contracts import Input, Table
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import model, put, rows_of, table

DATE = date(2026, 3, 2)
KINDS = ["plain", "a b", "a/b=c", "50%+", None]
DAY, TEXT, LONG = T.DateType(), T.StringType(), T.LongType()


def tables(day: str, kind: str) -> tuple[Table, Table, Table]:
    """silver.raw, silver.sales by columns of these names, and gold.kinds that counts them."""

    def sales(raw: DataFrame) -> DataFrame:
        return raw.select("id", F.col("day").alias(day), F.col("kind").alias(kind))

    def kinds(sales: DataFrame) -> DataFrame:
        by = [F.col(f"`{day}`").alias("day"), F.col(f"`{kind}`").alias("kind")]
        return sales.groupBy(*by).agg(F.count(F.lit(1)).alias("n"))

    plain = {"day": (DAY, pa.Field()), "kind": (TEXT, pa.Field(nullable=True))}
    named = {day: (DAY, pa.Field()), kind: (TEXT, pa.Field(nullable=True))}
    return (
        table("silver.raw", model(id=(TEXT, pa.Field()), **plain), lambda x: x, {"x": Input("bronze.x")}),
        table(
            "silver.sales",
            model(id=(TEXT, pa.Field()), **named),
            sales,
            {"raw": Input("silver.raw")},
            partition_by=(day, kind),
        ),
        table("gold.kinds", model(n=(LONG, pa.Field()), **plain), kinds, {"sales": Input("silver.sales")}),
    )


@pytest.mark.parametrize(("day", "kind"), [("the day", "its kind"), ("größe", "50% = #1"), ("a/b", "it's {x}")])
def test_a_partition_column_may_have_any_name(lake: LakeFactory, day: str, kind: str) -> None:
    """Without it, what reads such a table fails in the engine by a date that is the beginning of a path."""
    raw, sales, kinds = tables(day, kind)
    made = lake(raw, sales, kinds)
    put(made, raw, DATE, [{"id": str(n), "kind": each} for n, each in enumerate(KINDS)])
    for each in (sales, kinds):
        assert build(made, each, [DATE], run_id="run").days[DATE].status == PUBLISHED
    assert {row["kind"]: row["n"] for row in rows_of(made.path(kinds.id))} == dict.fromkeys(KINDS, 1)
