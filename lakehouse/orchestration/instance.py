"""Dagster's instance under the lakehouse root, and runs in this process that it shows like any other run."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dagster import (
    AssetCheckKey,
    AssetKey,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    RunsFilter,
)
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES
from dagster._core.storage.tags import PARENT_RUN_ID_TAG, RETRY_NUMBER_TAG

from lakehouse import store
from lakehouse.days import days_between
from lakehouse.orchestration.metadata import asset_key
from lakehouse.orchestration.run_tags import AUTOMATIC, DAYS_TAG, WHY_TAG, span_text, told_by
from lakehouse.orchestration.state import copy_database, opening_lock, prepare_dagster_home
from lakehouse.settings import Settings

OWNER_TAG = ".dagster/lakehouse_process"
"""For machines alone: Dagster's pages hide what begins so. It would cover the tags that people read."""
BACKFILL_TAG = "lakehouse/backfill"
"""Runs of `lakehouse backfill` in its own process; those of Dagster's backfills have Dagster's tag."""
DAGSTER_BACKFILL_TAG = "dagster/backfill"
ONLINE = "online"
"""Begins the key of an asset that is the features of a table online, which has no days."""
STARTED_AGAIN = {"dagster/max_retries": "2", "dagster/retry_on_asset_or_op_failure": "false"}
"""Tags of runs that Dagster starts again where they crashed, but not where a step of theirs failed."""
_ROOM = 4 << 20  # bytes: with less, SQLite may not make the files that it keeps beside each database


@contextmanager
def opened_instance(settings: Settings) -> Iterator[DagsterInstance]:
    """The instance under the root, made ready where it is new and closed at the end."""
    home = prepare_dagster_home(settings)
    # Only while it opens: a lock held for as long as it is used would let one process work at a time.
    with opening_lock(home):
        opened = DagsterInstance.get()
    with opened as instance:
        yield instance


@contextmanager
def instance_to_read(settings: Settings) -> Iterator[DagsterInstance]:
    """The instance to look at: the very one, or a copy for as long as it is used, where its files cannot be written.

    Dagster's storages write as they open, even for those who only ask. On a full disk that fails, too: just then people
    want to see how tables stand.
    """
    home = settings.dagster_home
    databases = sorted(home.glob("*.db"))
    writable = all(os.access(each, os.W_OK) for each in (home, *databases))
    if writable and (not databases or store.free_bytes(home) > _ROOM):
        with opened_instance(settings) as instance:
            yield instance
        return
    before = os.environ.get("DAGSTER_HOME")
    try:
        with TemporaryDirectory(prefix="lakehouse-look-") as folder:
            aside = settings.model_copy(update={"root": Path(folder)})
            aside.dagster_home.mkdir()
            shutil.copyfile(home / "dagster.yaml", aside.dagster_home / "dagster.yaml")
            for each in databases:
                copy_database(each, aside.dagster_home / each.name)
            with opened_instance(aside) as instance:
                yield instance
    finally:
        os.environ.pop("DAGSTER_HOME", None)
        if before is not None:
            os.environ["DAGSTER_HOME"] = before


def checks_of(graph: BaseAssetGraph[Any], tables: Collection[str]) -> frozenset[AssetCheckKey]:
    """The checks of some tables that are about the days of a run; Dagster left to itself takes all of their checks."""
    return frozenset(check for check in graph.asset_check_keys if table_of(check.asset_key) in tables)


def unfinished_runs(instance: DagsterInstance) -> list[DagsterRun]:
    """Runs that wait or are on."""
    return list(instance.get_runs(filters=RunsFilter(statuses=NOT_FINISHED_STATUSES)))


def close_abandoned_runs(instance: DagsterInstance) -> list[str]:
    """Close the runs of killed processes of this machine, and free the pool slots they hold; returns their ids.

    A process that was killed says nothing: its run would stay "started", and the tables' pools, which let one run at a
    time build a table, would stay taken for ever.
    """
    closed: list[str] = []
    unfinished = [
        DagsterRunStatus.NOT_STARTED, DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING
    ]  # fmt: skip
    for seen in instance.get_runs(filters=RunsFilter(statuses=unfinished)):
        # Looked at again once its process is gone: it may have ended well since, and would be told as failed.
        run = instance.get_run_by_id(seen.run_id) if is_gone(seen) else None
        if run is None or run.status not in unfinished:
            continue
        # What somebody has terminated stays so: a run that failed, Dagster would start again.
        canceled = run.status is DagsterRunStatus.CANCELING
        why = f"The process of this run ({_owner(run)}) is gone; the run was not finished."
        close_run(instance, run, why, canceled=canceled)
        closed.append(run.run_id)
    return closed


def close_run(instance: DagsterInstance, run: DagsterRun, why: str, *, canceled: bool = False) -> None:
    """Mark a run whose process is gone as failed, or as cancelled, and free the pool slots it holds.

    Args:
        instance: where the run is kept.
        run: not finished yet.
        why: a sentence for people.
        canceled: somebody ended it on purpose.
    """
    if canceled:
        instance.report_run_canceled(run, why)
    else:
        instance.report_run_failed(run, why)
    instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


