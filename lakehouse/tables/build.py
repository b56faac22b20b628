"""Build some days of one table: plan, stage once, audit, publish. The only path from a transform to its readers."""

from __future__ import annotations

import logging
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from pyspark.sql import DataFrame

from lakehouse.contracts import Table
from lakehouse.sources.reader import Probe, probe, read_lines
from lakehouse.tables.audit import Outcome, audit
from lakehouse.tables.commit import Commit, Target, ensure_table, replace_days
from lakehouse.tables.failpoints import failpoint
from lakehouse.tables.lake import Lake
from lakehouse.tables.metrics import DayMetrics, measure
from lakehouse.tables.plan import Plan, day_transaction, make_plan, window
from lakehouse.tables.snapshot import Snapshot
from lakehouse.tables.stage import PROVENANCE, quarantine_schema, stage
from lakehouse.tables.staged import FAILED_RULES, QUARANTINED, VALID, StagedFile, read_staged
from lakehouse.tables.upsert import upsert_frame

log = logging.getLogger(__name__)

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
    """One build: the table's version afterwards, what it read, a result by asked day, and seconds by phase."""

    table: Table
    version: int
    inputs: Mapping[str, int]
    days: dict[date, DayResult] = field(default_factory=dict)
    also_replaced: Sequence[date] = ()
    seconds: dict[str, float] = field(default_factory=dict)

    def with_status(self, status: str) -> list[date]:
        """The asked days of that status, in order."""
        return sorted(day for day, result in self.days.items() if result.status == status)


def build(lake: Lake, table: Table, days: Sequence[date], *, run_id: str, force: bool = False) -> BuildResult:
    """Compute and publish some days of a table.

    A day whose inputs and code are what they were when it was published is left alone, unless forced. Days that fail
    their audit are not published; the others are, in one commit. Quarantined rows are committed first, so that a crash
    in between loses nothing: the day then still lacks its fingerprint and is built again.

    Args:
        lake: where the tables are and what computes them.
        table: what to build.
        days: the daily partitions, in any order.
        run_id: recorded in the commit.
        force: build unchanged days too.

    Raises:
        PublishConflictError: another run published one of the days meanwhile.
        SchemaMismatchError, StagedFileError, UnsupportedTableError: nothing was published.
    """
    clock = _Clock()
    target, side = _targets(lake, table)
    base = ensure_table(target)
    side_base = ensure_table(side) if side else None
    plan = make_plan(lake, table, days)
    result = BuildResult(table, base.version, plan.versions, seconds=clock.seconds)
    todo = [day for day in sorted(set(days)) if force or not _is_current(day, plan, base, side_base)]
    _report_unchanged(result, table, set(days) - set(todo), base, side_base)
    clock.lap("plan")
    if not todo:
        return result

    stage_folder = target.path / "staged" / uuid.uuid4().hex
    try:
        replaced, probes = todo, []
        if plan.has_input & set(todo) or table.upsert:
            frame, replaced, probes = _frame(lake, plan, base, todo, run_id)
            failpoint("before-stage")
            stage(table, frame, stage_folder)
            failpoint("after-stage")
        clock.lap("stage")
        files = read_staged(stage_folder, table.partition_by) if stage_folder.exists() else []
        metrics = measure(table, files, todo)
        _count_in(plan, metrics, probes)
        good = _audit(result, table, metrics, todo, base, files)
        clock.lap("audit")
        if table.upsert and len(good) < len(todo):
            good = []  # keys move between days: all of them or none
            for day, each in list(result.days.items()):
                if each.status == PUBLISHED:
                    result.days[day] = DayResult(FAILED, each.metrics, [*each.outcomes, _held_back(day)])
        _publish(result, table, target, side, base, side_base, files, plan, good, replaced, todo, run_id)
        clock.lap("commit")
    finally:
        _clear(stage_folder, keep_valid=True)
    return result


def _targets(lake: Lake, table: Table) -> tuple[Target, Target | None]:
    extras = [FAILED_RULES, *PROVENANCE.names]
    target = Target(
        lake.path(table.id),
        table.schema,
        table.partition_by,
        required=table.required,
        pii=table.pii,
        extra_columns=extras,
        description=table.description,
    )
    if not table.rules:
        return target, None
    side = Target(
        lake.path(table.quarantine_id),
        quarantine_schema(table),
        table.partition_by,
        pii=(*table.pii, "_raw", "_error"),
        description=f"Rows of {table.id} that broke a row rule",
    )
    return target, side


def _is_current(day: date, plan: Plan, base: Snapshot, side: Snapshot | None) -> bool:
    wanted, name = plan.fingerprints[day], day_transaction(day)
    return base.transaction(name) == wanted and (side is None or side.transaction(name) == wanted)


def _report_unchanged(
    result: BuildResult, table: Table, days: set[date], base: Snapshot, side: Snapshot | None
) -> None:
    rows = base.rows_by_day(table.day_column)
    quarantined = side.rows_by_day(table.day_column) if side else {}
    for day in days:
        figures = DayMetrics(day, rows=rows.get(day, 0), quarantined=quarantined.get(day, 0))
        result.days[day] = DayResult(UNCHANGED, figures)


