"""How runs ended, as it is kept, is what Dagster says: after any history of runs. No engine needed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import date, timedelta
from pathlib import Path

import pytest
from dagster import AssetMaterialization, DagsterEvent, DagsterInstance, DagsterRun
from dagster._core.events import AssetMaterializationPlannedData, StepMaterializationData
from dagster._core.test_utils import create_run_for_test
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakehouse.days import days_between
from lakehouse.orchestration import instance as module
from lakehouse.orchestration.ended import ended_days, unfinished_days
from lakehouse.orchestration.instance import opened_instance
from lakehouse.orchestration.metadata import asset_key
from lakehouse.orchestration.outcomes import Outcomes, asked, outcomes
from lakehouse.settings import Settings, get_settings

TABLES = ["bronze.events", "silver.transactions"]
DAYS = [date(2011, 3, 1) + timedelta(days=n) for n in range(3)]
TICK = 0.03  # seconds: more than one tick of the clock that times of files are of


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("DAGSTER_HOME", "DAGSTER_EVENT_BATCH_SIZE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


@pytest.fixture
def lake(tmp_path: Path) -> Settings:
    return Settings(root=tmp_path)


@pytest.fixture
def instance(lake: Settings) -> Iterator[DagsterInstance]:
    with opened_instance(lake) as opened:
        yield opened


def create_run(instance: DagsterInstance, tables: list[str], first: date, last: date) -> DagsterRun:
    """A run that is to build some days, as Dagster notes it: without the definitions, which take seconds to load."""
    run: DagsterRun = create_run_for_test(instance, job_name="job")
    for table in tables:
        for day in days_between(first, last):
            data = AssetMaterializationPlannedData(asset_key(table), partition=day.isoformat())
            event = DagsterEvent("ASSET_MATERIALIZATION_PLANNED", "job", event_specific_data=data)
            instance.report_dagster_event(event, run.run_id)
    return run


def built(instance: DagsterInstance, run_id: str, table: str, day: date) -> None:
    """A day of a table was materialized by a run."""
    event = DagsterEvent(
        "ASSET_MATERIALIZATION",
        "job",
        event_specific_data=StepMaterializationData(AssetMaterialization(asset_key(table), partition=day.isoformat())),
    )
    instance.report_dagster_event(event, run_id)


def move(instance: DagsterInstance, kind: str, number: int, runs: list[str]) -> None:
    """One thing that can happen to runs; one that does not fit changes nothing."""
    if kind == "launch":
        runs.append(
            create_run(
                instance, TABLES[: 1 + number % 2], DAYS[number % 3], DAYS[max(number % 3, number // 3 % 3)]
            ).run_id
        )
        return
    run = instance.get_run_by_id(runs[number % len(runs)]) if runs else None
    if run is None:
        return
    if kind == "build":
        built(instance, run.run_id, TABLES[number % 2], DAYS[number // 2 % 3])
    elif kind == "delete":
        instance.delete_run(run.run_id)
    elif run.is_finished:
        return
    elif kind == "fail":
        instance.report_run_failed(run, "it broke")
    elif kind == "terminate":
        instance.report_run_canceling(run)
        instance.report_run_canceled(run)
    elif kind == "interrupt":
        instance.report_run_canceled(run)


MOVES = st.lists(
    st.tuples(st.sampled_from(["launch", "build", "fail", "terminate", "interrupt", "delete"]), st.integers(0, 8)),
    min_size=3, max_size=9,
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=MOVES)
def test_what_is_kept_is_what_dagster_says(
    moves: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without it, `lakehouse status` could be quick and say something else than Dagster, alerts and `--failed-only`."""
    lake = Settings(root=tmp_path_factory.mktemp("history"))
    runs: list[str] = []
    with opened_instance(lake) as instance, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "opened_instance", lambda _: nullcontext(instance))  # opening one takes most of the time
        for kind, number in [("launch", 3), ("fail", 0), *moves]:
            move(instance, kind, number, runs)
            truth, _ = asked(instance, TABLES)
            unfinished, people = unfinished_days(instance, TABLES), ended_days(instance, TABLES).by_somebody
            for table in TABLES:  # what `backfill --failed-only` and the automation go by
                assert truth[table].unfinished == unfinished.get(table, set())
                assert truth[table].by_somebody == people.get(table, set())
            time.sleep(TICK)
            assert outcomes(lake, TABLES, settled_ns=0) == truth, "as it is asked"
            assert outcomes(lake, TABLES, settled_ns=0) == truth, "as it was kept"


