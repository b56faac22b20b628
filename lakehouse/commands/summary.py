"""The summary of runs: by table what was published, what was unchanged, and what failed with its reasons."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import date

from rich.console import Console
from rich.text import Text

from lakehouse.build.stale import days_before_the_first
from lakehouse.catalog import lake_without_engine, landings, tables
from lakehouse.commands.console import console, say, table
from lakehouse.days import EARLIEST
from lakehouse.runs.reports import Report, TableOutcome
from lakehouse.settings import Settings
from lakehouse.sources.landing import never_read
from lakehouse.spark.engine_place import engine_logs
from lakehouse.texts import counted, days_text, program

MOST_REASONS = 20
MOST_FILES = 5


def print_summary(report: Report, settings: Settings) -> None:
    """Print the table of results on standard output, and reasons and advice on standard error."""
    rows = [
        (
            each.table,
            len(each.published),
            len(each.unchanged),
            _alarm(len(each.failed)),
            _alarm(len(each.skipped)),
            each.rows,
            each.quarantined,
            f"{each.seconds:.1f}",
        )
        for each in report.tables.values()
    ]
    numbers = ("published", "unchanged", "failed", "skipped", "rows", "quarantine", "sec")
    console().print(table(("table", *numbers), rows, right=numbers))
    console().print(_outcome(report), soft_wrap=True)
    _reasons(report, settings)


def say_what_no_run_builds(settings: Settings) -> None:
    """Say on standard error if rows have come for days before the lake's first one, or files that no table reads."""
    if days := days_before_the_first(lake_without_engine(settings)):
        say(before_the_first(days, settings))
    if strays := never_read(settings.root, landings().values()):
        say(f"{files_never_read(strays)}. {what_to_do_with_strays(settings)}")


def files_never_read(strays: Sequence[str]) -> str:
    """Landed files that no pattern of a source fits, in words; by their paths in the landing zone."""
    more = ", …" if len(strays) > MOST_FILES else ""
    return f"{counted(len(strays), 'landed file')} that no table reads: {', '.join(strays[:MOST_FILES])}{more}"


def what_to_do_with_strays(settings: Settings) -> str:
    """The advice about them."""
    return f"Call them as their source says (docs/how-to/land-your-files.md), or take them out of {settings.landing}."


def before_the_first(days: Sequence[date], settings: Settings) -> str:
    """What is to be known of days before the lake's first one, in order, that rows have come for."""
    if days[-1] < EARLIEST:  # zero in place of a time, as a rule
        return (
            f"Rows have come for {counted(len(days), 'day')} before {EARLIEST} ({days_text(days)}): no lake has such "
            "days, and no run builds them. Have bronze take their arrival day instead, as `with_event_date` does."
        )
    begin = next(day for day in days if day >= EARLIEST)
    by_batch = f"; or, of what a batch brought: {program()} intake --downstream"
    return (
        f"Rows have come for {counted(len(days), 'day')} before the lake's first day, {settings.first_day} "
        f"({days_text(days)}): no run builds them. To take them in, set LAKEHOUSE_FIRST_DAY={begin} (the lake's own "
        f"setting is in {settings.own_file}), then: {program()} backfill --stale"
    ) + (by_batch if any(each.taken for each in tables().values()) else "")


def _alarm(number: int) -> Text:
    return Text(f"{number:,}", style="bold red" if number else "")


def _outcome(report: Report) -> str:
    shares = f"{report.seconds:.1f} s, of which Dagster's own bookkeeping {report.dagster_seconds:.1f} s"
    runs = counted(len(report.runs), "run")
    published = sum(len(each.published) for each in report.tables.values())
    open_days = sum(len(each.failed) + len(each.skipped) for each in report.tables.values())
    if report.interrupted:
        return f"Interrupted after {report.seconds:.1f} s. What is published stays; the same command again goes on."
    if not published and not open_days:
        return f"Nothing changed: every day is published from these very inputs and this code ({runs}, {shares})."
    return f"{counted(published, 'partition')} published in {runs}, {shares}."


def _reasons(report: Report, settings: Settings) -> None:
    for each in report.tables.values():
        _reasons_of(each, interrupted=report.interrupted)
    for run in report.runs:
        if run.error:
            _line(f"Run {run.run_id[:8]} broke: {run.error}")
    if report.exit_code == 0 or report.interrupted:
        return
    if any(each.broken for each in report.tables.values()):
        # A warm engine, as is the default, writes a log of its own; engine.log is of those within a process.
        within = settings.root / "logs" / "engine.log"
        say(
            f"The engine's own messages are in {engine_logs(settings)}/engine-….log where it is warm, "
            f"else in {within}; `{program()} doctor` checks it."
        )
    if any(each.failed for each in report.tables.values()):
        say("Readers see what was published of failed days before, if anything was.")
    say(f"When the cause is fixed, re-run only what is missing: {program()} backfill --failed-only")
    say(f"Where a file was landed again, build what it touches: {program()} backfill --stale")


def _reasons_of(each: TableOutcome, *, interrupted: bool) -> None:
    if each.broken:
        _line(f"{each.table} broke: {each.broken}")
    failed = list(_by_reason(each.failed).items())
    for why, days in failed[:MOST_REASONS]:
        _line(f"{each.table} {days_text(days)} failed: {why}")
    if more := sum(len(days) for _, days in failed[MOST_REASONS:]):
        _line(f"{each.table}: {more} more days failed ({days_text(each.failed)})")
    for text in each.also[:MOST_REASONS]:
        say(f"{each.table} also wrote {text}")
    for text in each.warnings[:MOST_REASONS]:
        _line(f"{each.table} warns, {text}", style="yellow")
    for why, days in () if interrupted else _by_reason(each.skipped).items():
        _line(f"{each.table} {days_text(days)} skipped: {why}", style="yellow")


def _by_reason(days: Mapping[date, str]) -> dict[str, list[date]]:
    """The days of each reason, in order; one cause may have failed them all."""
    found: dict[str, list[date]] = {}
    for day, why in sorted(days.items()):
        found.setdefault(why, []).append(day)
    return found


def _line(text: str, style: str = "red") -> None:
    Console(file=sys.stderr, highlight=False, soft_wrap=True).print(Text(text, style=style))
