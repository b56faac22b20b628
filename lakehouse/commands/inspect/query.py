"""`lakehouse sql`: query any table by its name, in process or through Spark Connect."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import (
    AsJson,
    UsageError,
    console,
    counted,
    engine_output_aside,
    json_value,
    near,
    program,
    say,
    table,
)
from lakehouse.settings import Settings, get_settings

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from lakehouse.commands.inspect.checked_query import CheckedQuery, TableUse


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "sql",
        cls=Command,
        epilog=examples(
            "lakehouse sql 'SELECT * FROM gold.daily_revenue ORDER BY event_date'",
            "lakehouse sql 'SELECT country, sum(amount) FROM silver.transactions GROUP BY country' --json",
            "lakehouse sql 'SELECT count(*) FROM silver.orders' --as-of 2026-11-20T10:00",
            "lakehouse sql 'SELECT count(*) FROM silver.orders VERSION AS OF 3'",
            "lakehouse sql 'SELECT * FROM silver.transactions_quarantine' --limit 10",
        ),
    )(sql)


def sql(
    statement: Annotated[str, typer.Argument(metavar="QUERY", help="One query, in Spark's SQL.")],
    *,
    as_json: AsJson = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Most rows. Default: 100 in a table, no limit with --json.")
    ] = None,
    as_of: Annotated[
        list[str] | None,
        typer.Option(
            "--as-of",
            metavar="TIME",
            help="Read every table as it was at this time, UTC (2026-11-20T10:00); or one table at a version "
            "(silver.orders=3), which may be given several times.",
        ),
    ] = None,
) -> None:
    """Query tables by name: silver.transactions, silver.transactions_quarantine, ops.partition_metrics.

    It only reads: one query over these tables, calling functions of Spark that only compute.

    With --json a list of objects: decimals as strings, so that no digit is lost; dates and times in ISO 8601, UTC.
    """
    from lakehouse.catalog import tables
    from lakehouse.commands.inspect.checked_query import QueryError, check_query
    from lakehouse.contracts.table import LAYERS
    from lakehouse.records.ops import OPS, ops_tables

    settings = get_settings()
    contracts = tables().values()
    known = [each.id for each in contracts] + [each.quarantine_id for each in contracts if each.rules]
    known += ops_tables(settings.root)
    try:
        query = check_query(statement, known, (*LAYERS, OPS))
    except QueryError as error:
        raise UsageError(str(error)) from None
    _built(settings, query.uses)
    pinned = _pinned(settings, query.uses, as_of or (), known)
    most = limit if limit is not None or as_json else 100
    with engine_output_aside(settings):
        result = _query(settings, query, pinned, None if most is None else most + 1)
    more = most is not None and result.num_rows > most
    rows = result.slice(0, most) if most is not None else result
    if as_json:
        _write_json(rows)
    else:
        names = rows.column_names
        right = [n for n, t in zip(names, rows.schema.types, strict=True) if _is_number(t)]
        console().print(table(names, ([row[n] for n in names] for row in _dicts(rows)), right=right))
    if more:
        say(f"Only the first {counted(most or 0, 'row')}; --limit shows more.")
    elif not as_json:
        say(f"{counted(rows.num_rows, 'row')}.")


def _built(settings: Settings, uses: Sequence[TableUse]) -> None:
    from deltalake import DeltaTable

    from lakehouse.read.lake import table_path

    for use in uses:
        if not DeltaTable.is_deltatable(str(table_path(settings.root, use.table))):
            source = use.table.removesuffix("_quarantine")
            raise UsageError(
                f"{use.table} was never built in {settings.root}. Land files (lakehouse land --help), then: "
                f"{program()} backfill --select '+{source}' --from DAY --to DAY"
            )


def _pinned(
    settings: Settings, uses: Sequence[TableUse], as_of: Sequence[str], known: Sequence[str]
) -> list[tuple[TableUse, int | None]]:
    """The version that each use of a table without its own `VERSION AS OF` reads; None: the newest.

    Raises:
        UsageError: for what is neither a time nor a table's version, or was before the table's first commit.
        HistoryGoneError: where a vacuum has removed files of the version.
    """
    from lakehouse.commands.change.undo import parse_moment, version_at
    from lakehouse.delta.log import readable_at
    from lakehouse.read.lake import table_path

    moment: datetime | None = None
    versions: dict[str, int] = {}
    for text in as_of:
        name, equals, number = text.partition("=")
        if not equals:
            if moment is not None:
                raise UsageError("Give one time in --as-of; versions of tables (silver.orders=3) may be several.")
            moment = parse_moment(text)
        elif name not in known:
            raise UsageError(f"--as-of {text}: there is no table {name}.{near(name, known)}")
        elif not number.isdigit():
            raise UsageError(f"--as-of {text}: {number!r} is no version; expected a number such as {name}=3")
        else:
            versions[name] = int(number)
    if unused := sorted(versions.keys() - {use.table for use in uses}):
        raise UsageError(f"--as-of names {', '.join(unused)}, which the query does not read.")
    found: list[tuple[TableUse, int | None]] = []
    for use in uses:
        path = table_path(settings.root, use.table)
        given = use.value or "" if use.option == "versionAsOf" else ""
        version = int(given) if given.isdigit() else None
        if use.option is None:
            version = versions.get(use.table)
            if version is None and moment is not None:
                version = version_at(path, use.table, moment)
        if version is not None:
            readable_at(path, version)
        found.append((use, version))
    return found


def _query(
    settings: Settings, query: CheckedQuery, pinned: Sequence[tuple[TableUse, int | None]], limit: int | None
) -> pa.Table:
    from pyspark.errors import AnalysisException, ParseException, PySparkException
    from pyspark.logger import PySparkLogger

    from lakehouse.read.lake import table_path
    from lakehouse.spark.session import start

    uses = [use for use, _ in pinned]
    spark: SparkSession = start(settings)
    # It prints a query's error with its whole stack; the error is told below, in a sentence.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    try:
        for use, version in pinned:
            reader = spark.read.format("delta")
            if version is not None:
                reader = reader.option("versionAsOf", version)
            elif use.option is not None:
                reader = reader.option(use.option, use.value)
            reader.load(str(table_path(settings.root, use.table))).createOrReplaceTempView(use.view)
        with walls(spark):
            frame = run_query(spark, query.spark_sql())
            frame = frame.toDF(*_distinct(frame.columns))
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
    return spark.sql(f"SELECT * FROM (\n{text}\n)")  # noqa: S608  # made from a checked tree


def _distinct(names: Sequence[str]) -> list[str]:
    """Column names that differ, as JSON objects need them: the second `day` becomes `day_2`."""
    given: list[str] = []
    for name in names:
        number, candidate = 1, name
        while candidate in given:
            number += 1
            candidate = f"{name}_{number}"
        given.append(candidate)
    return given


def _readable(text: str, uses: Sequence[TableUse]) -> str:
    """Spark's message without its plan, in the names that were asked for."""
    for use in uses:
        text = text.replace(use.view, use.table)
    return re.split(r"\n\s*(?:'?[A-Z]\w+ \[|JVM stacktrace|== (?:DataFrame|SQL) )|;\n", text.split("\n\nJVM")[0])[
        0
    ].strip()


def _write_json(rows: pa.Table) -> None:
    """A JSON list, an object a line, written as it is made."""
    sys.stdout.write("[")
    for number, row in enumerate(_dicts(rows)):
        sys.stdout.write(",\n " if number else "\n ")
        sys.stdout.write(json.dumps(_finite(row), default=json_value, ensure_ascii=False, allow_nan=False))
    sys.stdout.write("\n]\n" if rows.num_rows else "]\n")


def _dicts(rows: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in rows.to_batches(max_chunksize=10_000):
        yield from batch.to_pylist()


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are written as text."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {str(k): _finite(v) for k, v in value.items()}
        case list():
            return [_finite(each) for each in value]
    return value


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
