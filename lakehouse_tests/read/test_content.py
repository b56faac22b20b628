"""The hash of rows as the engine makes it: what counts, what does not, and what a rebuild does to the days downstream."""

from __future__ import annotations

from datetime import date
from typing import Any

import pandera.pyspark as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.build.build import build
from lakehouse.build.result import PUBLISHED, UNCHANGED
from lakehouse.contracts import Input
from lakehouse.delta.maintenance import Compactable, compact
from lakehouse.read.content import content_of_row
from lakehouse_tests.build.test_build import DAYS, land, sensors
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import model, table

TYPES = {
    "day": T.DateType(),
    "a": T.StringType(),
    "b": T.StringType(),
    "money": T.DecimalType(18, 2),
    "at": T.TimestampType(),
    "days": T.ArrayType(T.DateType()),
    "texts": T.ArrayType(T.StringType()),
    "words": T.MapType(T.StringType(), T.LongType()),
    "_ingested_run": T.StringType(),
}


def test_a_row_is_its_values_and_not_its_run(spark: SparkSession) -> None:
    """Without it, a value that moves to another column would be no change, or each run would be one."""
    made = table(
        "silver.things",
        model(**{n: (t, pa.Field(nullable=n != "day")) for n, t in TYPES.items()}),
        lambda rows: rows,
        {"rows": Input("bronze.rows")},
    )
    day = date(2026, 3, 2)
    rows: list[dict[str, Any]] = [
        {"a": "x"}, {"b": "x"}, {"a": ""}, {}, {"days": []}, {"days": [None]}, {"days": [None, day]}, {"days": [day, None]},
        {"texts": ["a, b"]}, {"texts": ["a", "b"]}, {"words": {"a": None}}, {"words": {}}, {"words": {"a": 1}},
    ]  # fmt: skip
    same = [{"a": "x", "_ingested_run": "1"}, {"a": "x", "_ingested_run": "2"}]
    data = [tuple({"day": day, **row}.get(name) for name in TYPES) for row in [*rows, *same]]
    schema = T.StructType([T.StructField(n, t) for n, t in TYPES.items()])
    found = spark.createDataFrame(data, schema).select(F.expr(content_of_row(made)).alias("h")).collect()
    hashes = [row.h for row in found]
    assert len(set(hashes[: len(rows)])) == len(rows)
    assert set(hashes[len(rows) :]) == {hashes[0]}


def test_a_forced_build_reaches_what_reads_it_only_where_rows_differ(lake: LakeFactory) -> None:
    """Without it, a table that reads the clock, a model or a lookup would leave what is computed from it as it was."""
    given = {"add": 0}

    def typed(raw: DataFrame) -> DataFrame:
        value = F.col("value").try_cast("bigint") + F.lit(given["add"])
        return raw.select("id", F.col("_event_date").alias("day"), value.alias("value"))

    bronze, _, sums = sensors()
    columns = {"id": (T.StringType(), pa.Field()), "day": (T.DateType(), pa.Field())}
    contract = model(**columns, value=(T.LongType(), pa.Field()))
    silver = table("silver.readings", contract, typed, {"raw": Input("bronze.readings")}, key=("id",))
    shop = lake(bronze, silver, sums)
    for n in range(2):
        land(shop, DAYS[n], [(f"a{n}", None, 1), (f"b{n}", None, 2)])

    def built(name: str, **kwargs: Any) -> list[bool]:
        result = build(shop, shop.table(name), DAYS[:2], run_id="r", **kwargs)
        assert sorted([*result.with_status(PUBLISHED), *result.with_status(UNCHANGED)]) == DAYS[:2]
        return [result.days[day].status == PUBLISHED for day in DAYS[:2]]

    assert [built(name) for name in shop.tables] == [[True, True]] * 3
    assert built("bronze.readings", force=True) == [True, True]
    assert (built("silver.readings"), built("gold.sums")) == ([False, False], [False, False]), "the rows are the same"
    given["add"] = 1
    assert built("silver.readings", force=True) == [True, True]
    assert built("gold.sums") == [True, True]
    given["add"] = 0
    assert built("silver.readings", force=True) == built("gold.sums") == [True, True]
    tidied = compact(Compactable(shop.path("bronze.readings"), bronze.schema))
    assert (built("silver.readings"), built("gold.sums")) == ([False, False], [False, False]), tidied
