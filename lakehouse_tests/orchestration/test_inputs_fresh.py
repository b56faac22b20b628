"""Days that hold the last good data say so, and programs outside can ask."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetCheckEvaluation, AssetCheckKey, DagsterInstance
from typer.testing import CliRunner, Result

from lakehouse import catalog
from lakehouse.build.ready import MISSING, READY, STALE, readiness
from lakehouse.build.result import BuildResult
from lakehouse.build.stale import all_waiting_days, waiting_days
from lakehouse.build.verdicts import INPUTS_FRESH
from lakehouse.cli import app
from lakehouse.contracts import Table
from lakehouse.orchestration import assets
from lakehouse.orchestration.checks import align_inputs
from lakehouse.orchestration.metadata import asset_key
from lakehouse.settings import Settings
from lakehouse_tests.fixtures.making import Clock
from lakehouse_tests.orchestration.running import GOOD, Foretold, result
from lakehouse_tests.orchestration.test_automation import BRONZE, DAYS, GOLD, SILVER, World
from lakehouse_tests.orchestration.test_automation import world as _world

pytestmark = pytest.mark.slow

world = _world  # a fixture


def test_a_day_is_ready_when_all_that_it_is_made_from_is(world: World) -> None:
    """Without it, a report would start on numbers whose correction has already landed."""

    def states() -> list[str]:
        lake = world.lake()
        return [readiness(lake, lake.table(name), DAYS[1], datetime.now(UTC)).status for name in (BRONZE, SILVER, GOLD)]

    assert states() == [MISSING, MISSING, MISSING]
    world.land(DAYS[0])
    world.land(DAYS[1])
    world.settle()
    assert states() == [READY, READY, READY]
    world.land(DAYS[0])  # the window of the next day reads it, through silver
    assert states() == [READY, READY, STALE]
    lake = world.lake()
    found = readiness(lake, lake.table(GOLD), DAYS[1], datetime.now(UTC))
    assert found.reason == f"{BRONZE} {DAYS[0]} is not published from its newest input"
    assert (found.rows, found.version) == (1, lake.snapshot(GOLD).version)
    world.failing.add((SILVER, DAYS[0]))
    world.settle()
    assert states() == [READY, READY, STALE]
    lake = world.lake()
    assert waiting_days(lake, lake.table(GOLD), DAYS[:3]) == dict.fromkeys(
        DAYS[:2], f"{SILVER} {DAYS[0]} is not published from its newest input"
    )
    world.failing.clear()
    for name in (SILVER, GOLD):
        for day in DAYS[:2]:
            world.publish(name, day)
    assert states() == [READY, READY, READY]


def test_days_before_the_first_are_not_waited_for(world: World) -> None:
    """Without it, the first window of all would be stale for ever."""
    world.land(DAYS[4])
    world.settle()
    lake = world.lake()
    assert waiting_days(lake, lake.table(GOLD), DAYS[4:6]) == {}


def test_an_input_that_was_never_built_is_waited_for(world: World) -> None:
    """Without it, a table built alone on a new lake would be published empty and shown as good."""
    world.land(DAYS[1])
    lake = world.lake()
    for name in (SILVER, GOLD):
        wanted = {DAYS[1]: f"{BRONZE} {DAYS[1]} is not published from its newest input"}
        assert waiting_days(lake, lake.table(name), DAYS[:2]) == wanted
        assert {day: all_waiting_days(lake)[name].get(day) for day in wanted} == wanted


@pytest.fixture
def ready(world: World, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command on the played lake."""
    monkeypatch.setattr(catalog, "tables", cache(lambda: world.tables))
    monkeypatch.setenv("LAKEHOUSE_ROOT", str(world.root))
    from lakehouse.settings import get_settings

    get_settings.cache_clear()
    return lambda *arguments: CliRunner().invoke(app, ["ready", *map(str, arguments)])


def test_the_exit_code_tells(world: World, ready: Callable[..., Result]) -> None:
    """Without it, a shell could not wait for a day."""
    assert ready(GOLD, DAYS[0]).exit_code == 1
    assert ready(GOLD, DAYS[0], "--stale-ok").exit_code == 1
    assert ready("gold.windows", DAYS[0]).exit_code == 2
    world.land(DAYS[0])
    world.settle()
    done = ready(GOLD, DAYS[0], "--json")
    assert (done.exit_code, json.loads(done.stdout)["status"]) == (0, "ready")
    world.land(DAYS[0])
    done = ready(GOLD, DAYS[0])
    assert done.exit_code == 1
    assert f"{BRONZE} {DAYS[0]} is not published" in done.stdout
    assert re.search(r"T\d\d:\d\d:\d\dZ", done.stdout), "in full seconds, as `history` and the guide show times"
    assert ready(GOLD, DAYS[0], "--stale-ok").exit_code == 0


