"""Publish = write, audit, publish: rows are staged once, judged by their figures, and made visible in one commit."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from lakehouse.build.laps import Stopwatch
from lakehouse.build.late import rules_for
from lakehouse.build.late_only import late_only
from lakehouse.build.slices import FanOut, Slices
from lakehouse.build.space import said_when_full
from lakehouse.build.stage import stage
from lakehouse.checks.anomalies import Figures
from lakehouse.checks.audit import audit
from lakehouse.checks.clocks import ProducerDay, note_clocks
from lakehouse.checks.drift import note_fields
from lakehouse.checks.metrics import DayMetrics, Outcome, failed_checks, judged_days, measure
from lakehouse.contracts import Table
from lakehouse.days import days_between
from lakehouse.delta.commit import ensure_table, exchange_files, replace_days
from lakehouse.delta.failpoints import failpoint
from lakehouse.delta.marks import day_transaction
from lakehouse.delta.pairing import QUARANTINE_VERSION
from lakehouse.delta.snapshot import WITHDRAWN, open_snapshot
from lakehouse.delta.staged import QUARANTINED, VALID, StagedFile, clear, moved, read_staged
from lakehouse.delta.target import Commit
from lakehouse.errors import StagedFileError
from lakehouse.read.content import contents
from lakehouse.read.lake import Lake, table_path
from lakehouse.read.targets import targets
from lakehouse.records.failures import Depth
from lakehouse.records.history import JUDGE, JUDGED, DayRecord, latest_records, project_history, records

PUBLISHED, UNCHANGED, FAILED = "published", "unchanged", "failed"


@dataclass(frozen=True)
class DayResult:
    """What happened to one day: its status, its figures, every check's outcome, and a sample file to preview."""

    status: str
    metrics: DayMetrics
    outcomes: Sequence[Outcome] = ()
    sample: Path | None = None

    @property
    def reason(self) -> str:
        """The blocking checks that failed, in words; empty where none did."""
        return "; ".join(f"{o.check}: {o.message}" for o in self.outcomes if o.blocking and not o.passed)


@dataclass
class BuildResult:
    """One build: the table's version afterwards, what it read, a result by asked day, and seconds by phase.

    `quarantine` is the whole table's after the build, None where the table has no row rules; `producers` are those of
    the asked days, of a table with a clock.
    Of a batch that was taken from a database, `facts` are its figures to show, and `outcomes` its checks.
    """

    table: Table
    version: int
    inputs: Mapping[str, int]
    days: dict[date, DayResult] = field(default_factory=dict)
    also_replaced: Sequence[date] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    quarantine: Depth | None = None
    producers: Sequence[ProducerDay] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    outcomes: Sequence[Outcome] = ()

    def with_status(self, status: str) -> list[date]:
        """The asked days of that status, in order."""
        return sorted(day for day, result in self.days.items() if result.status == status)


@dataclass(frozen=True)
class Job:
    """The rows to publish and what is known of them.

    Attributes:
        frame: the transform's rows; None where there is no input and so no row, or where they come in slices.
        days: the days asked for, in order.
        also: further days whose full content the frame holds (an upsert's).
        fingerprints: by day, the number that makes a repeat a no-op; a day without one is always built again.
        rows_in: by day, rows counted at the input, where rows are conserved.
        problems: by day, why its source could not be read.
        lines: by day and producer, lines of landed files.
        accepted: by day, the last arrival date whose late rows were accepted.
        fan_out: the transform's rows in slices.
    """

    frame: DataFrame | None
    days: Sequence[date]
    also: Sequence[date] = ()
    fingerprints: Mapping[date, int] = field(default_factory=dict)
    rows_in: Mapping[date, int] | None = None
    problems: Mapping[date, Sequence[str]] = field(default_factory=dict)
    lines: Mapping[date, Mapping[str, int]] = field(default_factory=dict)
    accepted: Mapping[date, date] = field(default_factory=dict)
    fan_out: FanOut | None = None