def test_dagster_is_asked_once_a_change(lake: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, nothing would be kept, and every look would wait for Dagster."""
    with opened_instance(lake) as instance:
        run = create_run(instance, TABLES, DAYS[0], DAYS[1])
        built(instance, run.run_id, TABLES[0], DAYS[0])
        instance.report_run_failed(run, "it broke")
    time.sleep(TICK)
    first = outcomes(lake, TABLES, settled_ns=0)
    assert first[TABLES[0]].unfinished == {DAYS[1]}
    assert first[TABLES[1]].unfinished == {*DAYS[:2]}
    with monkeypatch.context() as closed:
        closed.setattr(module, "opened_instance", None)
        assert outcomes(lake, TABLES[1:]) == {TABLES[1]: first[TABLES[1]]}
    with opened_instance(lake) as instance:
        create_run(instance, TABLES, DAYS[2], DAYS[2])
    with monkeypatch.context() as closed:
        closed.setattr(module, "opened_instance", None)
        with pytest.raises(TypeError):
            outcomes(lake, TABLES)


def test_where_each_day_is_built_dagster_is_not_asked(lake: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, whoever looks after a run waits two seconds for Dagster, which has nothing to add."""
    with opened_instance(lake) as instance:
        run = create_run(instance, TABLES, DAYS[0], DAYS[1])
        for table in TABLES:
            for day in DAYS[:2]:
                built(instance, run.run_id, table, day)
        truth, _ = asked(instance, TABLES)
    with monkeypatch.context() as closed:
        closed.setattr(module, "opened_instance", None)
        assert outcomes(lake, [*TABLES, "gold.other"]) == {**truth, "gold.other": Outcomes()}
        # Its state is elsewhere by now: the file is of what was before.
        ours = lake.dagster_home / "dagster.yaml"
        ours.write_text(ours.read_text().replace("class: EventLog", "class: AnotherLog"))
        with pytest.raises(TypeError):
            outcomes(lake, TABLES)


def test_what_was_wiped_dagster_is_asked_of(lake: Settings, instance: DagsterInstance) -> None:
    """Without it, a table that was wiped in Dagster would still be as old as its last materialization."""
    run = create_run(instance, TABLES, DAYS[0], DAYS[0])
    for table in TABLES:
        built(instance, run.run_id, table, DAYS[0])
    assert all(each.materialized_at for each in outcomes(lake, TABLES).values())
    instance.wipe_assets([asset_key(table) for table in TABLES])
    truth, _ = asked(instance, TABLES)
    assert outcomes(lake, TABLES) == truth


def test_a_day_that_is_no_partition_is_not_left_over(
    lake: Settings, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, `status` names a day for ever, and `backfill --failed-only` starts a run that is refused again."""
    instance.report_run_failed(create_run(instance, TABLES, DAYS[0], DAYS[2]), "it broke")
    instance.report_run_failed(create_run(instance, TABLES, date(2099, 1, 1), date(2099, 1, 1)), "it was refused")
    time.sleep(TICK)
    assert outcomes(lake, TABLES, settled_ns=0) == {name: Outcomes(frozenset(DAYS)) for name in TABLES}
    # The files that have landed begin later than was thought, or the lake has ended: what is kept is of other days.
    monkeypatch.setenv("LAKEHOUSE_FIRST_DAY", str(DAYS[1]))
    monkeypatch.setenv("LAKEHOUSE_LAST_DAY", str(DAYS[1]))
    get_settings.cache_clear()
    fewer = get_settings().model_copy(update={"root": lake.root})
    assert unfinished_days(instance, TABLES) == {name: {DAYS[1]} for name in TABLES}
    assert outcomes(fewer, TABLES, settled_ns=0) == {name: Outcomes(frozenset({DAYS[1]})) for name in TABLES}


def test_while_a_run_is_on_dagster_is_asked(lake: Settings, instance: DagsterInstance) -> None:
    """Without it, a run whose end is written to the list of runs a moment after the event log would be on for ever."""
    create_run(instance, TABLES, DAYS[0], DAYS[0])
    time.sleep(TICK)
    assert outcomes(lake, TABLES, settled_ns=0) == {name: Outcomes(underway=frozenset(DAYS[:1])) for name in TABLES}
    assert not (lake.root / "cache" / "outcomes.json").exists()


def test_what_was_written_a_moment_ago_is_not_kept(lake: Settings, instance: DagsterInstance) -> None:
    """Without it, two events within one tick of the clock could look like one."""
    instance.report_run_failed(create_run(instance, TABLES, DAYS[0], DAYS[0]), "it broke")
    outcomes(lake, TABLES)
    assert not (lake.root / "cache" / "outcomes.json").exists()


@pytest.mark.parametrize("damage", ["", "{", '{"state": 1}', "other"])
def test_what_is_damaged_is_asked_again(lake: Settings, instance: DagsterInstance, damage: str) -> None:
    instance.report_run_failed(create_run(instance, TABLES, DAYS[0], DAYS[0]), "it broke")
    time.sleep(TICK)
    found = outcomes(lake, TABLES, settled_ns=0)
    kept = lake.root / "cache" / "outcomes.json"
    held = json.loads(kept.read_text())
    kept.write_text(json.dumps({**held, "tables": {TABLES[0]: {}}}) if damage == "other" else damage)
    assert outcomes(lake, TABLES, settled_ns=0) == found
    assert json.loads(kept.read_text()) == held


def test_a_lake_without_runs_needs_no_dagster(lake: Settings) -> None:
    assert outcomes(lake, TABLES) == {name: Outcomes() for name in TABLES}
    assert not lake.dagster_home.exists()
