"""Runs of backfills beside live runs: their own engine, and no harm where both build the same day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

import pytest
from dagster import DagsterInstance, DagsterRun

from lakehouse.build import publish
from lakehouse.build.result import BuildResult
from lakehouse.build.stale import stale_days
from lakehouse.catalog import tables
from lakehouse.contracts import Table
from lakehouse.orchestration import assets, resources
from lakehouse.orchestration.instance import BACKFILL_TAG, DAGSTER_BACKFILL_TAG
from lakehouse.read.lake import Lake, PinnedLake, table_path
from lakehouse.runs.executing import Asked, create_run, execute
from lakehouse.sample.events import land_events
from lakehouse.settings import Settings, get_settings
from lakehouse_tests.fixtures.making import rows_of
from lakehouse_tests.orchestration.running import GOOD, TABLE, Foretold, result

pytestmark = pytest.mark.slow

DAY = date(2011, 3, 1)


@pytest.mark.parametrize(
    ("tags", "memory"), [({}, "2g"), ({DAGSTER_BACKFILL_TAG: "abcd"}, "1g"), ({BACKFILL_TAG: "true"}, "1g")]
)
def test_the_engine_follows_from_what_the_run_is(
    runs: Foretold,
    instance: DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    tags: Mapping[str, str],
    memory: str,
) -> None:
    """Without it, a backfill would take the engine of live runs, or a live run be sent to the backfills' cluster."""
    monkeypatch.setenv("LAKEHOUSE_SPARK_MEMORY", "2g")
    monkeypatch.setenv("LAKEHOUSE_BACKFILL_SPARK_MEMORY", "1g")
    get_settings.cache_clear()
    started: list[Settings] = []
    monkeypatch.setattr(resources, "start", lambda settings: started.append(settings) or "an engine")

    def on_an_engine(lake: Lake, table: Table, days: Iterable[date], **_: Any) -> BuildResult:
        assert lake.spark == "an engine"
        return result(table, dict.fromkeys(days, GOOD))

    monkeypatch.setattr(assets, "build", on_an_engine)
    run = create_run(instance, [TABLE], DAY, DAY, Asked(backfill=BACKFILL_TAG in tags))
    instance.add_run_tags(run.run_id, dict(tags))
    assert _executed(instance, run).status.value == "SUCCESS"
    assert [each.spark_memory for each in started] == [memory]


def _executed(instance: DagsterInstance, run: DagsterRun) -> DagsterRun:
    stored = instance.get_run_by_id(run.run_id)
    assert stored is not None
    for _ in execute(instance, stored):
        pass
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    return found


@pytest.mark.spark
def test_a_live_run_and_a_backfill_of_one_day_both_end_well(
    instance: DagsterInstance,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """Without it, whoever publishes second would fail its whole run, though nothing is wrong.

    The backfill has computed the day; before it publishes, the day's file is landed anew, and a whole live run
    publishes it. The backfill's rows are the older ones: it is refused, and then finds nothing left to do.
    """
    request.getfixturevalue("spark")
    monkeypatch.setattr(assets, "wait_before", lambda _: 0.0)
    live: list[DagsterRun] = []

    def overtaken(table: str, name: str) -> None:
        if name == "before-commit" and not live:
            live.append(create_run(instance, [TABLE], DAY, DAY))
            land_events(settings.root, DAY, 1, rows=60, seed=3)
            live.append(_executed(instance, live[0]))

    monkeypatch.setattr(publish, "failpoint", overtaken)
    land_events(settings.root, DAY, 1, rows=40, seed=3)
    run = _executed(instance, create_run(instance, [TABLE], DAY, DAY, Asked(backfill=True)))
    assert (live[1].status.value, run.status.value) == ("SUCCESS", "SUCCESS")
    kinds = Counter(e.dagster_event.event_type_value for e in instance.all_logs(run.run_id) if e.dagster_event)
    assert (kinds["STEP_UP_FOR_RETRY"], kinds["ASSET_MATERIALIZATION"]) == (1, 1)
    assert stale_days(PinnedLake(settings, tables()), tables()[TABLE], [DAY]) == []
    rows = rows_of(table_path(settings.root, TABLE))
    assert {row["_ingested_run"] for row in rows} == {live[0].run_id}
    assert len(rows) == len({(row["_source_file"], row["_source_row"]) for row in rows}) > 50