def _frame(
    lake: Lake, plan: Plan, base: Snapshot, todo: list[date], run_id: str
) -> tuple[DataFrame, list[date], list[Probe]]:
    table = plan.table
    if table.landing is not None:
        probes = probe([file for day in todo for file in plan.landed[day]], table.landing)
        (parameter,) = table.inputs
        lines = read_lines(lake.spark, probes, table.landing, lake.settings.root, run_id, table.code_version)
        return table.transform(**{parameter: lines}), todo, probes
    if table.upsert:
        return *upsert_frame(lake, plan, base, todo), []
    frames = {}
    for name, each in table.upstream.items():
        wanted = sorted({read for day in todo for read in window(each, day)})
        frames[name] = lake.read(lake.table(each.table), wanted, plan.inputs[name].version)
    frame = table.transform(**frames)
    if any(each.days_before for each in table.upstream.values()):
        frame = frame.where(frame[table.day_column].isin(todo))  # a window also yields days beyond those asked for
    return frame, todo, []


def _count_in(plan: Plan, metrics: dict[date, DayMetrics], probes: Sequence[Probe]) -> None:
    if plan.table.landing is not None:
        for each in metrics.values():
            each.rows_in = 0
        for found in probes:
            each = metrics[found.file.arrival_date]
            each.rows_in = (each.rows_in or 0) + (1 if found.problem else found.lines)
            if found.problem:
                each.problems.append(found.problem)
    elif plan.rows_in is not None:
        for day, each in metrics.items():
            each.rows_in = plan.rows_in.get(day, 0)


def _audit(
    result: BuildResult,
    table: Table,
    metrics: dict[date, DayMetrics],
    todo: list[date],
    base: Snapshot,
    files: Sequence[StagedFile],
) -> list[date]:
    history = base.rows_by_day(table.day_column)
    samples = {f.partition[table.day_column]: f.path for f in reversed(files) if f.route == VALID}
    for day in todo:
        history.pop(day, None)  # a day that is built again is judged by the new figures of the days before it
    good: list[date] = []
    for day in todo:
        outcomes = audit(table, metrics[day], history)
        passed = all(o.passed or not o.blocking for o in outcomes)
        if passed:
            good.append(day)
            history[day] = metrics[day].rows
        status = PUBLISHED if passed else FAILED
        result.days[day] = DayResult(status, metrics[day], outcomes, samples.get(day.isoformat()))
    return good


def _held_back(day: date) -> Outcome:
    return Outcome("row_rules", day, False, "held back: another day of the same keys failed its audit")


def _publish(
    result: BuildResult,
    table: Table,
    target: Target,
    side: Target | None,
    base: Snapshot,
    side_base: Snapshot | None,
    files: Sequence[StagedFile],
    plan: Plan,
    good: list[date],
    replaced: list[date],
    todo: list[date],
    run_id: str,
) -> None:
    prints = {day_transaction(day): plan.fingerprints[day] for day in good}
    facts = {
        "lakehouse.run_id": run_id,
        "lakehouse.code_version": table.code_version,
        "lakehouse.inputs": plan.versions,
        "lakehouse.metrics": {day.isoformat(): result.days[day].metrics.as_json() for day in good},
    }
    if side is not None and side_base is not None:
        moved = [_moved(f, target, side) for f in files if f.route == QUARANTINED]
        failpoint("before-quarantine-commit")
        # Failed days leave their quarantined rows too, without a fingerprint: that is where their reasons are read.
        replace_days(side, side_base, moved, todo, Commit(prints, {**facts, "lakehouse.metrics": {}}))
        failpoint("after-quarantine-commit")
    if not good:
        return
    outside = sorted(set(replaced) - set(todo))
    wanted = {day.isoformat() for day in [*good, *outside]}
    valid = [f for f in files if f.route == VALID and f.partition[table.day_column] in wanted]
    failpoint("before-commit")
    result.version = replace_days(target, base, valid, [*good, *outside], Commit(prints, facts))
    result.also_replaced = outside
    failpoint("after-commit")


def _moved(file: StagedFile, target: Target, side: Target) -> StagedFile:
    """The quarantine file inside its own table's folder, where that table's vacuum finds it."""
    path = side.path / file.path.relative_to(target.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    file.path.rename(path)
    return StagedFile(**{**file.__dict__, "path": path})


def _clear(folder: Path, keep_valid: bool) -> None:
    """Remove what is not committed: duplicates, moved quarantine and Spark's markers.

    Files of days that failed stay until the next vacuum, like those of a crashed run: they are never visible.
    """
    if not folder.exists():
        return
    for child in folder.iterdir():
        if child.name != f"route={VALID}" or not keep_valid:
            shutil.rmtree(child, ignore_errors=True) if child.is_dir() else child.unlink(missing_ok=True)


class _Clock:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._last
        self._last = now
