"""`lakehouse ready`: whether a day of a table can be read, for programs that wait for it."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import Annotated

import typer

from lakehouse.build.ready import MISSING, READY, readiness
from lakehouse.catalog import get_table, lake_without_engine
from lakehouse.commands.command import LookingCommand, examples
from lakehouse.commands.console import AsJson, console, iso, parse_day, print_json, table
from lakehouse.errors import CHECKS_FAILED, OK
from lakehouse.settings import get_settings

POLL = 5.0  # seconds


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "ready",
        cls=LookingCommand,
        epilog=examples(
            "lakehouse ready gold.daily_revenue 2011-03-04",
            "lakehouse ready gold.daily_revenue 2011-03-04 --wait 3600 && ./report.sh",
        ),
    )(ready)


def ready(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="Such as gold.daily_revenue.")],
    day: Annotated[date, typer.Argument(parser=parse_day, metavar="DAY", help="YYYY-MM-DD.")],
    *,
    wait: Annotated[float, typer.Option("--wait", min=0, metavar="SECONDS", help="Wait for it so long at most.")] = 0.0,
    stale_ok: Annotated[
        bool, typer.Option("--stale-ok", help="What is there will do, whatever has changed since or is still to come.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """End with 0 where a day is published from the newest of all that it is made from, else with 1.

    The answer is in the table's own log: the commit that publishes the rows also says from what. So no marker file is
    needed, which could be wrong.
    """
    contract, until = get_table(name), time.monotonic() + wait
    while True:
        found = readiness(lake_without_engine(get_settings()), contract, day, datetime.now(UTC))
        good = found.status == READY or (stale_ok and found.status != MISSING)
        left = until - time.monotonic()
        if good or left <= 0:
            break
        time.sleep(min(POLL, left))
    if as_json:
        print_json(asdict(found))
    else:
        at = iso(found.published_at.replace(microsecond=0)) if found.published_at else ""
        cells = [found.table, found.day, found.status, found.rows, found.version, at, found.reason]
        columns = ("table", "day", "status", "rows", "version", "published", "waits for")
        console().print(table(columns, [cells], right=("rows", "version")))
    raise typer.Exit(OK if good else CHECKS_FAILED)
