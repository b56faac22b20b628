"""The batched event log stores what Dagster's own stores, only at once: in a SQLite file, and in PostgreSQL."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetKey,
    AssetMaterialization,
    DagsterEvent,
    DagsterInstance,
    EventLogEntry,
)
from dagster._core.events import DagsterEventType, StepMaterializationData
from dagster._core.storage.event_log import ConsolidatedSqliteEventLogStorage, SqlEventLogStorage

from lakehouse.orchestration.event_log import BatchedSqliteEventLogStorage
from lakehouse.orchestration.in_postgres import EventLog

KEY, OTHER = AssetKey(["silver", "transactions"]), AssetKey(["gold", "daily_revenue"])

Opened = Callable[..., SqlEventLogStorage]


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """Opens the event log of one lake, again and again: of a class that comes before the storage, where one is given."""
    if request.param == "sqlite":
        return lambda *before: type("Sqlite", (*before, BatchedSqliteEventLogStorage), {})(str(tmp_path))
    url = request.getfixturevalue("server").database("dagster").url.replace("://", "+psycopg2://")
    return lambda *before: type("Postgres", (*before, EventLog), {})(url)


def _events(number: int, key: AssetKey = KEY) -> list[EventLogEntry]:
    made = []
    for n in range(number):
        materialization = AssetMaterialization(
            key, partition=f"2011-01-{n + 1:02d}", tags={"a": str(n)}, metadata={"rows": n}
        )
        event = DagsterEvent(
            event_type_value=DagsterEventType.ASSET_MATERIALIZATION.value,
            job_name="j",
            step_key="s",
            event_specific_data=StepMaterializationData(materialization),
        )
        made.append(
            EventLogEntry(
                error_info=None,
                level=10,
                user_message="",
                run_id="r1",
                timestamp=float(n),
                step_key="s",
                job_name="j",
                dagster_event=event,
            )
        )
    return made


def test_a_batch_reads_back_like_single_events(tmp_path: Path) -> None:
    """Partition states, newest materialization and tags must not depend on how the events were written."""
    with DagsterInstance.ephemeral() as instance:
        seen = []
        for kind in (BatchedSqliteEventLogStorage, ConsolidatedSqliteEventLogStorage):
            storage = kind(str(tmp_path / kind.__name__))
            storage.register_instance(instance)
            storage.store_event_batch(_events(20))
            newest = storage.get_latest_materialization_events([KEY])[KEY]
            seen.append(
                (
                    storage.get_materialized_partitions(KEY),
                    newest and newest.asset_materialization and newest.asset_materialization.partition,
                    storage.get_event_tags_for_asset(KEY),
                    len(storage.get_logs_for_run("r1")),
                )
            )
    assert seen[0] == seen[1]
    assert len(seen[0][0]) == 20


def test_a_batch_is_of_several_assets(opened: Opened) -> None:
    """Without it, of a run over all tables only the last one would have something new, as Dagster's pages have it."""
    with DagsterInstance.ephemeral() as instance:
        storage = opened()
        storage.register_instance(instance)
        storage.store_event_batch([*_events(3), *_events(2, OTHER)])
        newest = storage.get_latest_materialization_events([KEY, OTHER])
        found = {key: event.asset_materialization for key, event in newest.items() if event}
        assert {key: each and each.partition for key, each in found.items()} == {KEY: "2011-01-03", OTHER: "2011-01-02"}
        records = storage.get_asset_records([KEY, OTHER])
        last = {each.asset_entry.asset_key: each.asset_entry.last_materialization_record for each in records}
        assert all(last[key] for key in (KEY, OTHER))


