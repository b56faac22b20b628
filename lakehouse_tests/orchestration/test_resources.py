"""What an earlier run of a backfill did not publish is held back in the later ones, as in one run. No engine needed."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from dagster import DagsterEventType, DagsterInstance

from lakehouse.orchestration.ended import unfinished_days
from lakehouse.orchestration.metadata import asset_key
from lakehouse.runs.executing import create_run, execute

DAYS = [date(2011, 3, 1) + timedelta(days=n) for n in range(3)]
TABLES = ["silver.transactions", "gold.daily_revenue"]


@pytest.mark.slow
def test_days_that_another_run_lost_are_not_built_from_what_is_there(instance: DagsterInstance) -> None:
    """Without it, a day whose files could not be read would be published empty, as soon as silver had its own run."""
    lost = {"bronze.online_retail": {DAYS[1]: "source_readable: ends early"}}
    run = create_run(instance, TABLES, DAYS[0], DAYS[-1], not_published=lost)
    for _ in execute(instance, run):
        pass
    stored = instance.get_run_by_id(run.run_id)
    assert stored is not None
    assert stored.status.value == "FAILURE"
    for name in TABLES:
        built = instance.get_materialized_partitions(asset_key(name))
        assert built == {DAYS[0].isoformat(), DAYS[2].isoformat()}, name
    assert unfinished_days(instance, TABLES) == {name: {DAYS[1]} for name in TABLES}, "--failed-only finds them"
    told = instance.all_logs(run.run_id, of_type=DagsterEventType.ASSET_CHECK_EVALUATION)
    texts = [str(entry.dagster_event.asset_check_evaluation_data.description) for entry in told if entry.dagster_event]
    assert any("waits for bronze.online_retail: source_readable: ends early" in text for text in texts)


@pytest.mark.slow
def test_a_run_that_is_told_nothing_holds_nothing_back(instance: DagsterInstance) -> None:
    """Without it, what one run was told could stay with the process and hold back the days of the next."""
    first = create_run(instance, TABLES[:1], DAYS[0], DAYS[0], not_published={"bronze.events": {DAYS[0]: "lost"}})
    second = create_run(instance, TABLES[:1], DAYS[0], DAYS[0])
    for run in (first, second):
        for _ in execute(instance, run):
            pass
    assert instance.get_materialized_partitions(asset_key(TABLES[0])) == {DAYS[0].isoformat()}
