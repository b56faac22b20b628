"""A checked query on Spark: the walls it runs within, and its errors in the names of tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from lakehouse.delta.layout import table_path
from lakehouse.errors import UsageError
from lakehouse.query.checked_query import CheckedQuery, TableUse
from lakehouse.query.names import distinct_names
from lakehouse.query.pinning import Pinned
from lakehouse.settings import Settings
from lakehouse.spark.session import start


def query_rows(settings: Settings, query: CheckedQuery, read: Pinned, limit: int | None) -> pa.Table:
    """The rows of a query, its columns by names that differ.

    Args:
        settings: where the lakehouse and its engine are.
        query: has passed its check.
        read: the tables it reads, with their versions.
        limit: most rows; None: all.

    Raises:
        UsageError: where Spark cannot run it, in the names that were asked for.
    """
    uses = [use for use, _ in read]
    spark: SparkSession = start(settings)
    # It prints a query's error with its whole stack; the error is told below, in a sentence.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    try:
        for use, version in read:
            reader = spark.read.format("delta")
            if version is not None:
                reader = reader.option("versionAsOf", version)
            elif use.option is not None:
                reader = reader.option(use.option, use.value)
            reader.load(str(table_path(settings.root, use.table))).createOrReplaceTempView(use.view)
        with walls(spark):
            frame = run_query(spark, query.spark_sql())
            frame = frame.toDF(*distinct_names(frame.columns))
            return (frame if limit is None else frame.limit(limit)).toArrow()
    except (AnalysisException, ParseException) as error:
        raise UsageError(_readable(str(error), uses)) from None
    except PySparkException as error:
        raise UsageError(f"The query failed: {_readable(str(error), uses)}") from None


@contextmanager
def walls(spark: SparkSession) -> Iterator[None]:
    """While they stand, no path is a table and `${…}` is text: until a query ends, since Connect reads it late."""
    before = {name: spark.conf.get(name) for name in ("spark.sql.runSQLOnFiles", "spark.sql.variable.substitute")}
    try:
        for name in before:
            spark.conf.set(name, "false")
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value or "true")


def run_query(spark: SparkSession, text: str) -> DataFrame:
    """The rows of a checked query, to be used within `walls`: a second wall, should the check let something through.

    Inside the parentheses Spark's own grammar has queries alone.
    """
    return spark.sql(f"SELECT * FROM (\n{text}\n)")  # made from a checked tree


def _readable(text: str, uses: Sequence[TableUse]) -> str:
    """Spark's message without its plan, in the names that were asked for."""
    for use in uses:
        text = text.replace(use.view, use.table)
    return re.split(r"\n\s*(?:'?[A-Z]\w+ \[|JVM stacktrace|== (?:DataFrame|SQL) )|;\n", text.split("\n\nJVM")[0])[
        0
    ].strip()
