"""Backfills of Dagster's daemon: what there are, what they are about, and how they are paused and stopped.

A pause is a tag and no change of what Dagster knows of the backfill: the backfill gives it to the runs it makes, and
the run queue (`dagster.yaml`) starts none that has it. Runs that are on end by themselves, and the daemon goes on
taking note of what is materialized, so a backfill goes on where it stands. The tag is in Dagster's storage, which
outlives any process.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

from dagster import AssetKey, DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter
from dagster._core.definitions.assets.graph.asset_graph_subset import AssetGraphSubset
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.execution.asset_backfill import AssetBackfillData

# Dagster (1.13) has no public way to look at or change its own backfills from Python.
from dagster._core.execution.backfill import (
    BULK_ACTION_TERMINAL_STATUSES,
    BulkActionsFilter,
    BulkActionStatus,
    PartitionBackfill,
)
from dagster._core.storage.runs.schema import BulkActionsTable
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage
from dagster._serdes import deserialize_value, serialize_value

from lakehouse.catalog import tables
from lakehouse.orchestration.instance import DAGSTER_BACKFILL_TAG, days_of_run, table_of

PAUSED_TAG = "lakehouse/paused"
LOOKS = 2  # in a row that must find nothing to do
LULL = 1.0  # seconds between them, in which runs that were just being made are there
PATIENCE = 60.0  # seconds that a daemon may take to make the runs it has begun to make
DAEMON_SILENT = 120.0  # seconds without a sign of life after which a daemon counts as off
_WAITING = [DagsterRunStatus.QUEUED, DagsterRunStatus.NOT_STARTED]
_STATES = {
    BulkActionStatus.REQUESTED: "running",
    BulkActionStatus.CANCELING: "stopping",
    BulkActionStatus.FAILING: "stopping",
    BulkActionStatus.CANCELED: "cancelled",
    BulkActionStatus.FAILED: "broken",
    BulkActionStatus.COMPLETED_SUCCESS: "done",
    BulkActionStatus.COMPLETED_FAILED: "failed",
}

_GONE = {  # Dagster's words for what a deploy may do to what a backfill is about
    "existed at storage-time, but no longer does": "is no table any more",
    "have been removed since this backfill was stored": "has days that are none of the lake any more",
}
_ASSET, _PART = re.compile(r"AssetKey\(\[([^\]]*)\]\)"), re.compile(r"'([^']*)'")

Days = dict[str, set[date]]
"""Days by table."""


def state_of(backfill: PartitionBackfill) -> str:
    """`running`, `paused`, `stopping`; and once it is over `done`, `failed` (some days), `cancelled` or `broken`."""
    paused = backfill.status == BulkActionStatus.REQUESTED and is_paused(backfill)
    return "paused" if paused else _STATES[backfill.status]


def is_over(backfill: PartitionBackfill) -> bool:
    """Whether the daemon has closed it; the runs of one that Dagster calls completed may still be on."""
    return backfill.status in BULK_ACTION_TERMINAL_STATUSES and backfill.status != BulkActionStatus.COMPLETED


def is_paused(backfill: PartitionBackfill) -> bool:
    """Whether its runs are held in the queue."""
    return backfill.tags.get(PAUSED_TAG) == "true"


def newest_backfills(instance: DagsterInstance, limit: int | None = None) -> Sequence[PartitionBackfill]:
    """The backfills there are, the newest first."""
    return [_as_it_stands(instance, each) for each in instance.get_backfills(limit=limit)]


def backfill_of(instance: DagsterInstance, backfill_id: str) -> PartitionBackfill | None:
    """One backfill; None where there is none of that name."""
    found = instance.get_backfill(backfill_id)
    return found and _as_it_stands(instance, found)


def _as_it_stands(instance: DagsterInstance, backfill: PartitionBackfill) -> PartitionBackfill:
    """Of a backfill by `dagster job backfill`, what its runs say: it is completed for Dagster once they are queued."""
    if backfill.status != BulkActionStatus.COMPLETED:
        return backfill
    runs = runs_of(instance, backfill.backfill_id)
    if not all(run.is_finished for run in runs):
        return backfill._replace(status=BulkActionStatus.REQUESTED)
    well = all(run.status == DagsterRunStatus.SUCCESS for run in runs)
    return backfill._replace(status=BulkActionStatus.COMPLETED_SUCCESS if well else BulkActionStatus.COMPLETED_FAILED)


def daemon_is_on(instance: DagsterInstance) -> bool:
    """Whether a daemon has lately said that it looks after backfills, as it does every half a minute."""
    said = instance.run_storage.get_daemon_heartbeats().get("BACKFILL")
    return said is not None and time.time() - said.timestamp < DAEMON_SILENT


def runs_of(instance: DagsterInstance, backfill_id: str) -> list[DagsterRun]:
    """The runs of a backfill, in the order they were made."""
    return list(instance.get_runs(filters=RunsFilter(tags={DAGSTER_BACKFILL_TAG: backfill_id}), ascending=True))


def cancelled_backfill_of(instance: DagsterInstance, run_id: str) -> str | None:
    """The backfill of a run, where somebody cancelled the backfill as a whole and not only runs of it."""
    return _backfill_of(instance, run_id, BulkActionStatus.CANCELING, BulkActionStatus.CANCELED)


def broken_backfill_of(instance: DagsterInstance, run_id: str) -> str | None:
    """The backfill of a run, where the daemon has given it up: it then ends all of its runs, as if somebody did."""
    return _backfill_of(instance, run_id, BulkActionStatus.FAILING, BulkActionStatus.FAILED)


def _backfill_of(instance: DagsterInstance, run_id: str, *statuses: BulkActionStatus) -> str | None:
    run = instance.get_run_by_id(run_id)
    backfill_id = run.tags.get(DAGSTER_BACKFILL_TAG) if run else None
    found = instance.get_backfill(backfill_id) if backfill_id else None
    return backfill_id if found is not None and found.status in statuses else None


def left_of(instance: DagsterInstance, backfill_id: str) -> list[DagsterRun]:
    """The runs of a backfill that somebody cancelled, or that broke, which did not end by themselves."""
    ended = (DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE)
    return [run for run in runs_of(instance, backfill_id) if run.status not in ended]


def tables_of(run: DagsterRun) -> list[str]:
    """The tables of a run, upstream first."""
    chosen = {table_of(key) for key in run.asset_selection} if run.asset_selection is not None else set(tables())
    return [name for name in tables() if name in chosen]


def target_of(backfill: PartitionBackfill, graph: BaseAssetGraph[Any]) -> Days:
    """What a backfill is to materialize; tables upstream first."""
    data = data_of(backfill, graph)
    if data is not None:
        found = _days_in(data.target_subset)
    else:  # of a job, launched from the job's page
        days = {date.fromisoformat(day) for day in backfill.partition_names or ()}
        names = [table_of(key) for key in backfill.asset_selection or ()] or list(tables())
        found = {name: set(days) for name in names}
    return {name: found[name] for name in tables() if name in found}


def rest_of(backfill: PartitionBackfill, graph: BaseAssetGraph[Any]) -> tuple[Days, Days]:
    """What an asset backfill was to materialize and has not: what there is of it, and what is gone with a deploy.

    Gone are tables that were taken out or have another name now, and days that the lake has no more. Dagster gives the
    whole backfill up because of them, and would each one that is started again from it.
    """
    data = data_of(backfill, graph)
    if data is None:
        return {}, {}
    there: Days = {}
    gone: Days = {}
    built = _days_in(data.materialized_subset)
    for name, wanted in _days_in(data.target_subset).items():
        key = AssetKey(name.split("."))
        partitions = graph.get(key).partitions_def if graph.has(key) else None
        days = set(map(date.fromisoformat, partitions.get_partition_keys())) if partitions is not None else set()
        left = wanted - built.get(name, set())
        there[name], gone[name] = left & days, left - days
    return (
        {name: there[name] for name in tables() if there.get(name)},
        {name: gone[name] for name in sorted(gone) if gone[name]},
    )


def _days_in(subset: AssetGraphSubset) -> Days:
    return {
        table_of(key): set(map(date.fromisoformat, each.get_partition_keys()))
        for key, each in subset.partitions_subsets_by_asset_key.items()
    }


def why_broken(backfill: PartitionBackfill) -> str:
    """What made the daemon give a backfill up; empty where it did not."""
    if backfill.status not in (BulkActionStatus.FAILING, BulkActionStatus.FAILED):
        return ""
    error = backfill.error
    for words, means in _GONE.items():
        if error and words in error.message and (found := _ASSET.search(error.message)):
            return f"{'.'.join(_PART.findall(found[1]))} {means}"
    return (error and error.cls_name) or "without a reason"


def data_of(backfill: PartitionBackfill, graph: BaseAssetGraph[Any]) -> AssetBackfillData | None:
    """What the daemon has noted of an asset backfill at its last look; None of a job's."""
    if not backfill.is_asset_backfill:
        return None
    return backfill.get_asset_backfill_data(graph)


