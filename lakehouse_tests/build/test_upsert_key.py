"""Upsert tables whose key is another than that of the rows which are there."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pandera.pyspark as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.build.build import build
from lakehouse.build.result import PUBLISHED
from lakehouse.contracts import Input, Table
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import model, put, rows_of, table

DAYS = [date(2026, 3, 2) + timedelta(days=n) for n in range(2)]


def test_rows_of_a_key_that_had_a_further_column_are_replaced_by_any_run(lake: LakeFactory) -> None:
    """Without it, no day could be built any more by itself: rows of older code beside it repeat the key of now."""
    columns: dict[str, Any] = {name: (T.StringType(), pa.Field()) for name in ("id", "shop")} | {
        "day": (T.DateType(), pa.Field())
    }
    lines = table("silver.lines", model(**columns), lambda raw: raw, {"raw": Input("bronze.raw")})
    more = {"lines": (T.LongType(), pa.Field()), "_event_days": (T.ArrayType(T.DateType()), pa.Field())}

    def of(*key: str) -> Table:
        def sums(lines: DataFrame) -> DataFrame:
            days = F.array_sort(F.collect_set("day")).alias("_event_days")
            figures = [F.min("day").alias("day"), F.count(F.lit(1)).alias("lines"), days]
            return lines.groupBy(*key).agg(*figures, *[F.max(c).alias(c) for c in ("id", "shop") if c not in key])

        made = table(
            "silver.sums", model(**columns, **more), sums, {"lines": Input("silver.lines")}, key=key, upsert=True
        )
        made.__dict__["code_version"] = " ".join(key)
        return made

    where = lake(lines, of("id"))
    put(where, lines, DAYS[0], [{"id": name, "shop": shop} for name in "ab" for shop in "xy"])
    put(where, lines, DAYS[1], [{"id": "a", "shop": "x"}])
    build(where, of("id", "shop"), DAYS, run_id="run")
    assert build(where, of("id"), [DAYS[1]], run_id="run").days[DAYS[1]].status == PUBLISHED
    assert {row["id"]: row["lines"] for row in rows_of(where.path("silver.sums"))} == {"a": 3, "b": 2}
