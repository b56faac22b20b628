"""Real Dagster runs of real assets whose building is foretold, so that no engine is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date
from typing import Any

import pytest
from dagster import DagsterInstance, DagsterRun

from lakehouse.build.plan import make_plan
from lakehouse.build.result import FAILED, PUBLISHED, UNCHANGED, BuildResult, DayResult
from lakehouse.catalog import tables
from lakehouse.checks.audit import Outcome, audit_day
from lakehouse.checks.metrics import DayMetrics, failed_checks, judged_days
from lakehouse.contracts import Table
from lakehouse.delta.commit import ensure_table, exchange_files, replace_days
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.target import Commit
from lakehouse.delta.transactions import day_transaction
from lakehouse.read.lake import Lake, PinnedLake
from lakehouse.read.targets import targets
from lakehouse.records.history import CHECKS_ONLY, UNPUBLISHED_CHECKS, project_history
from lakehouse.runs.executing import create_run, execute
from lakehouse.settings import get_settings

TABLE = "bronze.events"
GOOD, BAD, ODD, SAME = "good", "bad", "odd", "same"
"""A day that passes, one that loses rows and is not published, one published with a warning, one left alone."""

Fates = Mapping[date, str]


def committed(made: BuildResult, run_id: str, *, force: bool = False) -> BuildResult:
    """The same build, told by the table's log as a real one is; the rows themselves are left out.

    A day that was to be left alone is, and so is one that a build would find as it was published.
    """
    lake = PinnedLake(get_settings(), tables())
    table = made.table
    target, _ = targets(lake, table)
    base = ensure_table(target)
    marks = make_plan(lake, table, sorted(made.days)).fingerprints
    prints: dict[str, int] = {}
    figures: dict[str, Any] = {}
    for day, each in made.days.items():
        name = day_transaction(day)
        if each.status == UNCHANGED and base.transaction(name) is not None and not force:
            continue
        each.metrics.checks = failed_checks(each.outcomes)
        if each.status != FAILED:
            prints[name], figures[str(day)] = marks[day], each.metrics.as_json()
    facts = {"lakehouse.run_id": run_id, "lakehouse.code_version": table.code_version}
    if judged := judged_days([made.days[day].metrics for day in made.with_status(FAILED)], marks):
        facts[UNPUBLISHED_CHECKS] = judged  # type: ignore[assignment]
    if figures:
        facts["lakehouse.metrics"] = figures  # type: ignore[assignment]
        replace_days(target, base, [], sorted(map(date.fromisoformat, figures)), Commit(prints, facts))
    elif judged:
        exchange_files(target, base, (), (), Commit({}, {**facts, "lakehouse.operation": CHECKS_ONLY}), days=[])
    project_history(lake.settings.root, open_snapshot(target.path), table.id)
    return made


def result(table: Table, fates: Fates) -> BuildResult:
    """A build with those ends, as the engine reports it; the checks are audited by the real rules."""
    days: dict[date, DayResult] = {}
    for day, fate in fates.items():
        figures = DayMetrics(day, rows=10, rows_in=12 if fate == BAD else 10)
        outcomes = [] if fate == SAME else audit_day(table, figures, {})
        if fate == ODD:
            outcomes = [o for o in outcomes if o.check != "volume"]
            outcomes.append(Outcome("volume", day, passed=False, message="10 rows are unusual", blocking=False))
        status = {SAME: UNCHANGED, BAD: FAILED}.get(fate, PUBLISHED)
        days[day] = DayResult(status, figures, outcomes)
    return BuildResult(table, 7, {}, days)


class Foretold:
    """Runs of one table in a real instance."""

    def __init__(self, instance: DagsterInstance, patch: pytest.MonkeyPatch) -> None:
        self.instance = instance
        self._build: Callable[..., BuildResult] | None = None
        patch.setattr("lakehouse.orchestration.assets.build", self._called)
        self.calls = 0

    def _called(self, _lake: Lake, table: Table, days: Iterable[date], **kwargs: Any) -> BuildResult:
        self.calls += 1
        assert self._build is not None
        made = self._build(table, list(days), **kwargs)
        return committed(made, kwargs["run_id"], force=kwargs["force"])

    def run(self, fates: Fates, table: str = TABLE) -> DagsterRun:
        """Execute a run over these days with these ends."""
        return self.run_with(lambda made, days, **_: result(made, {d: fates[d] for d in days}), list(fates), table)

    def run_with(self, build: Callable[..., BuildResult], days: list[date], table: str = TABLE) -> DagsterRun:
        """Execute a run whose building is this function."""
        self._build = build
        run = create_run(self.instance, [table], min(days), max(days))
        for _ in execute(self.instance, run):
            pass
        found = self.instance.get_run_by_id(run.run_id)
        assert found is not None
        return found