def still_to_come(instance: DagsterInstance, graph: BaseAssetGraph[Any]) -> Days:
    """By table, the days of unfinished backfills, paused ones included, which others should leave to them."""
    found: Days = {}
    for backfill in instance.get_backfills(filters=BulkActionsFilter(statuses=[BulkActionStatus.REQUESTED])):
        for name, days in target_of(backfill, graph).items():
            found.setdefault(name, set()).update(days)
        for run in runs_of(instance, backfill.backfill_id):
            # Done or failed, the backfill makes no second run of these days: whoever finds them due may take them.
            if run.is_finished:
                for name in tables_of(run):
                    found.get(name, set()).difference_update(days_of_run(run.tags))
    return found


def holds_paused_runs(instance: DagsterInstance) -> bool:
    """Whether the run queue of this instance leaves paused runs alone, as our `dagster.yaml` tells it."""
    queue = instance.get_concurrency_config().run_queue_config
    limits = queue.tag_concurrency_limits if queue else ()
    return any(each["key"] == PAUSED_TAG and each.get("value") == "true" and not each["limit"] for each in limits)


def set_paused(instance: DagsterInstance, backfill_id: str, paused: bool, *, lull: float = LULL) -> None:
    """Hold the runs of a backfill in the queue, those there are and those to come, or let them go.

    The daemon may be making runs at this very moment, with the tags of before: this ends when it has made them and a
    second look finds none that is not as it should be. Killed half-way, the same again ends it.

    Args:
        instance: where the backfill is kept.
        backfill_id: as Dagster has named it.
        paused: hold them, or let them go.
        lull: seconds between two looks.
    """
    until, calm = time.monotonic() + PATIENCE, 0
    while calm < LOOKS:
        changed = _set_tag(instance, backfill_id, paused)
        for run in instance.get_runs(RunsFilter(tags={DAGSTER_BACKFILL_TAG: backfill_id}, statuses=_WAITING)):
            if (run.tags.get(PAUSED_TAG) == "true") != paused:
                instance.add_run_tags(run.run_id, {PAUSED_TAG: "true" if paused else "false"})
                changed = True
        found = instance.get_backfill(backfill_id)
        # A daemon that was killed half-way leaves such a mark for ever, so it is believed for some time only.
        making = found is not None and bool(found.submitting_run_requests) and time.monotonic() < until
        calm = 0 if changed or making else calm + 1
        if calm < LOOKS:
            time.sleep(lull)


