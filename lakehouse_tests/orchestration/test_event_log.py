"""The batched event log stores what Dagster's own stores, only at once."""

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
from dagster._core.storage.event_log import ConsolidatedSqliteEventLogStorage

from lakehouse.orchestration.event_log import BatchedSqliteEventLogStorage

KEY = AssetKey(["silver", "transactions"])


def _events(number: int) -> list[EventLogEntry]:
    made = []
    for n in range(number):
        materialization = AssetMaterialization(
            KEY, partition=f"2011-01-{n + 1:02d}", tags={"a": str(n)}, metadata={"rows": n}
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


def test_each_event_of_an_asset_has_a_millisecond_of_its_own(tmp_path: Path) -> None:
    """The Events tab shows one event a millisecond: of fourteen days of a range run it hid four."""
    with DagsterInstance.ephemeral() as instance:
        storage = BatchedSqliteEventLogStorage(str(tmp_path))
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


def test_a_batch_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Dagster then stores the events one by one; half a batch would be stored twice."""
    with DagsterInstance.ephemeral() as instance:
        storage = BatchedSqliteEventLogStorage(str(tmp_path))
        storage.register_instance(instance)
        with pytest.raises(AttributeError):
            storage.store_event_batch([*_events(3), "no event"])  # type: ignore[list-item]
        assert not storage.get_logs_for_run("r1")


class _FreedInBetween(BatchedSqliteEventLogStorage):
    """The only slot is freed after a step has found it taken, and before it is queued."""

    def add_pending_step(self, *args: Any, **kwargs: Any) -> None:
        self.free_concurrency_slots_for_run("holder")
        super().add_pending_step(*args, **kwargs)


def test_a_slot_that_is_freed_in_between_is_not_lost(tmp_path: Path) -> None:
    """Without it, one of two runs of an upsert table would now and then wait for ever for a slot that is free."""
    with DagsterInstance.ephemeral() as instance:
        usual = BatchedSqliteEventLogStorage(str(tmp_path))
        unlucky = _FreedInBetween(str(tmp_path))
        for storage in (usual, unlucky):
            storage.register_instance(instance)
        usual.set_concurrency_slots("silver_orders", 1)
        assert usual.claim_concurrency_slot("silver_orders", "holder", "step").is_claimed
        assert not usual.claim_concurrency_slot("silver_orders", "later", "step").is_claimed, "held: one at a time"
        usual.free_concurrency_slots_for_run("later")
        unlucky.claim_concurrency_slot("silver_orders", "waiting", "step")
        assert usual.claim_concurrency_slot("silver_orders", "waiting", "step").is_claimed
        assert not usual.claim_concurrency_slot("silver_orders", "third", "step").is_claimed


def test_a_day_is_judged_again_and_again_without_a_run(instance: DagsterInstance) -> None:
    """Without it, a stream would end when it tells for the second time that a check of one day fails."""
    key = AssetCheckKey(KEY, "shares")

    def verdict(*, passed: bool, partition: str | None) -> AssetCheckEvaluation:
        return AssetCheckEvaluation(KEY, "shares", passed, {}, partition=partition)

    for passed in (False, False, True):
        for partition in ("2011-01-01", "2011-01-02", None):
            instance.report_runless_asset_event(verdict(passed=passed, partition=partition))
    kept = instance.event_log_storage.get_asset_check_execution_history(key, limit=9)
    told = sorted((each.partition or "", each.evaluation.passed) for each in kept if each.evaluation)
    assert told == [("", False), ("", False), ("", True), ("2011-01-01", True), ("2011-01-02", True)]
