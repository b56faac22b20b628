"""What happened to each day of each table in a run, told from the run's own events."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from dagster import DagsterEvent, DagsterEventType, DagsterInstance
from dagster._core.events import RunFailureReason  # no public name

from lakehouse.build.verdicts import JUDGED_AFTER
from lakehouse.contracts import Table
from lakehouse.orchestration.instance import table_of_step
from lakehouse.runs.reports import RunReport, TableOutcome

_STORED = {DagsterEventType.ASSET_MATERIALIZATION, DagsterEventType.ASSET_CHECK_EVALUATION}


class Follower:
    """Collects a run's events into the report.

    Args:
        run: the run, whose error is noted here.
        reports: by table, where its days are noted; shared with the runs before it, which may have failed some.
        contracts: of all tables, upstream first.
        on_step: is told of a table, the state of its step and how many more of its days are done.
    """

    def __init__(
        self,
        run: RunReport,
        reports: Mapping[str, TableOutcome],
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
        """Take note of one event.

        Args:
            event: of the run, in the order they were logged; the same one twice counts once.
            at: when it happened, in seconds of any clock; None: just now.
        """
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
                self._failed(event)

    def _sort(self, report: TableOutcome, name: str, day: date) -> None:
        # A later run of the same backfill may have built what an earlier one could not.
        if day in self._done[name]:
            report.failed.pop(day, None)
            report.skipped.pop(day, None)
        elif reasons := self._bad[name].get(day):
            report.failed[day] = "; ".join(reasons)
        elif day not in report.published and day not in report.unchanged:
            # Else it was built by the run that this one goes on with: that crashed, and its finished steps stay.
            report.skipped[day] = self._why_skipped(name, day)

    def _warn(self) -> None:
        """Tell each check that warned once, with its first day and how many there are."""
        for (name, check), days in self._warned.items():
            first = min(days)
            when = f"{len(days)} days, first {first}: " if len(days) > 1 else f"{first} " if first else ""
            text, told = f"{check}: {when}{days[first]}", self._reports[name].warnings
            if text not in told:  # of the whole table, each run of a backfill finds the same
                told.append(text)
        self._warned.clear()

    def finish(self, instance: DagsterInstance) -> None:
        """Sort the days without a materialization into failed and skipped, once the run is over.

        Args:
            instance: where the run's events are stored.
        """
        if any(ended == "STEP_FAILURE" for ended in self._ended.values()):
            # What a failing step logged is stored, but not handed over while the run is on.
            for entry in instance.all_logs(self.run.run_id, of_type=_STORED):
                if entry.dagster_event is not None:
                    self.see(entry.dagster_event)
        self._warn()
        for name in (n for n in self._contracts if n in self.run.piece.tables):
            report = self._reports[name]
            work = self._work.get(name)
            # A step that materialized nothing told no duration: all its time counts as work, none as bookkeeping.
            report.work_seconds += report.seconds if work is None and name in self._began else work or 0.0
            for day in self.run.piece.days:
                self._sort(report, name, day)

    def _table(self, event: DagsterEvent) -> str:
        return table_of_step(event.step_key or "")

    def _materialized(self, event: DagsterEvent) -> None:
        materialization = event.step_materialization_data.materialization
        name = ".".join(materialization.asset_key.path)
        if name not in self._done or materialization.partition is None:
            return
        values = {key: value.value for key, value in materialization.metadata.items()}
        day, report = date.fromisoformat(materialization.partition), self._reports[name]
        # A step that was tried again says once more what it had published before.
        if day in self._done[name]:
            return
        into = report.unchanged if values.get("status") == "unchanged" else report.published
        into[day] = int(_number(values.get("dagster/partition_row_count")))
        report.aside[day] = int(_number(values.get("quarantined")))
        self._done[name].add(day)
        if also := str(values.get("also_written") or ""):
            report.also.append(also)
        # Each day tells the duration of the whole step: it counts once.
        self._work.setdefault(name, _number(values.get("duration_seconds")))
        self._on_step(name, "day", 1)

    def _checked(self, event: DagsterEvent) -> None:
        checked = event.asset_check_evaluation_data
        name, partition = ".".join(checked.asset_key.path), checked.partition
        if checked.passed or name not in self._bad:
            return
        if checked.severity.value == "WARN" and (partition is not None or checked.check_name in JUDGED_AFTER):
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
        if event.is_step_failure and (why := _broken_by(event, _file_of(name))) is not None:
            report.broken = why
            self._broke.add(name)
        self._on_step(name, "failed" if event.is_step_failure or name in self._broke else "end", 0)

    def _failed(self, event: DagsterEvent) -> None:
        """What broke the run as a whole, however many of its steps had ended; where a step failed, that one says it."""
        data = event.job_failure_data if event.event_specific_data else None
        if data is None:  # another process closed it, since its own was gone, and says so
            self.run.error = _first_line(event.message or "")
        elif data.error is not None and data.failure_reason is not RunFailureReason.STEP_FAILURE:
            self.run.error = _first_line(data.error.message)

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


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0.0


def _cause(error: Any, file: str) -> str:
    """The innermost error of a step failure, in one line, with the line of the table's file where it was met there."""
    if error is None:
        return "failed without a message"
    # Dagster and Spark wrap what went wrong in what it stopped; people look for the innermost.
    while error.cause is not None:
        error = error.cause
    lines = re.findall(rf'/{re.escape(file)}", line (\d+)', "".join(error.stack))
    return f"{file}:{lines[-1]}: {_first_line(error.message)}" if lines else _first_line(error.message)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")


def _file_of(name: str) -> str:
    """How the path of a table's file ends, in whichever package it is."""
    return f"{name.replace('.', '/')}.py"


def _broken_by(event: DagsterEvent, file: str) -> str | None:
    """What broke a step; None where it was interrupted, or failed for its days, whose checks say why."""
    data = event.step_failure_data
    told = data.user_failure_data
    kind = told.metadata.get("error") if told else None
    if data.error_source.name == "INTERRUPT" or (kind is not None and kind.value == "BadPartitionsError"):
        return None
    return (told.description if told else None) or _cause(data.error, file)