def claim_run(instance: DagsterInstance, run: DagsterRun) -> None:
    """Record that this process executes the run, so that it can be closed once the process is gone.

    A run that Dagster made is also told over which days it is, and why.
    """
    tags = {OWNER_TAG: owner_tag(os.getpid(), run.run_id)}
    if (days := days_of_run(run.tags)) and DAYS_TAG not in run.tags:
        tags[DAYS_TAG] = span_text(days[0], days[-1])
    if WHY_TAG not in run.tags:
        tags[WHY_TAG] = told_by(run.tags)
    # Only where it says something new: each write is an event that Dagster keeps for ever.
    if any(run.tags.get(name) != value for name, value in tags.items()):
        instance.add_run_tags(run.run_id, tags)


def is_backfill(tags: Mapping[str, str]) -> bool:
    """Whether a run is part of a backfill, by its tags."""
    return DAGSTER_BACKFILL_TAG in tags or BACKFILL_TAG in tags


def is_unasked(tags: Mapping[str, str]) -> bool:
    """Whether nobody has asked for a run, by its tags: also not a person who starts one of the sensor's once more."""
    by_somebody = PARENT_RUN_ID_TAG in tags and RETRY_NUMBER_TAG not in tags
    return AUTOMATIC in tags and not by_somebody


def days_of_run(tags: Mapping[str, str]) -> list[date]:
    """The days that a run is about, from its tags; empty where they name none."""
    one = tags.get("dagster/partition")
    first = _day(one or tags.get("dagster/asset_partition_range_start"))
    last = _day(one or tags.get("dagster/asset_partition_range_end"))
    return days_between(first, last) if first and last else []


def attempts(instance: DagsterInstance, table: str) -> dict[date, str]:
    """By day that its newest run has not materialized, the run."""
    storage = instance.event_log_storage
    found = storage.get_latest_asset_partition_materialization_attempts_without_materializations(asset_key(table))
    return {day: run_id for partition, (run_id, _) in found.items() if (day := _day(partition)) is not None}


def table_of(key: AssetKey) -> str:
    """`layer.name` of an asset key."""
    return ".".join(key.path)


def table_of_step(step_key: str) -> str:
    """`layer.name` of the step that computes a table, `online.layer.name` of one that loads it, another one's name."""
    return ".".join(step_key.split("__", 2 if step_key.startswith(f"{ONLINE}__") else 1))


def partition_tags(first: date, last: date) -> Mapping[str, str]:
    """The tags by which Dagster knows the days of a run."""
    if first == last:
        return {"dagster/partition": first.isoformat()}
    return {
        "dagster/asset_partition_range_start": first.isoformat(),
        "dagster/asset_partition_range_end": last.isoformat(),
    }


def owner_tag(process: int, run_id: str) -> str:
    """How a run says which process of this machine executes it."""
    # A run that is executed again inherits its tags: the run's own id says whose process this is.
    return f"{socket.gethostname()}/{_identity(process)}/{run_id}"


def process_of(run: DagsterRun) -> int | None:
    """The process of this machine that executes a run; None where nobody here can tell."""
    number = _owner(run).partition(".")[0]
    return int(number) if number.isdigit() else None


def is_gone(run: DagsterRun) -> bool:
    """Whether the process that executes a run was one of this machine, and is no longer there."""
    owner = _owner(run)
    return bool(owner) and not _is_alive(owner)


def has_process(run: DagsterRun) -> bool:
    """Whether a process, of whatever machine, has said that it executes a run."""
    return bool(_claim(run)[1])


def _owner(run: DagsterRun) -> str:
    host, process = _claim(run)
    return process if host == socket.gethostname() else ""  # of another machine nobody here can tell


def _claim(run: DagsterRun) -> tuple[str, str]:
    """Host and process that execute a run; a run that was started again has inherited a tag of somebody else."""
    host, process, owned = ([*run.tags.get(OWNER_TAG, "").split("/"), "", ""])[:3]
    return (host, process) if owned == run.run_id else ("", "")


def _identity(process: int) -> str:
    """The process id together with its start, so that a later process of the same id is not mistaken for it."""
    # Ticks since the machine's start, which no change of its clock moves. The start as a time of day, which libraries
    # give, moves with the clock: a run that is on would be taken for one that is gone, and closed.
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return str(process)
    # One that has ended stays listed until its parent asks how; it has no memory then, and does nothing any more.
    ended = fields[0] in "ZXx" or fields[20] == "0"
    return f"{process}.{fields[19]}" + ".ended" * ended


def _is_alive(identity: str) -> bool:
    process, _, started = identity.partition(".")
    if not process.isdigit():
        return False
    # Where the system tells when it was started, the number alone is no proof: numbers come again.
    if started:
        return _identity(int(process)) == identity
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _day(partition: str | None) -> date | None:
    try:
        return date.fromisoformat(partition or "")
    except ValueError:
        return None