def test_each_event_of_an_asset_has_a_millisecond_of_its_own(opened: Opened) -> None:
    """The Events tab shows one event a millisecond: of fourteen days of a range run it hid four."""
    with DagsterInstance.ephemeral() as instance:
        storage = opened()
        storage.register_instance(instance)
        at_once = [event._replace(timestamp=1_700_000_000.0004) for event in _events(16)]
        storage.store_event_batch(at_once[:14])
        for event in at_once[14:]:
            storage.store_event(event)
        storage.store_event(at_once[0]._replace(timestamp=1_700_000_100.0))
        stored = storage.fetch_materializations(KEY, limit=50, ascending=True).records
        milliseconds = [int(each.timestamp * 1000) for each in stored]
        assert len(set(milliseconds)) == 17
        assert milliseconds == sorted(milliseconds)
        assert milliseconds[15] < 1_700_000_001_000
        assert milliseconds[16] == 1_700_000_100_000, "what comes later keeps its time"


def test_a_batch_that_fails_leaves_nothing(opened: Opened) -> None:
    """Dagster then stores the events one by one; half a batch would be stored twice."""
    with DagsterInstance.ephemeral() as instance:
        storage = opened()
        storage.register_instance(instance)
        with pytest.raises(AttributeError):
            storage.store_event_batch([*_events(3), "no event"])  # type: ignore[list-item]
        assert not storage.get_logs_for_run("r1")


class _FreedInBetween(SqlEventLogStorage):
    """The only slot is freed after a step has found it taken, and before it is queued."""

    def add_pending_step(self, *args: Any, **kwargs: Any) -> None:
        self.free_concurrency_slots_for_run("holder")
        super().add_pending_step(*args, **kwargs)


def test_a_slot_that_is_freed_in_between_is_not_lost(opened: Opened) -> None:
    """Without it, one of two runs of an upsert table would now and then wait for ever for a slot that is free."""
    with DagsterInstance.ephemeral() as instance:
        usual, unlucky = opened(), opened(_FreedInBetween)
        for storage in (usual, unlucky):
            storage.register_instance(instance)
        usual.set_concurrency_slots("silver_orders", 1)
        assert usual.claim_concurrency_slot("silver_orders", "holder", "step").is_claimed
        assert not usual.claim_concurrency_slot("silver_orders", "later", "step").is_claimed, "held: one at a time"
        usual.free_concurrency_slots_for_run("later")
        unlucky.claim_concurrency_slot("silver_orders", "waiting", "step")
        assert usual.claim_concurrency_slot("silver_orders", "waiting", "step").is_claimed
        assert not usual.claim_concurrency_slot("silver_orders", "third", "step").is_claimed


def test_two_runs_are_the_first_of_a_pool(opened: Opened, tmp_path: Path) -> None:
    """Without it, in PostgreSQL the second one would break, and after another default limit each run."""
    for limit in (1, 1, 2):
        pools = {"concurrency": {"pools": {"default_limit": limit}}}
        storage = opened()
        with DagsterInstance.local_temp(str(tmp_path), overrides=pools) as instance:
            storage.register_instance(instance)
            assert storage.initialize_concurrency_limit_to_default("silver_orders")
        (pool,) = storage.get_pool_limits()
        assert (pool.name, pool.limit, pool.from_default) == ("silver_orders", limit, True)
        assert storage.get_concurrency_info("silver_orders").slot_count == limit


def test_a_day_is_judged_again_and_again_without_a_run(opened: Opened) -> None:
    """Without it, a stream would end when it tells for the second time that a check of one day fails."""
    storage = opened()
    key = AssetCheckKey(KEY, "shares")

    def verdict(*, passed: bool, partition: str | None) -> AssetCheckEvaluation:
        return AssetCheckEvaluation(KEY, "shares", passed, {}, partition=partition)

    for passed in (False, False, True):
        for partition in ("2011-01-01", "2011-01-02", None):
            with DagsterInstance.ephemeral() as instance:
                instance._event_storage = storage
                instance.report_runless_asset_event(verdict(passed=passed, partition=partition))
    kept = storage.get_asset_check_execution_history(key, limit=9)
    told = sorted((each.partition or "", each.evaluation.passed) for each in kept if each.evaluation)
    assert told == [("", False), ("", False), ("", True), ("2011-01-01", True), ("2011-01-02", True)]
