"""`lakehouse sql`: query any table by its name, in process or through Spark Connect."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import pyarrow as pa
import typer
from pyarrow import types

from lakehouse.catalog import tables
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, console, engine_output_aside, json_value, say, table
from lakehouse.contracts.table import LAYERS
from lakehouse.errors import UsageError
from lakehouse.query.checked_query import check_query
from lakehouse.query.engine import query_rows
from lakehouse.query.pinning import check_built, pinned
from lakehouse.query.sql_text import QueryError
from lakehouse.records.ops import OPS, ops_tables
from lakehouse.settings import get_settings
from lakehouse.texts import counted


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
    settings = get_settings()
    contracts = tables().values()
    known = [each.id for each in contracts] + [each.quarantine_id for each in contracts if each.rules]
    known += ops_tables(settings.root)
    try:
        query = check_query(statement, known, (*LAYERS, OPS))
    except QueryError as error:
        raise UsageError(str(error)) from None
    check_built(settings.root, query.uses)
    read = pinned(settings.root, query.uses, as_of or (), known)
    most = limit if limit is not None or as_json else 100
    with engine_output_aside(settings):
        result = query_rows(settings, query, read, None if most is None else most + 1)
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
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
