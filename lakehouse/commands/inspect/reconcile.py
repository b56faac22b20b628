"""`lakehouse reconcile`: whether landed lines, bronze, silver and gold add up, and which days and rows do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Annotated, Any

import typer

from lakehouse.catalog import lake_with_engine, lake_without_engine
from lakehouse.commands.command import LookingCommand, examples
from lakehouse.commands.console import (
    AsJson,
    FromDay,
    Selection,
    ToDay,
    console,
    engine_output_aside,
    print_json,
    say,
    table,
)
from lakehouse.commands.summary import before_the_first
from lakehouse.errors import CHECKS_FAILED
from lakehouse.lineage.reconcile import Link, differing_lines, differing_rows
from lakehouse.lineage.reconcile import reconcile as links_of
from lakehouse.read.lake import Lake
from lakehouse.runs.selection import in_order, select_tables
from lakehouse.settings import Settings, get_settings
from lakehouse.texts import counted, days_text, program

MOST_DAYS = 10  # whose rows are named


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "reconcile",
        cls=LookingCommand,
        epilog=examples("lakehouse reconcile", "lakehouse reconcile --from 2011-01-04 --to 2011-01-31 --rows"),
    )(reconcile)


def reconcile(
    selection: Selection = None,
    first: FromDay = None,
    last: ToDay = None,
    *,
    rows: Annotated[bool, typer.Option("--rows", help="Name the rows that differ; may start an engine.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare landed files, bronze, silver and gold by day: in = published + quarantined + duplicates, and sums.

    Sums of an upsert table, whose days are not its input's, are compared over all days.

    Reads landed files, logs and kept figures, no table. Exit code 1 where a day does not add up.
    """
    settings = get_settings()
    in_order(first, last)
    lake = lake_without_engine(settings)
    links = links_of(lake, [lake.table(name) for name in select_tables(selection)], first, last)
    named = _rows(settings, lake, links) if rows else {}
    if as_json:
        print_json([_json(link, named.get(link.target, {})) for link in links])
    else:
        print_links(links, named, settings.first_day)
        if early := sorted({day for link in links for day in link.differing if day < settings.first_day}):
            say(before_the_first(early, settings))
    raise typer.Exit(CHECKS_FAILED if any(link.differing for link in links) else 0)


def print_links(
    links: Sequence[Link], named: Mapping[str, Mapping[date, Sequence[str]]], first_day: date = date.min
) -> None:
    """The links as a table on standard output, and on standard error what does not add up.

    Args:
        links: what was compared.
        named: by table and day, rows that differ.
        first_day: the lake's; no run builds those before it.
    """
    shown = []
    for link in links:
        sums = link.total
        parts = [_number(each) for each in (sums.incoming, sums.published, sums.quarantined, sums.duplicates)]
        days = len(link.together or link.days)
        shown.append((link.source, link.target, link.measure, days, *parts, len(link.differing)))
    columns = ("from", "to", "compared", "days", "in", "published", "quarantined", "duplicates", "days that differ")
    console().print(table(columns, shown, right=columns[3:]))
    for link in links:
        for day, balance in link.differing.items():
            say(
                f"{link.target} {_when(link, day)}: {balance.incoming} in, {balance.published} published, "
                f"{balance.quarantined} quarantined, {balance.duplicates} duplicates: {balance.difference:+} "
                f"({link.measure})"
            )
            for line in named.get(link.target, {}).get(day, ()):
                say(f"  {line}")
        if link.unknown:
            say(f"{link.target}: no figures are kept of {days_text(list(link.unknown))}; build them again to compare.")
    say(_outcome(links, first_day))


def _when(link: Link, day: date) -> str:
    return f"of {counted(len(link.together), 'day')} together" if link.together else str(day)


def _outcome(links: Sequence[Link], first_day: date) -> str:
    bad = [day for link in links for day in link.differing]
    unknown = sum(len(link.unknown) for link in links)
    if bad:
        days = counted(len(bad), "day") + (" does" if len(bad) == 1 else " do")
        if max(bad) < first_day:  # where a run would change nothing, nobody is sent to begin one
            return f"{days} not add up."
        return f"{days} not add up. Days that are only not built yet: {program()} backfill --stale"
    if unknown:
        return f"What can be compared adds up; {counted(unknown, 'day')} cannot, for want of kept figures."
    if not any(link.days or link.together for link in links):
        return "Nothing was compared: these tables have no rows and no files of such days."
    return "Everything adds up."


def _number(value: Decimal) -> str:
    return f"{value:,}"


def _json(link: Link, named: dict[date, list[str]]) -> dict[str, Any]:
    total = link.total
    return {
        "from": link.source,
        "to": link.target,
        "compared": link.measure,
        "days": len(link.together or link.days),
        "together": bool(link.together),
        "in": total.incoming,
        "published": total.published,
        "quarantined": total.quarantined,
        "duplicates": total.duplicates,
        "differing": [
            {"day": day, "in": b.incoming, "published": b.published, "difference": b.difference}
            | ({"rows": named[day]} if day in named else {})
            for day, b in link.differing.items()
        ],
        "unknown_days": list(link.unknown),
    }


def _rows(settings: Settings, lake: Lake, links: Iterable[Link]) -> dict[str, dict[date, list[str]]]:
    named: dict[str, dict[date, list[str]]] = {}
    for link in links:
        contract = lake.table(link.target)
        days = list(link.differing)[:MOST_DAYS]
        if days and link.measure == "lines":
            named[contract.id] = {day: differing_lines(lake, contract, day) for day in days}
        elif days and link.measure == "rows":
            with engine_output_aside(settings):
                working = lake_with_engine(settings)
                named[contract.id] = {day: differing_rows(working, contract, day) for day in days}
    return named
