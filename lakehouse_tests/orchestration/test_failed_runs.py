"""The picture of a failed run: the table that refused a day is red and says why; what reads its good days goes on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Any

import pytest
from dagster import DagsterEvent, DagsterInstance, DagsterRun, PathMetadataValue
from dagster._core.execution.plan.state import KnownExecutionState  # what "Retry from failure" asks (dagster 1.13)

from lakehouse.build.result import BuildResult
from lakehouse.contracts import Table
from lakehouse.orchestration.ended import unfinished_days
from lakehouse.orchestration.metadata import asset_key
from lakehouse.runs.executing import create_run, execute
from lakehouse.sample.events import land_events
from lakehouse.settings import Settings
from lakehouse_tests.orchestration.running import BAD, GOOD, Foretold, result

pytestmark = pytest.mark.slow

BRONZE, SILVER, ORDERS, GOLD = "bronze.events", "silver.transactions", "silver.orders", "gold.daily_revenue"
CHAIN = [BRONZE, SILVER, ORDERS, GOLD]
GOOD_DAY, BAD_DAY = date(2011, 3, 1), date(2011, 3, 2)


class Played:
    """A run of several tables, one of which refuses a day."""

    def __init__(self, runs: Foretold, culprit: str, days: list[date]) -> None:
        def build(table: Table, asked: Iterable[date], **_: Any) -> BuildResult:
            return result(table, {d: BAD if (table.id, d) == (culprit, BAD_DAY) else GOOD for d in asked})

        runs._build = build
        self.instance: DagsterInstance = runs.instance
        self.run: DagsterRun = create_run(self.instance, CHAIN, days[0], days[-1])
        for _ in execute(self.instance, self.run):
            pass
        logs = self.instance.all_logs(self.run.run_id)
        self.events: list[DagsterEvent] = [each.dagster_event for each in logs if each.dagster_event]

    def steps(self, kind: str) -> list[str]:
        """The tables whose steps ended so."""
        keys = {event.step_key for event in self.events if event.event_type_value == kind}
        return [name for name in CHAIN if name.replace(".", "__") in keys]

    def stored(self) -> DagsterRun:
        """The run as it ended."""
        stored = self.instance.get_run_by_id(self.run.run_id)
        assert stored is not None
        return stored

    def status(self) -> str:
        return self.stored().status.value

    def materialized(self, table: str) -> set[str]:
        events = [e for e in self.events if e.event_type_value == "ASSET_MATERIALIZATION"]
        return {str(e.partition) for e in events if e.asset_key and ".".join(e.asset_key.path) == table}

    def failures(self) -> dict[str, str]:
        """By table, what its failed step says."""
        failed = [e for e in self.events if e.event_type_value == "STEP_FAILURE"]
        told = {str(e.step_key).replace("__", ".", 1): e.step_failure_data.user_failure_data for e in failed}
        return {name: each.description or "" for name, each in told.items() if each is not None}

    def observations(self) -> list[Any]:
        found = [e for e in self.events if e.event_type_value == "ASSET_OBSERVATION"]
        return [each.asset_observation_data.asset_observation for each in found]


@pytest.mark.parametrize("culprit", [BRONZE, SILVER])
def test_the_step_that_refused_a_day_is_red_and_the_good_days_flow_on(runs: Foretold, culprit: str) -> None:
    """Without it, the last tables of the run would be red, and the table at fault green."""
    played = Played(runs, culprit, [GOOD_DAY, BAD_DAY])
    assert played.status() == "FAILURE"
    assert played.steps("STEP_FAILURE") == [culprit]
    assert played.steps("STEP_SUCCESS") == [name for name in CHAIN if name != culprit]
    for name in CHAIN[CHAIN.index(culprit) :]:
        assert played.materialized(name) == {str(GOOD_DAY)}, name
    (text,) = played.failures().values()
    assert text.split("\n")[1].strip().startswith(f"{culprit} {BAD_DAY}: row_conservation:")
    behind = CHAIN[CHAIN.index(culprit) :]
    assert unfinished_days(played.instance, CHAIN) == {name: {BAD_DAY} for name in behind}


def test_a_run_without_a_good_day_ends_at_the_table_at_fault(runs: Foretold) -> None:
    """Without it, tables that had nothing to build would be red beside the one that is to blame."""
    played = Played(runs, SILVER, [BAD_DAY])
    assert (played.status(), played.steps("STEP_FAILURE")) == ("FAILURE", [SILVER])
    assert played.steps("STEP_SUCCESS") == [BRONZE]
    assert played.steps("STEP_START") == [BRONZE, SILVER]


def test_a_day_that_was_refused_says_why_on_its_own_partition(runs: Foretold, settings: Settings) -> None:
    """Without it, the red partition of the asset would give no reason, no file and no next step."""
    land_events(settings.root, GOOD_DAY, 2, rows=5, seed=1)
    (seen,) = Played(runs, BRONZE, [GOOD_DAY, BAD_DAY]).observations()
    assert (seen.asset_key, seen.partition) == (asset_key(BRONZE), str(BAD_DAY))
    shown = {name: value.value for name, value in seen.metadata.items()}
    assert (shown["status"], shown["failed"], shown["rows"], shown["rows_in"]) == (
        "failed",
        "row_conservation",
        10,
        12,
    )
    assert "12 rows came in but 10 went out" in shown["why"]
    assert "lakehouse backfill --failed-only" in shown["next"]
    assert isinstance(seen.metadata["reads/landing"], PathMetadataValue)
    assert (settings.root / shown["reads/landing"]).exists()


def test_a_retry_from_failure_takes_the_table_at_fault_and_all_that_reads_it(runs: Foretold) -> None:
    """Though these were green: without it, a retry that ends green would leave the days held back below unbuilt."""
    played = Played(runs, SILVER, [GOOD_DAY, BAD_DAY])
    assert played.steps("STEP_SUCCESS") == [BRONZE, ORDERS, GOLD]
    steps, _ = KnownExecutionState.build_resume_retry_reexecution(played.instance, played.stored())
    again = [name for name in CHAIN if name.replace(".", "__") in steps]
    assert again == [SILVER, ORDERS, GOLD]
    runs._build = lambda table, days, **_: result(table, dict.fromkeys(days, GOOD))
    for _ in execute(played.instance, create_run(played.instance, again, GOOD_DAY, BAD_DAY)):
        pass
    assert unfinished_days(played.instance, CHAIN) == {}
