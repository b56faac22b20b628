"""Runs in this process through Dagster: what happened to each day of each table, told from the run's own events."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from lakehouse.commands.console import engine_output_aside, quiet_warnings, say
from lakehouse.commands.progress import Bars, NoBars
from lakehouse.commands.reports import Report, RunReport, TableReport
from lakehouse.orchestration.pieces import Piece
from lakehouse.settings import Settings

if TYPE_CHECKING:
    from dagster import DagsterEvent, DagsterEventType, DagsterInstance

    from lakehouse.contracts import Table


def run_pieces(
    settings: Settings,
    pieces: Sequence[Piece],
    *,
    force: bool = False,
    backfill: bool = False,
    verbose: bool = False,
) -> Report:
    """Execute one Dagster run for each piece, in this process and on one Spark session, with a progress bar.

    Args:
        settings: where the lakehouse is.
        pieces: what to run, in this order.
        force: build days again whose inputs and code have not changed.
        backfill: these are no live runs, which decides their engine.
        verbose: show the log instead of the progress bar.
    """
    quiet_warnings()
    from lakehouse.catalog import tables
    from lakehouse.orchestration.instance import opened_instance
    from lakehouse.runs.executing import create_run, execute

    order = [name for name in tables() if any(name in piece.tables for piece in pieces)]
    report = Report({name: TableReport(name) for name in order})
    totals = {name: sum(len(piece.days) for piece in pieces if name in piece.tables) for name in order}
    with opened_instance(settings) as instance:
        close_abandoned(instance)
        with engine_output_aside(settings, verbose=verbose) as terminal:
            bars = Bars(terminal.progress, totals) if terminal.progress else NoBars()
            with bars:
                for piece in pieces:
                    level = "INFO" if verbose else "CRITICAL"
                    run = create_run(
                        instance,
                        piece.tables,
                        piece.first,
                        piece.last,
                        force=force,
                        backfill=backfill,
                        not_published=report.not_published(piece, tables()),
                        log_level=level,
                    )
                    follower = Follower(RunReport(run.run_id, piece), report.tables, tables(), bars.step)
                    report.runs.append(follower.run)
                    began = time.perf_counter()
                    try:
                        for event in execute(instance, run):
                            follower.see(event)
                    finally:
                        follower.run.seconds = time.perf_counter() - began
                        follower.finish(instance)
                    stored = instance.get_run_by_id(run.run_id)
                    follower.run.status = stored.status.value if stored else "UNKNOWN"
                    if follower.run.status == "CANCELED":
                        report.interrupted = True
                        break
    return report


def run_stale(
    settings: Settings,
    names: Sequence[str],
    *,
    within: tuple[date, date] | None = None,
    only: Mapping[str, Collection[date]] | None = None,
    backfill: bool = False,
    verbose: bool = False,
) -> Report:
    """Build, table by table, the days that are stale by the time their turn comes: what runs before them decides.

    A day that was built again and came out with the same rows still makes the days that read it stale, since its
    fingerprint is of its inputs. Stops where a table's step breaks; a bad day only stays behind.

    Args:
        settings: where the lakehouse is.
        names: tables, upstream first.
        within: first and last day to build; None: from the first day of the settings to yesterday.
        only: by table, the days that may be built at all; a table that is missing here is not limited.
        backfill: these are no live runs, which decides their engine.
        verbose: show the log instead of the progress bar.
    """
    from lakehouse.build.touched import stale_days
    from lakehouse.commands.plans import lake_without_engine
    from lakehouse.commands.selection import last_partition
    from lakehouse.orchestration.pieces import bridged, pieces_of

    first, last = within or (settings.first_day, last_partition())
    report = Report()
    for name in names:
        lake = lake_without_engine(settings)  # a new one each time: it keeps what it opened
        stale = set(stale_days(lake, lake.table(name)))
        days = {day for day in stale if first <= day <= last}
        if only is not None and name in only:
            days &= set(only[name])
        if days:
            pieces = pieces_of({name: bridged(days, leave=stale - days)}, [name])
            report.add(run_pieces(settings, pieces, backfill=backfill, verbose=verbose))
        if report.interrupted or any(each.broken for each in report.tables.values()):
            break
    return report


def close_abandoned(instance: DagsterInstance) -> None:
    """Close the runs that killed processes left open, and say so."""
    from lakehouse.orchestration.instance import close_abandoned_runs

    for run_id in close_abandoned_runs(instance):
        say(f"Run {run_id[:8]} belonged to a process that is gone; it is marked as failed.")


class Follower:
    """Collects a run's events into the report."""

    def __init__(
        self,
        run: RunReport,
        reports: Mapping[str, TableReport],
        contracts: Mapping[str, Table],
        on_step: Callable[[str, str, int], None],
    ) -> None:
        self.run = run
        self._reports = reports
        self._contracts = contracts
        self._on_step = on_step
        self._began: dict[str, float] = {}
        self._done: dict[str, set[date]] = {name: set() for name in run.piece.tables}
        self._work: dict[str, float] = {}
        self._bad: dict[str, dict[date, list[str]]] = {name: {} for name in run.piece.tables}
        self._warned: dict[tuple[str, str], dict[str, str]] = {}
        self._ended: dict[str, str] = {}
        self._broke: set[str] = set()
        self._now = 0.0

    def see(self, event: DagsterEvent, at: float | None = None) -> None:
        """Take note of one event, which happened just now or at a time in seconds of any clock."""
        self._now = time.perf_counter() if at is None else at
        match event.event_type_value:
            case "STEP_START":
                self._began[self._table(event)] = self._now
                self._on_step(self._table(event), "start", 0)
            case "ASSET_MATERIALIZATION":
                self._materialized(event)
            case "ASSET_CHECK_EVALUATION":
                self._checked(event)
            case "STEP_UP_FOR_RETRY":
                self._on_step(self._table(event), "retry", 0)
            case "STEP_SUCCESS" | "STEP_FAILURE" | "STEP_SKIPPED":
                self._ended_step(event)
            case "PIPELINE_FAILURE":
                # A run that another process closed as failed says nothing of its own.
                error = event.job_failure_data.error if event.event_specific_data else None
                if not self._ended and error is not None:
                    self.run.error = _first_line(error.message)

    def finish(self, instance: DagsterInstance) -> None:
        """Sort the days without a materialization into failed and skipped, once the run is over."""
        if any(ended == "STEP_FAILURE" for ended in self._ended.values()):
            # What a failing step logged is stored, but not handed over while the run is on.
            for entry in instance.all_logs(self.run.run_id, of_type=_stored_types()):
                if entry.dagster_event is not None:
                    self.see(entry.dagster_event)
        for (name, check), days in self._warned.items():
            first = min(days)
            when = f"{len(days)} days, first {first}: " if len(days) > 1 else f"{first} " if first else ""
            self._reports[name].warnings.append(f"{check}: {when}{days[first]}")
        self._warned.clear()
        for name in (n for n in self._contracts if n in self.run.piece.tables):
            report = self._reports[name]
            work = self._work.get(name)
            report.work_seconds += report.seconds if work is None and name in self._began else work or 0.0
            for day in self.run.piece.days:
                if day in self._done[name]:
                    report.failed.pop(day, None)
                    report.skipped.pop(day, None)
                elif reasons := self._bad[name].get(day):
                    report.failed[day] = "; ".join(reasons)
                else:
                    report.skipped[day] = self._why_skipped(name, day)

    def _table(self, event: DagsterEvent) -> str:
        from lakehouse.orchestration.instance import table_of_step

        return table_of_step(event.step_key or "")

    def _materialized(self, event: DagsterEvent) -> None:
        materialization = event.step_materialization_data.materialization
        name = ".".join(materialization.asset_key.path)
        if name not in self._done or materialization.partition is None:
            return
        values = {key: value.value for key, value in materialization.metadata.items()}
        day, report = date.fromisoformat(materialization.partition), self._reports[name]
        if day in self._done[name]:
            return
        into = report.unchanged if values.get("status") == "unchanged" else report.published
        into[day] = int(_number(values.get("dagster/partition_row_count")))
        report.quarantined += int(_number(values.get("quarantined")))
        self._done[name].add(day)
        if also := str(values.get("also_written") or ""):
            report.also.append(also)
        self._work.setdefault(name, _number(values.get("duration_seconds")))
        self._on_step(name, "day", 1)

    def _checked(self, event: DagsterEvent) -> None:
        checked = event.asset_check_evaluation_data
        name, partition = ".".join(checked.asset_key.path), checked.partition
        if checked.passed or name not in self._bad:
            return
        if checked.severity.value == "WARN" and (partition is not None or checked.check_name in _judged_after()):
            days = self._warned.setdefault((name, checked.check_name), {})
            days.setdefault(partition or "", checked.description or "warns")
        if partition is None or checked.severity.value != "ERROR":
            return  # an evaluation over all days of the table, of which some are not this run's
        text = f"{checked.check_name}: {checked.description or 'failed'}"
        found = self._bad[name].setdefault(date.fromisoformat(partition), [])
        if text not in found:
            found.append(text)

    def _ended_step(self, event: DagsterEvent) -> None:
        name, report = self._table(event), self._reports.get(self._table(event))
        if report is None:
            return
        self._ended[name] = event.event_type_value
        report.seconds += self._now - self._began.get(name, self._now)
        if event.is_step_failure:
            data = event.step_failure_data
            told = data.user_failure_data
            kind = told.metadata.get("error") if told else None
            interrupted = data.error_source.name == "INTERRUPT"
            if not interrupted and (kind is None or kind.value != "BadPartitionsError"):
                report.broken = (told.description if told else None) or _cause(data.error)
                self._broke.add(name)
        self._on_step(name, "failed" if event.is_step_failure or name in self._broke else "end", 0)

    def _why_skipped(self, name: str, day: date) -> str:
        if name in self._broke:
            return "the table's step broke"
        for each in self._contracts[name].upstream.values():
            upstream = self._reports.get(each.table)
            if upstream is None:
                continue
            if each.table in self._broke:
                return f"{each.table} broke"
            if day in upstream.failed:
                return f"waits for {each.table}, whose day failed"
            if day in upstream.skipped:
                return f"waits for {each.table}"
        return self.run.error or "the run ended before"


def _judged_after() -> tuple[str, ...]:
    from lakehouse.orchestration.checks import JUDGED_AFTER

    return JUDGED_AFTER


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0.0


def _stored_types() -> set[DagsterEventType]:
    from dagster import DagsterEventType

    return {DagsterEventType.ASSET_MATERIALIZATION, DagsterEventType.ASSET_CHECK_EVALUATION}


def _cause(error: Any) -> str:
    """The innermost error of a step failure, in one line."""
    if error is None:
        return "failed without a message"
    while error.cause is not None:
        error = error.cause
    return _first_line(error.message)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")
