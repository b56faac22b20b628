"""What a checked query means to Spark, and the second wall: nothing is written even by a text that nobody checked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakehouse.query.checked_query import check_query
from lakehouse.query.on_spark import run_query, walls
from lakehouse.query.sql_allowed import FUNCTIONS
from lakehouse_tests.query.queries import HONEST

REFUSED = {
    *("reflect", "try_reflect", "java_method", "input_file_name", "input_file_block_start", "input_file_block_length"),
    *("table_changes", "table_changes_by_path", "python_worker_logs", "current_path", "collations", "sql_keywords"),
    *("measure", "from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf"),
    *("and", "between", "case", "cast", "in", "not", "or", "when", "div"),  # syntax
}


@pytest.fixture(scope="module")
def walled(spark: SparkSession) -> SparkSession:
    """The engine, with a few rows under the name that queries give them and under that of their view."""
    spark.sql(
        "SELECT date'2011-03-01' day, * FROM VALUES ('a', 1.10BD, 1, array('x', 'y'), null), ('a', 2.20BD, 2, array('z'), '7'), "
        "('b', -1.00BD, 3, array(), 'n'), (null, null, null, null, 'x') t(user, amount, n, tags, note)"
    ).createOrReplaceTempView("o")
    spark.sql("SELECT * FROM o").createOrReplaceTempView("lake__silver__o")
    return spark


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Delta table, as a view of the same kind that queries read."""
    path = tmp_path_factory.mktemp("walls") / "d"
    write_deltalake(path, pa.table({"a": [1]}))
    spark.read.format("delta").load(str(path)).createOrReplaceTempView("lake__silver__d")
    return path


def rows(frame: Any) -> tuple[list[str], list[Any]]:
    return [str(field.dataType) for field in frame.schema], [tuple(row) for row in frame.collect()]


@pytest.mark.parametrize("query", HONEST)
def test_a_checked_query_means_what_it_said(walled: SparkSession, query: str) -> None:
    """Without it, a query could be written again with another meaning, and nobody would see it in the figures."""
    with walls(walled):
        wanted = rows(walled.sql(query))
    named = re.sub(r"\b(from|join|,) o\b", r"\1 silver.o", query)
    named = named.replace("o.user = x.user", "silver.o.user = x.user")
    checked = check_query(named, ["silver.o"], ["silver"])
    with walls(walled):
        found = rows(run_query(walled, checked.spark_sql()))
    assert found[0] == wanted[0]
    assert found == wanted if "order by" in query else sorted(map(repr, found[1])) == sorted(map(repr, wanted[1]))


def test_the_list_of_functions_is_judged_for_this_spark(spark: SparkSession) -> None:
    """Without it, a function that a new Spark brings, and that may read files, would be on no list."""
    found = {row[0] for row in spark.sql("SHOW FUNCTIONS").collect() if row[0].isidentifier()}
    assert found - FUNCTIONS == REFUSED
    assert set() == FUNCTIONS - found


@pytest.mark.parametrize(
    "text",
    [
        "WITH t AS (SELECT 1) UPDATE lake__silver__d SET a = 2",
        "WITH t AS (SELECT 1) DELETE FROM lake__silver__d",
        "MERGE WITH SCHEMA EVOLUTION INTO lake__silver__d t USING lake__silver__d s ON 1 = 1 WHEN MATCHED THEN DELETE",
        "FROM lake__silver__d INSERT INTO lake__silver__d SELECT *",
        "INSERT INTO lake__silver__d VALUES (2)",
        "TRUNCATE TABLE lake__silver__d",
        "UPDATE delta.`{path}` SET a = 2",
        "SELECT 1) x; DELETE FROM lake__silver__d; SELECT * FROM (SELECT 1",
        "SELECT * FROM text.`{path}/_delta_log/00000000000000000000.json`",
        "SELECT * FROM delta.`{path}`",
        "CREATE TABLE x USING parquet AS SELECT 1",
        "INSERT OVERWRITE DIRECTORY '{path}/out' USING csv SELECT 1",
        "SET spark.sql.ansi.enabled = false",
        "EXECUTE IMMEDIATE 'DELETE FROM lake__silver__d'",
        "BEGIN DELETE FROM lake__silver__d; END",
    ],
)
def test_the_second_wall_holds_alone(spark: SparkSession, table: Path, text: str) -> None:
    """Without it, one fault of the check would be a write that no audit has seen, or a file's content on the screen."""
    with pytest.raises(PySparkException), walls(spark):
        run_query(spark, text.format(path=table)).collect()
    assert DeltaTable(table).version() == 0
    assert not (table / "out").exists()


def test_the_second_wall_keeps_variables_text(spark: SparkSession) -> None:
    with walls(spark):
        assert run_query(spark, "SELECT '${env:HOME}' a").collect() == [("${env:HOME}",)]
    assert spark.conf.get("spark.sql.variable.substitute") == "true", "as before: the session may be others' too"
