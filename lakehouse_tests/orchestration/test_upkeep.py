"""The schedule of the nightly upkeep: it fires by itself, tidies a lake, and shows what it did."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from dagster import (
    AssetKey,
    AssetSelection,
    DagsterInstance,
    DagsterRunStatus,
    DefaultScheduleStatus,
    Definitions,
    build_schedule_context,
    define_asset_job,
)
from pydantic import ValidationError

from lakehouse.catalog import tables
from lakehouse.definitions import defs
from lakehouse.delta.commit import append
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.target import Commit, Target
from lakehouse.orchestration.freshness import CHECK as FRESH
from lakehouse.orchestration.upkeep import CHECK, TIDIES, tables_of_runs, upkeep_checks, upkeep_job, upkeep_schedule
from lakehouse.read.lake import table_path
from lakehouse.runs.executing import create_run
from lakehouse.settings import Settings, get_settings
from lakehouse_tests.fixtures.making import stage_rows

pytestmark = pytest.mark.slow

NAME = "gold.daily_revenue"


@pytest.fixture
def target(settings: Settings) -> Target:
    """A table whose one day has five small files."""
    made = tables()[NAME]
    found = Target(table_path(settings.root, NAME), made.schema, made.partition_by)
    for number in range(5):
        files = stage_rows(found, [{made.day_column: date(2026, 3, 2)}])
        append(found, files, Commit({"batch": number + 1}))
    return found


def test_the_schedule_fires_and_the_job_tidies_the_lake(target: Target, instance: DagsterInstance) -> None:
    """Without it, tables would be as tidy as somebody remembers to make them."""
    schedule = defs.resolve_schedule_def("nightly_upkeep")
    assert schedule.default_status == DefaultScheduleStatus.RUNNING
    with build_schedule_context(instance, scheduled_execution_time=datetime(2026, 3, 3, 2, 30, tzinfo=UTC)) as context:
        (request,) = schedule.evaluate_tick(context).run_requests or ()
    job = defs.resolve_job_def(schedule.job_name)
    assert TIDIES in job.tags
    done = job.execute_in_process(instance=instance, tags=request.tags)
    assert done.success
    assert open_snapshot(target.path).live.number == 1
    found = {".".join(e.asset_key.path): e for e in done.get_asset_check_evaluations()}
    assert set(found) == set(tables())
    assert {e.check_name for e in found.values()} == {CHECK}
    assert found[NAME].passed
    key = AssetKey(NAME.split("."))
    (observed,) = instance.fetch_observations(key, limit=10).records
    assert observed.asset_observation is not None
    shown = {name: each.value for name, each in observed.asset_observation.metadata.items()}
    assert (shown["upkeep_of"], shown["files_before"], shown["files_after"]) == (NAME, 5, 1)
    again = job.execute_in_process(instance=instance)
    assert again.success
    assert len(instance.fetch_observations(key, limit=10).records) == 1, "an event for nothing"


def test_a_look_from_the_page_of_a_table_tidies_nothing(target: Target, instance: DagsterInstance) -> None:
    """Without it, a person who looks, or materializes a table by hand, would set off a night's work."""
    checks = upkeep_checks()
    look = define_asset_job("look", selection=AssetSelection.checks(checks))
    looked = Definitions(assets=defs.assets, asset_checks=[checks], jobs=[look], resources=defs.resources)
    done = looked.resolve_job_def("look").execute_in_process(instance=instance)
    found = {".".join(e.asset_key.path): e for e in done.get_asset_check_evaluations()}
    assert open_snapshot(target.path).live.number == 5
    assert not found[NAME].passed
    assert "1 partition(s) with 5 small files to merge (of 5)" in (found[NAME].description or "")
    steps = {node.name for node in defs.resolve_job_def("lakehouse").nodes}
    assert CHECK not in steps
    assert FRESH not in steps


def test_tables_of_runs_are_those_that_wait_or_are_on(instance: DagsterInstance) -> None:
    """Without it, a run would lose its commit to the night's work."""
    run = create_run(instance, [NAME], date(2026, 3, 2), date(2026, 3, 2))
    assert tables_of_runs(instance, "another") == {NAME}
    assert tables_of_runs(instance, run.run_id) == set()
    looks = instance.create_run_for_job(defs.resolve_job_def("freshness"))
    assert tables_of_runs(instance, run.run_id) == set(), f"{looks.job_name} builds nothing"
    instance.report_run_failed(run)
    assert instance.get_run_by_id(run.run_id).status == DagsterRunStatus.FAILURE  # type: ignore[union-attr]
    assert tables_of_runs(instance, "another") == set()


def test_it_can_be_switched_off_and_moved(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, an installation that is busy at night could not have it at noon, or not at all."""
    job = upkeep_job(upkeep_checks())
    for text, status in [("off", DefaultScheduleStatus.STOPPED), ("0 12 * * 6,0", DefaultScheduleStatus.RUNNING)]:
        monkeypatch.setenv("LAKEHOUSE_UPKEEP_CRON", text)
        get_settings.cache_clear()
        assert upkeep_schedule(job).default_status == status
    assert upkeep_schedule(job).cron_schedule == "0 12 * * 6,0"
    with pytest.raises(ValidationError, match="neither off nor five fields"):
        Settings(upkeep_cron="nightly")
