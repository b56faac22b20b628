"""`lakehouse demo`: land sample data (or a folder's), build every table, and show what came out of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import pyarrow.compute as pc
import typer

from lakehouse.build.recompute import place
from lakehouse.catalog import get_landing, landings, tables
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import FromDay, ToDay, console, say, table
from lakehouse.commands.inspect.quarantine import depth, offending
from lakehouse.commands.progress import Terminal
from lakehouse.commands.summary import print_summary
from lakehouse.days import contiguous
from lakehouse.delta.staged import FAILED_RULES
from lakehouse.errors import SourceError, UsageError
from lakehouse.orchestration.pieces import Piece
from lakehouse.quarantine.aside import shown_rows
from lakehouse.read.lake import table_path
from lakehouse.read.rows import top_rows
from lakehouse.runs.running import run_pieces, run_stale
from lakehouse.runs.selection import check_days, fit_days, in_order
from lakehouse.sample.events import land_events
from lakehouse.sample.faults import Faults
from lakehouse.sample.retail import land_sample_online_retail
from lakehouse.settings import Settings, get_settings
from lakehouse.sources.landing import land, landing_files
from lakehouse.spark.warm import begin_early
from lakehouse.texts import counted, program

DAYS = 14  # that end yesterday
RETAIL_ROWS, EVENT_ROWS, SEED = 400, 300, 7
TOP = 8
QUERY = "SELECT * FROM gold.daily_revenue ORDER BY event_date"
NOT_HERE = "The demonstration is of the tables of two shops, which are not here: land files of your own."


Exports = Annotated[
    Path | None,
    typer.Option(
        "--source", metavar="DIR", exists=True, file_okay=False, help="Folder of YYYY-MM-DD.csv.gz retail exports."
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "demo",
        cls=Command,
        epilog=examples(
            "lakehouse demo", "lakehouse demo --source exports/", "lakehouse demo --source exports/ --to 2010-12-31"
        ),
    )(demo)


def demo(
    source: Exports = None,
    first: FromDay = None,
    last: ToDay = None,
) -> None:
    """Land sample data, build bronze, silver and gold through Dagster, and show tables, quarantine and next steps.

    The sample is made up: retail lines and web-shop events, with a believable share of faults.
    """
    settings = get_settings()
    first, last = land_days(settings, source, first, last)
    begin_early(settings)
    settings = fit_days(settings, say)
    first, last = check_days(settings, first, last)
    say(f"Building every table for {first} … {last} through Dagster (the engine needs some seconds to start).")
    terminal = Terminal(settings)
    report = run_pieces(settings, [Piece(tuple(tables()), first, last)], listener=terminal)
    if report.exit_code == 0:
        # Days outside of the range that its rows belong to: nothing is left for the sensor of `make dev`.
        report.add(run_stale(settings, list(tables()), listener=terminal))
    print_summary(report, settings)
    if report.exit_code in (0, 1):
        _show_gold(settings, first, last)
        show_quarantine(settings, Piece((), first, last).days)
        _show_next_steps(settings, first, last)
    raise typer.Exit(report.exit_code)


def check_here(*names: str) -> None:
    """Refuse a demonstration whose tables are not there, before it starts anything."""
    if not tables().keys() >= set(names):
        raise UsageError(NOT_HERE)


def land_days(settings: Settings, source: Path | None, first: date | None, last: date | None) -> tuple[date, date]:
    """Land a folder's days, or sample data; returns the first and the last day of what landed.

    Args:
        settings: where the lakehouse is.
        source: folder of retail exports; None: sample data.
        first: the first day; None: what the folder has, or two weeks.
        last: the last day; None: as well, or yesterday.
    """
    if source is None:
        yesterday = datetime.now(UTC).date() - timedelta(days=1)
        last = last or (first + timedelta(days=DAYS - 1) if first else yesterday)
        last = min(last, yesterday)
        first = first or last - timedelta(days=DAYS - 1)
        in_order(first, last)
        _land_sample(settings, Piece((), first, last).days)
        return first, last
    in_order(first, last)
    try:
        landed = land(source, settings.root, get_landing("online_retail"), first, last)
    except SourceError as error:
        raise UsageError(str(error)) from None
    new = sum(each.outcome != "unchanged" for each in landed)
    found = [each.arrival_date for each in landed]
    say(f"Landed {counted(len(landed), 'file')} of {min(found)} … {max(found)} from {source} ({new} new or changed).")
    # The lake's days are those of its files: a month may begin with days that have none.
    return min(found), max(found)


def _land_sample(settings: Settings, days: Sequence[date]) -> None:
    """Land the sample's days; a day for which the source has a file already keeps it."""
    known = {name: each for name, each in landings().items() if name in ("online_retail", "events")}
    if not known:
        raise UsageError(NOT_HERE)
    landed = 0
    for name, landing in known.items():
        there = {file.arrival_date for file in landing_files(settings.root, landing, days[0], days[-1])}
        for start, end in contiguous(set(days) - there):
            number = (end - start).days + 1
            if name == "online_retail":
                landed += len(land_sample_online_retail(settings.root, start, number, RETAIL_ROWS, SEED))
            else:
                # The sample's world begins with its first day, so that every day it touches is built.
                faults = Faults.default()
                landed += len(land_events(settings.root, start, number, EVENT_ROWS, SEED, faults, earliest=days[0]))
    kept = len(known) * len(days) - landed
    told = f"Landed {counted(landed, 'sample file')} of two shops in {settings.landing}"
    say(told + (f"; {counted(kept, 'day')} had files already, which stay." if kept else "."))


