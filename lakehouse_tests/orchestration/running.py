"""Real Dagster runs of real assets whose building is foretold, so that no engine is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date
from typing import Any

import pytest
from dagster import DagsterInstance, DagsterRun

from lakehouse.contracts import Table
from lakehouse.orchestration.instance import create_run, execute
from lakehouse.tables.audit import Outcome, audit
from lakehouse.tables.lake import Lake
from lakehouse.tables.metrics import DayMetrics
from lakehouse.tables.publish import FAILED, PUBLISHED, UNCHANGED, BuildResult, DayResult

TABLE = "bronze.events"
GOOD, BAD, ODD, SAME = "good", "bad", "odd", "same"
"""A day that passes, one that loses rows and is not published, one published with a warning, one left alone."""

Fates = Mapping[date, str]


def result(table: Table, fates: Fates) -> BuildResult:
    """A build with those ends, as the engine reports it; the checks are audited by the real rules."""
    made = BuildResult(table, 7, {})
    for day, fate in fates.items():
        figures = DayMetrics(day, rows=10, rows_in=12 if fate == BAD else 10)
        outcomes = [] if fate == SAME else audit(table, figures, {})
        if fate == ODD:
            outcomes = [o for o in outcomes if o.check != "volume"]
            outcomes.append(Outcome("volume", day, passed=False, message="10 rows are unusual", blocking=False))
        status = {SAME: UNCHANGED, BAD: FAILED}.get(fate, PUBLISHED)
        made.days[day] = DayResult(status, figures, outcomes)
    return made


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
        return self._build(table, list(days), **kwargs)

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