def cancel(instance: DagsterInstance, backfill_id: str) -> bool:
    """Have the daemon end a backfill together with its runs; False where it was over already."""

    def cancelling(backfill: PartitionBackfill) -> PartitionBackfill:
        if is_over(backfill):
            return backfill
        # Without the tag, or what is done again from it would be held too.
        return backfill._replace(status=BulkActionStatus.CANCELING, tags=without_pause(backfill.tags))

    return change(instance, backfill_id, cancelling)


def _set_tag(instance: DagsterInstance, backfill_id: str, paused: bool) -> bool:
    def tagged(backfill: PartitionBackfill) -> PartitionBackfill:
        if is_over(backfill) or is_paused(backfill) == paused:
            return backfill
        return backfill._replace(tags={**without_pause(backfill.tags), **({PAUSED_TAG: "true"} if paused else {})})

    return change(instance, backfill_id, tagged)


def without_pause(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags of a backfill but for that by which its runs are held, for one that goes on or builds its rest."""
    return {key: value for key, value in tags.items() if key != PAUSED_TAG}


def change(instance: DagsterInstance, backfill_id: str, how: Callable[[PartitionBackfill], PartitionBackfill]) -> bool:
    """Change what Dagster keeps of a backfill, on nothing but its newest state; False where there is nothing to change.

    Dagster's own `update_backfill` writes what its caller has read before: between the two, the daemon may have noted
    which runs it has made, and would make them again.

    Args:
        instance: where the backfill is kept.
        backfill_id: as Dagster has named it.
        how: makes the new state from the newest one; the same one where nothing is to change.
    """
    storage, table = instance.run_storage, BulkActionsTable
    if not isinstance(storage, SqlRunStorage):  # one of an instance's own, of which no more is known than its methods
        found = instance.get_backfill(backfill_id)
        changed = found is not None and how(found) != found
        if found is not None and changed:
            instance.update_backfill(how(found))
        return changed
    # Compare and set, on the very text that was read: a daemon that wrote in between makes this read it again.
    while True:
        with storage.connect() as connection:
            body = connection.execute(table.select().where(table.c.key == backfill_id)).mappings().one()["body"]
            before = deserialize_value(body, PartitionBackfill)
            after = how(before)
            if after == before:
                return False
            written = connection.execute(
                table.update()
                .where(table.c.key == backfill_id, table.c.body == body)
                .values(status=after.status.value, body=serialize_value(after))
            )
            if written.rowcount == 1:
                return True