def show_revenue(settings: Settings, days: Sequence[date], currency: str | None = "GBP") -> None:
    """Print the best days and countries of gold.daily_revenue.

    Args:
        settings: where the lakehouse is.
        days: only these.
        currency: only this one, since sums of several cannot be compared; None: all, by how many purchases they have.
    """
    columns = ("event_date", "country", "currency", "purchases", "cancellations", "net_revenue")
    best = "net_revenue" if currency else "purchases"
    rows = top_rows(
        table_path(settings.root, "gold.daily_revenue"),
        columns,
        order_by=[(best, "descending"), ("event_date", "ascending")],
        limit=TOP,
        days=days,
        where=pc.field("currency") == currency if currency else None,
    )
    title = f"gold.daily_revenue: the best days and countries{f', in {currency}' if currency else ''}"
    _print(title, columns, rows, right=columns[3:])


def _show_gold(settings: Settings, first: date, last: date) -> None:
    show_revenue(settings, Piece((), first, last).days)
    columns: tuple[str, ...] = (
        "user_id",
        "feature_date",
        "rolling_7d_transaction_count",
        "rolling_7d_amount",
        "user_7d_order_count",
    )
    rows = top_rows(
        table_path(settings.root, "gold.user_features"),
        columns,
        order_by=[("user_7d_order_count", "descending"), (columns[2], "descending"), ("user_id", "ascending")],
        limit=TOP,
        days=[last],
    )
    _print(f"gold.user_features: the busiest customers as known at the end of {last}", columns, rows, right=columns[2:])


def show_quarantine(settings: Settings, days: Sequence[date]) -> None:
    """Print how many rows of some days were set aside by which rule, with an example of each."""
    out = console()
    for contract in tables().values():
        by_rule: Counter[str] = Counter()
        for (_, rule), number in depth(settings, contract, days).items():
            by_rule[rule] += number
        if not by_rule:
            continue
        meanings = {rule.name: rule.describes for rule in contract.rules}
        listed = [(rule, number, meanings.get(rule, "")) for rule, number in by_rule.most_common()]
        out.print()
        out.print(
            table(
                ("rule", "rows", "what it says"),
                listed,
                right=("rows",),
                title=f"{contract.quarantine_id}: set aside, by rule",
            )
        )
        told = dict.fromkeys(
            (row[FAILED_RULES], offending(contract, row), place(row))
            for rule, *_ in listed[:TOP]
            for row in shown_rows(settings.root, contract, days=days, rule=rule, limit=1)
        )
        out.print(table(("broke", "with", "came from"), told, title="An example of each"))


def _print(title: str, columns: Sequence[str], rows: Sequence[dict[str, Any]], right: Sequence[str] = ()) -> None:
    out = console()
    out.print()
    if rows:
        out.print(table(columns, [[row[name] for name in columns] for row in rows], right=right, title=title))
    else:
        out.print(f"{title}: no rows")


def _show_next_steps(settings: Settings, first: date, last: date) -> None:
    call = program()
    say()
    say("Next:")
    for command, purpose in (
        (f"{call} sql '{QUERY}'", "query any table by name"),
        (f"{call} quarantine show silver.transactions", "rows that were set aside, with their reasons"),
        (f"{call} status", "freshness, failing checks, quarantine depth"),
        (f"{call} backfill --from {first} --to {last}", "again: nothing changes"),
        ("make dev", f"the web interface, on http://127.0.0.1:{settings.port}"),
    ):
        say(f"  {command}\n      {purpose}")