def test_waiting_ends_when_the_day_is_there(
    world: World, ready: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, the command would tell what it saw first, or wait to the end of its time."""
    from lakehouse.commands.inspect import ready as module

    world.land(DAYS[0])
    monkeypatch.setattr(module, "time", Clock(lambda _: world.settle()))
    assert ready(GOLD, DAYS[0], "--wait", 60).exit_code == 0


def evaluations(instance: DagsterInstance, run_id: str) -> dict[str | None, AssetCheckEvaluation]:
    """What `inputs_fresh` said, by partition; None is the whole step."""
    events = [entry.dagster_event for entry in instance.all_logs(run_id) if entry.dagster_event]
    found = [e.asset_check_evaluation_data for e in events if e.event_type_value == "ASSET_CHECK_EVALUATION"]
    return {each.partition: each for each in found if each.check_name == INPUTS_FRESH}


def test_a_day_that_waits_says_so(
    runs: Foretold, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without it, yesterday's numbers on today's page would look like today's."""
    days = [date(2011, 3, 1), date(2011, 3, 2)]
    waiting: dict[date, str] = {}
    monkeypatch.setattr(assets, "waiting_days", lambda _, __, asked: {d: waiting[d] for d in asked if d in waiting})

    def run(*asked: date) -> dict[str | None, AssetCheckEvaluation]:
        def build(table: Table, made: list[date], **_: Any) -> BuildResult:
            return result(table, dict.fromkeys(made, GOOD))

        done = runs.run_with(build, list(asked), "gold.daily_revenue")
        assert done.status.value == "SUCCESS"
        return evaluations(instance, done.run_id)

    assert {day: each.passed for day, each in run(*days).items()} == {None: True}
    waiting[days[1]] = "silver.transactions 2011-03-02 is not published from its newest input"
    found = run(*days)
    assert {day: each.passed for day, each in found.items()} == {None: False, "2011-03-02": False}
    assert found["2011-03-02"].severity.value == "WARN"
    assert "has no rows yet: silver.transactions 2011-03-02" in (found["2011-03-02"].description or "")
    materialized = instance.get_latest_materialization_event(found["2011-03-02"].asset_key)
    assert materialized is not None
    assert materialized.asset_materialization is not None
    assert "inputs_not_fresh" in materialized.asset_materialization.metadata
    assert {day: each.passed for day, each in run(days[1]).items()} == {None: False, "2011-03-02": False}
    over_all = run(days[0])
    assert {day: each.passed for day, each in over_all.items()} == {None: False}, "another day still waits"
    assert "2011-03-02" in (over_all[None].description or "")
    waiting.clear()
    assert {day: each.passed for day, each in run(days[0]).items()} == {None: True}


def test_a_table_that_no_run_has_reached_says_so_too(world: World, instance: DagsterInstance) -> None:
    """Without it, it stayed green below a file that was cut short, since the run of that day ended at the first table.

    And red until the next run, once the file was as it had been.
    """

    def shown() -> list[tuple[bool, str]]:
        align_inputs(instance, world.lake())
        keys = [AssetCheckKey(asset_key(name), INPUTS_FRESH) for name in (SILVER, GOLD)]
        newest = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
        found = [each.evaluation for key in keys if (each := newest.get(key)) is not None]
        return [(each.passed, each.description or "") for each in found if each is not None]

    world.land(DAYS[0])
    world.settle()
    assert shown() == [], "no run has judged it: nothing is shown that could be wrong"
    for name in (SILVER, GOLD):
        passed = AssetCheckEvaluation(asset_key=asset_key(name), check_name=INPUTS_FRESH, passed=True)
        instance.report_runless_asset_event(passed)
    landed = next((world.root / "landing").rglob("*.jsonl"))
    before = landed.read_bytes()
    world.land(DAYS[0])
    world.land(DAYS[5])  # never published: nobody has missed it yet
    why = f"{BRONZE} {DAYS[0]} is not published from its newest input"
    days = [f"fails on {DAYS[0]}: holds the last good data: {why}", f"fails on 2 days: {DAYS[0]}, {DAYS[1]}; {DAYS[0]}"]
    assert [passed for passed, _ in shown()] == [False, False]
    assert shown()[0][1] == days[0]
    assert shown()[1][1].startswith((days[0], days[1]))
    events = instance.event_log_storage.get_maximum_record_id()
    shown()
    assert instance.event_log_storage.get_maximum_record_id() == events, "told once"
    landed.write_bytes(before)
    assert [passed for passed, _ in shown()] == [True, True]
