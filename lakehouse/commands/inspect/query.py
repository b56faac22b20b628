"""`lakehouse sql`: query any table by its name, in this process or on Spark; without a query, a shell."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, say
from lakehouse.commands.inspect.rows import Format, form_of, write_file, write_rows
from lakehouse.commands.inspect.run_query import Engine, ask
from lakehouse.errors import UsageError
from lakehouse.settings import Settings, get_settings
from lakehouse.texts import counted

MOST_ROWS = 100  # of a table on the terminal, unless --limit says otherwise


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "sql",
        cls=Command,
        epilog=examples(
            "lakehouse sql 'SELECT * FROM gold.daily_revenue ORDER BY event_date'",
            "lakehouse sql 'SELECT country, sum(amount) FROM silver.transactions GROUP BY country' --json",
            "lakehouse sql 'SELECT * FROM silver.orders' --out orders.parquet",
            "lakehouse sql 'SELECT count(*) FROM silver.orders' --as-of 2026-11-20T10:00",
            "lakehouse sql 'SELECT count(*) FROM silver.orders VERSION AS OF 3'",
            "lakehouse sql 'SELECT * FROM silver.transactions_quarantine' --limit 10",
            "lakehouse sql",
        ),
    )(sql)


def sql(
    statement: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="One query, in Spark's SQL. Default: a shell that takes many.")
    ] = None,
    *,
    as_json: AsJson = False,
    form: Annotated[
        Format | None,
        typer.Option("--format", help="How rows are written. Default: table, or what the name of --out ends with."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the rows into a file: csv, json or parquet.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Most rows. Default: 100 in a table, else no limit.")
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
    engine: Annotated[
        Engine,
        typer.Option(
            "--engine",
            help="What answers: embedded is in this process and starts at once, spark is for what is too large; auto "
            "is embedded where that gives the same answer, else spark.",
        ),
    ] = Engine.AUTO,
) -> None:
    """Query tables by name: silver.transactions, silver.transactions_quarantine, ops.partition_metrics.

    It only reads: one query over these tables, calling functions of Spark that only compute.

    With --json a list of objects: decimals as strings, so that no digit is lost; dates and times in ISO 8601, UTC.
    """
    settings = get_settings()
    form = _form(form, out, as_json=as_json)
    if statement is None and sys.stdin.isatty():
        from lakehouse.commands.inspect.shell import run_shell

        run_shell(settings, engine, as_of or [], limit or MOST_ROWS)
        return
    if statement is None:
        statement = sys.stdin.read()
    _show(settings, statement, form, out, limit, as_of or [], engine)


def _form(form: Format | None, out: Path | None, *, as_json: bool) -> Format:
    if as_json and form not in (None, Format.JSON):
        raise UsageError(f"--json or --format {form}: choose one.")
    found = Format.JSON if as_json else form or (form_of(out) if out else Format.TABLE)
    if out and found is Format.TABLE:
        raise UsageError(f"{out}: a file is csv, json or parquet.")
    return found


def _show(
    settings: Settings,
    statement: str,
    form: Format,
    out: Path | None,
    limit: int | None,
    as_of: list[str],
    engine: Engine,
) -> None:
    most = MOST_ROWS if limit is None and form is Format.TABLE else limit
    asked = None if most is None else most + 1
    if out:
        write = partial(write_file, form=form, file=out, settings=settings, most=most)
        number = ask(settings, statement, write, as_of=as_of, limit=asked, engine=engine)
    else:  # whole: what has been printed cannot be taken back where Spark has to answer after all
        found = ask(settings, statement, pa.RecordBatchReader.read_all, as_of=as_of, limit=asked, engine=engine)
        write_rows(found.slice(0, most), form)
        number = found.num_rows
    if most is not None and number > most:
        say(f"Only the first {counted(most, 'row')}; --limit shows more.")
    elif out:
        say(f"{counted(number, 'row')} in {out}.")
    elif form is Format.TABLE:
        say(f"{counted(number, 'row')}.")
