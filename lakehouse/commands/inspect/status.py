"""`lakehouse status`: what is published, how fresh it is, what fails, and what is in quarantine. Starts no engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from lakehouse.catalog import tables
from lakehouse.commands.command import LookingCommand, examples
from lakehouse.commands.console import AsJson, Selection, console, print_json, say, table
from lakehouse.commands.summary import say_what_no_run_builds
from lakehouse.report.states import Status, table_states
from lakehouse.runs.selection import landed_range, select_tables
from lakehouse.settings import Settings, get_settings
from lakehouse.texts import age_text, counted, days_text, program


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "status",
        cls=LookingCommand,
        epilog=examples("lakehouse status", "lakehouse status --select group:gold --json"),
    )(status)


def status(
    selection: Selection = None,
    *,
    as_json: AsJson = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="End with 1 where a check fails, a day failed or a table is not fresh.")
    ] = False,
) -> None:
    """Show by table: partitions, rows, freshness, failing checks, failed and stale days, quarantine depth."""
    settings = get_settings()
    found = table_states(settings, select_tables(selection))
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        _print(found, settings)
    unwell = any(each.failing_checks or each.failed_days or not each.fresh for each in found)
    raise typer.Exit(1 if strict and unwell else 0)


def _print(found: Sequence[Status], settings: Settings) -> None:
    now = datetime.now(UTC)
    columns = (
        "table",
        "days",
        "first",
        "last",
        "rows",
        "checked",
        "fresh",
        "checks",
        "failed",
        "stale",
        "quarantine",
        "since",
    )
    rows = [_row(each, now) for each in found]
    console().print(table(columns, rows, right=("days", "rows", "checks", "failed", "stale", "quarantine")))
    for each in found:
        for text in _remarks(each):
            say(f"{each.table}: {text}")
    if not any(each.version >= 0 for each in found):
        landed = landed_range(settings)
        way = f"Build what has landed: {program()} backfill --stale" if landed else f"Begin with: {program()} demo"
        say(f"{'Nothing' if len(found) == len(tables()) else 'None of these'} was built yet in {settings.root}. {way}")
    if any(sum(each.older_code.values()) > each.older_code_kept for each in found):
        say(f"Rebuild what older code built: {program()} backfill --older-code")
    if any(each.failed_days or each.ended_days for each in found):
        say(f"Re-run what is missing: {program()} backfill --failed-only")
    if any(each.failed_days for each in found):
        say(f"Where a file was landed again, build what it touches: {program()} backfill --stale")
    say_what_no_run_builds(settings)


def _remarks(each: Status) -> Iterator[str]:
    """What is to be known of a table beside its figures, a line each."""
    for name, text in each.failing_checks.items():
        kind = "warning" if name in each.warnings else "check"
        yield f"{kind} {name} {text}" if text.startswith("fails") else f"{kind} {name}: {text}"
    if each.failed_days:
        yield f"the newest run did not publish {days_text(each.failed_days)}"
    yield from _decided(each)
    if each.open_days:
        yield f"{_days(each.open_days, ' is', ' are')} open: rows may still come"
    if each.unbuilt_days:
        yield f"{_days(each.unbuilt_days, ' has input and was', ' have input and were')} never built"
    if each.waiting_days:
        yield f"{_days(each.waiting_days, ' holds', ' hold')} the last good data: {each.waits_for}"
    if each.stale_days:
        yield f"inputs or code have changed since {_days(each.stale_days, ' was', ' were')} published"
    if each.older_code:
        told = ", ".join(f"{code} {counted(days, 'day')}" for code, days in each.older_code.items())
        kept = f"; {each.older_code_kept} cannot be built again and stay as they are" if each.older_code_kept else ""
        yield f"{counted(sum(each.older_code.values()), 'day')} of older code ({told}){kept}"
    if each.quarantined_by_rule:
        rules = ", ".join(f"{rule} {number:,}" for rule, number in each.quarantined_by_rule.items())
        yield f"in quarantine: {rules}"


def _decided(each: Status) -> Iterator[str]:
    """Which days wait because somebody wanted it so."""
    for what, days in (("ended the run of", each.ended_days), ("restored", each.restored_days)):
        if days:
            yield f"somebody {what} {_days(days, ', which waits', ', which wait')} for a new input"


def _days(days: Sequence[date], of_one: str, of_several: str) -> str:
    return days_text(days) + (of_one if len(days) == 1 else of_several)


def _checks(each: Status) -> Text:
    """How many checks fail, and how many only warn, in the colours of Dagster's pages."""
    failing = len(each.failing_checks) - len(each.warnings)
    told = [f"{failing} failing"] * bool(failing)
    told += [counted(len(each.warnings), "warning")] * bool(each.warnings)
    return Text(", ".join(told) or "ok", style="bold red" if failing else "yellow" if told else "")


def _row(each: Status, now: datetime) -> list[Any]:
    age = f"{age_text(now - each.checked_at)} ago" if each.checked_at else "never"
    alarm = "bold red"
    return [
        each.table,
        each.days,
        each.first_day,
        each.last_day,
        each.rows,
        age,
        "yes" if each.fresh else Text("no", style=alarm),
        _checks(each),
        Text(str(len(each.failed_days)), style=alarm if each.failed_days else ""),
        len(each.stale_days),
        counted(each.quarantined, "row"),
        f"{age_text(now - each.quarantined_since)} ago" if each.quarantined_since else None,
    ]
