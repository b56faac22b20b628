"""Backfills that Dagster's daemon builds: launched, followed on the terminal, and summed up."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date

import typer

from lakehouse.build.stale import stale_days
from lakehouse.catalog import lake_without_engine
from lakehouse.commands.console import console, print_json, say
from lakehouse.commands.progress import Terminal
from lakehouse.commands.summary import print_summary
from lakehouse.runs.daemon import DaemonClient, follow, hint
from lakehouse.runs.executing import Asked
from lakehouse.runs.plans import plan_days
from lakehouse.runs.reports import Report
from lakehouse.settings import Settings
from lakehouse.texts import counted, days_text, program


def launch(
    settings: Settings,
    names: Sequence[str],
    wanted: Mapping[str, Collection[date]],
    *,
    asked: Asked,
    wait: bool,
    as_json: bool,
) -> None:
    """Say what some days by table will take, and have the daemon build them.

    Args:
        settings: where the lakehouse is, and the daemon's port.
        names: tables, upstream first.
        wanted: days by table.
        asked: how the runs are to build.
        wait: follow it to its end.
        as_json: print the outcome as JSON.

    Raises:
        DaemonError: where `lakehouse dev` is not on, or refuses.
    """
    plans = plan_days(settings, names, {name: set(days) for name, days in wanted.items()}, force=asked.force)
    total, same = sum(len(p.build) for p in plans), sum(len(p.unchanged) for p in plans)
    known = [p.estimate.seconds for p in plans if p.build and p.estimate.seconds is not None]
    most = settings.backfill_days
    cut = f"in runs of at most {counted(most, 'day')}" if most else "a gapless range in one run"
    takes = f", about {sum(known):.0f} s of work as builds before it went" if known else ""
    say(f"{counted(total, 'partition')} to build, {same:,} unchanged, {cut}{takes}.")
    backfill_id = DaemonClient(settings, say).launch(wanted, asked=asked, title="lakehouse backfill")
    say(f"Backfill {backfill_id} is with the daemon, which looks every few seconds.")
    started(settings, backfill_id, wait=wait, as_json=as_json)


def started(settings: Settings, backfill_id: str, *, wait: bool, as_json: bool) -> None:
    """Follow a backfill that was just started, and end as `lakehouse backfill` does; or only say its id.

    Args:
        settings: where the lakehouse is.
        backfill_id: as Dagster has named it.
        wait: follow it to its end.
        as_json: print the outcome, or the id, as JSON.

    Raises:
        typer.Exit: with the exit code of its outcome, where it was followed.
    """
    if not wait:
        if as_json:
            print_json({"backfill_id": backfill_id})
        else:
            console().print(backfill_id)
            say(hint(backfill_id))
        return
    report = follow(settings, backfill_id, Terminal(settings))
    if as_json:
        print_json({"backfill_id": backfill_id, **report.as_json()})
    elif not report.interrupted:
        print_summary(report, settings)
        _say_what_is_stale(settings, report)
    raise typer.Exit(report.exit_code)


def _say_what_is_stale(settings: Settings, report: Report) -> None:
    """Days that a run has read from other days, which runs after it have published again: late rows, windows."""
    lake = lake_without_engine(settings)
    stale = {
        name: stale_days(lake, lake.table(name), {*each.published, *each.unchanged})
        for name, each in report.tables.items()
        if each.published or each.unchanged
    }
    number = sum(len(days) for days in stale.values())
    if number:
        named = "; ".join(f"{name} {days_text(days)}" for name, days in stale.items() if days)
        say(
            f"{counted(number, 'partition')} read what runs after theirs published ({named}). The sensor `landed` "
            f"builds these, or: {program()} backfill --stale"
        )