class Publisher:
    """One table at the version a build starts from; commits go on that version or not at all."""

    def __init__(self, lake: Lake, table: Table) -> None:
        self.table = table
        self.target, self._side = targets(lake, table)
        self.base = ensure_table(self.target)
        self.side_base = ensure_table(self._side) if self._side else None
        self._lake = lake
        self._root = lake.settings.root
        self._facts = lake.facts
        self._kept: dict[str, dict[date, DayRecord]] = {}  # figures of inputs

    def is_current(self, day: date, fingerprint: int) -> bool:
        """Whether the day was published, quarantine included, from these very inputs and code."""
        name = day_transaction(day)
        return self.base.transaction(name) == fingerprint and (
            self.side_base is None or self.side_base.transaction(name) == fingerprint
        )

    def publish(self, job: Job, result: BuildResult, run_id: str) -> None:
        """Stage, audit and commit; results by day and seconds by phase are added to `result`.

        Days that fail their audit are not published; the others are, in one commit. Quarantined rows are committed
        first, so that a crash in between loses nothing: the day still lacks its fingerprint and is built again.

        Raises:
            DiskFullError: there was no space; the last good data stays visible.
        """
        with said_when_full(self.table.id, self.target.path):
            self._publish(job, result, run_id)

    def _publish(self, job: Job, result: BuildResult, run_id: str) -> None:
        clock = Stopwatch(result.seconds)
        with ExitStack() as stack:
            files: list[StagedFile] = []
            if job.frame is not None or job.fan_out is not None:
                failpoint(self.table.id, "before-stage")
                files = self._staged(job, result, stack)
                failpoint(self.table.id, "after-stage")
                clock.lap("stage")
                self._refuse_strays(job, files)
            metrics = measure(self.table, files, [*job.days, *job.also])
            note_fields(self.table, self.base, files, metrics)
            note_clocks(self._lake, self.table, files, job.lines, metrics)
            good = self._audit(job, files, metrics, result)
            clock.lap("audit")
            self._commit(job, files, good, metrics, result, run_id)
            clock.lap("commit")

    def _staged(self, job: Job, result: BuildResult, stack: ExitStack) -> list[StagedFile]:
        """The rows on disk; the stack clears away what of it is not committed."""
        rules = rules_for(self.table, job.accepted)
        if job.fan_out is not None:
            live = {file.first_name for file in self.base.files}
            slices = stack.enter_context(Slices(self.table, self.target.path, job.fan_out, live))
            files = slices.stage(rules)
            result.facts |= slices.facts
            return files
        assert job.frame is not None
        folder = self.target.path / "staged" / uuid.uuid4().hex
        stack.callback(clear, folder)
        stage(self.table, job.frame, folder, rules)
        return read_staged(folder, self.table.partition_by)

    def _audit(
        self, job: Job, files: Sequence[StagedFile], metrics: Mapping[date, DayMetrics], result: BuildResult
    ) -> list[date]:
        for day in job.days:
            metrics[day].rows_in = job.rows_in.get(day, 0) if job.rows_in is not None else None
            metrics[day].problems.extend(job.problems.get(day, ()))
        samples = {f.partition[self.table.day_column]: f.path for f in reversed(files) if f.route == VALID}
        history = self.base.rows_by_day(self.table.day_column)
        figures = self._figures_before(job)
        judged = self.table.volume is not None or self.table.anomalies is not None
        stragglers = late_only(self._lake, self.table) if judged else set()
        for day in (*job.days, *job.also, *stragglers):
            history.pop(day, None)  # a day that is built again is judged by the new figures of the days before it
            figures.pop(day, None)
        failed: list[Outcome] = []
        good: list[date] = []
        for day in sorted([*job.days, *job.also]):
            outcomes = audit(self.table, metrics[day], history, figures, self._sums(job, result, day))
            metrics[day].checks = failed_checks(outcomes)
            broken = [o for o in outcomes if o.blocking and not o.passed]
            failed += broken
            if not broken and day not in stragglers:
                history[day] = metrics[day].rows
                figures[day] = metrics[day].as_json()
            if day in job.days:
                good += [day] * (not broken)
                status = FAILED if broken else PUBLISHED
                result.days[day] = DayResult(status, metrics[day], outcomes, samples.get(day.isoformat()))
        if self.table.upsert and failed:
            # Keys move between days: published in part, one could be in two days or in none.
            for day in good:
                held = replace(failed[0], day=day, message=f"held back with {failed[0].day}: {failed[0].message}")
                metrics[day].checks = failed_checks([held])
                result.days[day] = replace(result.days[day], status=FAILED, outcomes=[held])
            return []
        return good

    def _figures_before(self, job: Job) -> dict[date, Figures]:
        """Kept figures of the days that baselines may look at, without those that are built again."""
        if self.table.anomalies is None:
            return {}
        built = {*job.days, *job.also}
        first = min(built) - timedelta(weeks=2 * self.table.anomalies.history)
        found = latest_records(self._root, self.table.id, days_between(first, max(built)))
        return {day: record.figures for day, record in found.items() if day not in built}

    def _sums(self, job: Job, result: BuildResult, day: date) -> dict[str, Decimal]:
        """What the day's columns must add up to, from the figures kept of the inputs at the versions read."""
        sums = {}
        for own, (source, column) in self.table.reconciles.items():
            if source not in self._kept:
                kept: dict[date, DayRecord] = {}
                for each in records(self._root, source, {*job.days, *job.also}):
                    if each.version <= result.inputs.get(source, -1):
                        kept[each.day] = each
                self._kept[source] = kept
            record = self._kept[source].get(day)
            total = record.total(column) if record else None
            if total is not None:
                sums[own] = total
        return sums

    def _refuse_strays(self, job: Job, files: Sequence[StagedFile]) -> None:
        """A row of a day that was not asked for would be dropped without a word: it is in nobody's count."""
        column = self.table.day_column
        expected = {day.isoformat() for day in [*job.days, *job.also]}
        strays: Counter[str] = Counter()
        for file in files:
            if file.partition[column] not in expected:
                strays[str(file.partition[column])] += file.rows
        if strays:
            listed = ", ".join(f"{day} ({rows})" for day, rows in sorted(strays.items())[:5])
            raise StagedFileError(
                f"The transform of {self.table.id} gave {sum(strays.values())} row(s) whose {column} is not among the "
                f"{len(expected)} day(s) being built: {listed}. Nothing was published. Each row must come out in the "
                "day it is read for; bring other days in as inputs (days_before) or leave the rows out."
            )

    def _commit(
        self,
        job: Job,
        files: Sequence[StagedFile],
        good: list[date],
        metrics: Mapping[date, DayMetrics],
        result: BuildResult,
        run_id: str,
    ) -> None:
        prints = {day_transaction(day): job.fingerprints[day] for day in good if day in job.fingerprints}
        facts: dict[str, Any] = {
            **self._facts,
            "lakehouse.run_id": run_id,
            "lakehouse.code_version": self.table.code_version,
            "lakehouse.inputs": dict(result.inputs),
        }
        if self._side is not None and self.side_base is not None:
            # Failed days leave their quarantined rows too: there their reasons can be read. Their fingerprints say that
            # these rows are not the published ones', so that the day is built again even if its inputs change back.
            tried = {day_transaction(day): job.fingerprints[day] for day in job.days if day in job.fingerprints}
            replaced = [*job.days, *(job.also if good else ())]
            # A forced build may have the fingerprints of the published rows, which then say nothing: a failed day keeps
            # none beside its rows, and a good one none in the table until its new rows are there, so that a kill shows.
            same = {name for name, mark in tried.items() if self.base.transaction(name) == mark}
            tried |= dict.fromkeys(same - prints.keys(), WITHDRAWN)
            if forced := dict.fromkeys(sorted(same & prints.keys()), WITHDRAWN):
                watched = None if self.table.upsert else job.days
                begun = Commit(forced, {**facts, "lakehouse.operation": "force"})
                version = exchange_files(self.target, self.base, (), (), begun, days=watched)
                self.base = open_snapshot(self.target.path, version)  # and not what a newer publish has made of it
            known = {day.isoformat() for day in replaced}
            # Inside its own table's folder, where that table's vacuum finds it. Slices stay whole for the next attempt.
            folder = self._side.path / "staged" / uuid.uuid4().hex
            quarantined = [
                moved(f, folder, keep=job.fan_out is not None)
                for f in files
                if f.route == QUARANTINED and f.partition[self.table.day_column] in known
            ]
            failpoint(self.table.id, "before-quarantine-commit")
            aside = replace_days(
                self._side, self.side_base, quarantined, replaced, Commit(tried, facts), read_whole=self.table.upsert
            )
            facts[QUARANTINE_VERSION] = str(aside)
            failpoint(self.table.id, "after-quarantine-commit")
        # A candidate, which is built beside the table, has no part in its history.
        live = self.target.path == table_path(self._root, self.table.id)
        refused = [metrics[day] for day in result.with_status(FAILED)] if live else []
        if judged := judged_days(refused, job.fingerprints):
            facts[JUDGED] = judged
        if not good:
            if judged:
                told = Commit(metadata={**facts, "lakehouse.operation": JUDGE})
                result.version = exchange_files(self.target, self.base, (), (), told, days=[])
                project_history(self._root, open_snapshot(self.target.path), self.table.id)
            return
        days = [*good, *job.also]
        wanted = {day.isoformat() for day in days}
        valid = [f for f in files if f.route == VALID and f.partition[self.table.day_column] in wanted]
        seconds = round(sum(result.seconds.values()), 3)
        figures = {day.isoformat(): {**metrics[day].as_json(), "seconds": seconds} for day in days}
        failpoint(self.table.id, "before-commit")
        commit = Commit(prints | contents(self.table, valid, self.base), {**facts, "lakehouse.metrics": figures})
        result.version = replace_days(self.target, self.base, valid, days, commit, read_whole=self.table.upsert)
        result.also_replaced = list(job.also)
        failpoint(self.table.id, "after-commit")
        if live:
            project_history(self._root, open_snapshot(self.target.path), self.table.id)
