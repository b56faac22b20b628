"""Runs in this process through Dagster, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import date

from dagster import DagsterInstance

from lakehouse.build.stale import all_stale_days, tidied_days
from lakehouse.catalog import lake_without_engine, tables
from lakehouse.orchestration.instance import close_abandoned_runs, opened_instance
from lakehouse.orchestration.pieces import Piece, bridged, pieces_of
from lakehouse.runs.executing import PLAIN, Asked, create_run, execute
from lakehouse.runs.follower import Follower
from lakehouse.runs.listener import QUIET, Listener
from lakehouse.runs.reports import Report, RunReport, TableOutcome
from lakehouse.runs.selection import last_partition
from lakehouse.settings import Settings


def run_pieces(
    settings: Settings, pieces: Sequence[Piece], *, asked: Asked = PLAIN, listener: Listener = QUIET
) -> Report:
    """Execute one Dagster run for each piece, in this process and on one Spark session.

    Args:
        settings: where the lakehouse is.
        pieces: what to run, in this order.
        asked: how the runs are to build.
        listener: is told of every step and day.

    Returns:
        What became of every day. A run that breaks is part of it and the next one begins; after an interrupt none does.
    """
    order = [name for name in tables() if any(name in piece.tables for piece in pieces)]
    report = Report({name: TableOutcome(name) for name in order})
    days = {name: sum(len(piece.days) for piece in pieces if name in piece.tables) for name in order}
    with opened_instance(settings) as instance:
        close_abandoned(instance, listener.say)
        with listener.here(days):
            for piece in pieces:
                if not _run_piece(instance, piece, report, asked, listener):
                    report.interrupted = True
                    break
    return report


def _run_piece(instance: DagsterInstance, piece: Piece, report: Report, asked: Asked, listener: Listener) -> bool:
    """Execute a run and add it to the report; False where somebody interrupted it."""
    missing = report.not_published(piece, tables())
    asked = replace(asked, verbose=listener.verbose)
    run = create_run(instance, piece.tables, piece.first, piece.last, asked, not_published=missing)
    follower = Follower(RunReport(run.run_id, piece), report.tables, tables(), listener.step)
    report.runs.append(follower.run)
    began = time.perf_counter()
    try:
        for event in execute(instance, run):
            follower.see(event)
    finally:
        # Whatever is thrown through here, the report tells what was published before it.
        follower.run.seconds = time.perf_counter() - began
        follower.finish(instance)
    stored = instance.get_run_by_id(run.run_id)
    follower.run.status = stored.status.value if stored else "UNKNOWN"
    return follower.run.status != "CANCELED"


def run_stale(
    settings: Settings,
    names: Sequence[str],
    *,
    within: tuple[date, date] | None = None,
    only: Mapping[str, Collection[date]] | None = None,
    asked: Asked = PLAIN,
    listener: Listener = QUIET,
) -> Report:
    """Build, table by table, the days that are stale by the time their turn comes: what runs before them decides.

    A day that was built again and came out with the same rows still makes the days that read it stale, since its
    fingerprint is of its inputs. Stops where a table's step breaks; a bad day only stays behind.

    Args:
        settings: where the lakehouse is.
        names: tables, upstream first.
        within: first and last day to build; None: from the first day of the settings to yesterday.
        only: by table, the days that may be built at all; a table that is missing here is not limited.
        asked: how the runs are to build.
        listener: is told of every step and day.
    """
    first, last = within or (settings.first_day, last_partition())
    report = Report()
    for name in names:
        lake = lake_without_engine(settings)  # a new one each time: it keeps what it opened
        stale = set(all_stale_days(lake, lake.table(name)))
        days = {day for day in stale if first <= day <= last}
        if only is not None and name in only:
            days &= set(only[name])
        if days:
            # A gap of days that are up to date costs less than a run of its own; days that must stay are no such gap.
            leave = (stale - days) | tidied_days(lake, lake.table(name), days)
            pieces = pieces_of({name: bridged(days, leave=leave)}, [name])
            report.add(run_pieces(settings, pieces, asked=asked, listener=listener))
        if report.interrupted or any(each.broken for each in report.tables.values()):
            break
    return report


def close_abandoned(instance: DagsterInstance, say: Callable[[str], None]) -> None:
    """Close the runs that killed processes left open, and say so."""
    for run_id in close_abandoned_runs(instance):
        say(f"Run {run_id[:8]} belonged to a process that is gone; it is closed.")
