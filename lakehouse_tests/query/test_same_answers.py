"""What is answered in this process is what Spark answers: columns, their names and types, and every value."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakehouse.query.checked_query import CheckedQuery, check_query
from lakehouse.query.embedded import answer
from lakehouse.query.engine import run_query, walls
from lakehouse.query.sql_text import NotTranslatedError
from lakehouse.settings import Settings
from lakehouse_tests.query.awkward import ANSWERED, make_tables

KNOWN = ["silver.o", "silver.p"]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    root = tmp_path_factory.mktemp("answers")
    make_tables(root)
    return Settings(root=root)


@pytest.fixture(scope="module")
def engine(spark: SparkSession, settings: Settings) -> SparkSession:
    for name in ("o", "p"):
        frame = spark.read.format("delta").load(str(settings.root / "tables" / "silver" / name)).coalesce(1)
        frame.cache().createOrReplaceTempView(f"lake__silver__{name}")
    return spark


def checked(text: str) -> CheckedQuery:
    import re

    return check_query(re.sub(r"\b(from|join|,) (o|p)\b", r"\1 silver.\2", text), KNOWN, ["silver"])


def here(settings: Settings, query: CheckedQuery) -> pa.Table:
    return answer(settings, query, [(use, None) for use in query.uses], None)


def there(spark: SparkSession, query: CheckedQuery) -> pa.Table:
    with walls(spark):
        return run_query(spark, query.spark_sql()).toArrow()


def shape(rows: pa.Table) -> list[tuple[str, str]]:
    return [(field.name, str(field.type).replace("item: ", "element: ").replace(" not null", "")) for field in rows.schema]


def plain(value: Any) -> Any:
    """A value that is equal to its like: NaN to NaN, and of sums of floating point the digits that do not depend on their order."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(f"{value:.12g}")
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def values(rows: pa.Table) -> list[str]:
    columns = [column.to_pylist() for column in rows.columns]
    return [repr([plain(each) for each in row]) for row in zip(*columns, strict=True)]


def same(one: pa.Table, other: pa.Table, *, ordered: bool) -> None:
    assert shape(one) == shape(other)
    assert values(one) == values(other) if ordered else sorted(values(one)) == sorted(values(other))


@pytest.mark.parametrize("text", ANSWERED)
def test_an_answer_is_that_of_spark(settings: Settings, engine: SparkSession, text: str) -> None:
    query = checked(text)
    same(here(settings, query), there(engine, query), ordered="order by" in text.rpartition(")")[2])
