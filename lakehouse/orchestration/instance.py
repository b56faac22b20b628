"""Dagster's instance under the lakehouse root, and runs in this process that it shows like any other run."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

from dagster import (
    AssetCheckKey,
    AssetKey,
    DagsterEvent,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    JobDefinition,
    RunsFilter,
    reconstructable,
)

# Public `execute_job` hands over events only when the run is over; this one (dagster 1.13) does as they happen.
from dagster._core.execution.api import create_execution_plan, execute_run_iterator
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.snap import snapshot_from_execution_plan

from lakehouse.days import days_between
from lakehouse.orchestration.report import asset_key
from lakehouse.orchestration.slices import tags_of_new_runs
from lakehouse.orchestration.state import opening_lock, prepare_dagster_home
from lakehouse.orchestration.why import DAYS_TAG, WHY_TAG, days_text, told_by, why_now
from lakehouse.settings import Settings

OWNER_TAG = "lakehouse/process"
BACKFILL_TAG = "lakehouse/backfill"
"""Runs of `lakehouse backfill` in its own process; those of Dagster's backfills have Dagster's tag."""
DAGSTER_BACKFILL_TAG = "dagster/backfill"
STARTED_AGAIN = {"dagster/max_retries": "2", "dagster/retry_on_asset_or_op_failure": "false"}
"""Tags of runs that Dagster starts again where they crashed, but not where a step of theirs failed."""
CODE_LOCATION = "lakehouse.definitions"


@contextmanager
def opened_instance(settings: Settings) -> Iterator[DagsterInstance]:
    """The instance under the root, made ready where it is new and closed at the end."""
    home = prepare_dagster_home(settings)
    with opening_lock(home):
        opened = DagsterInstance.get()
    with opened as instance:
        yield instance


def lake_job() -> JobDefinition:
    """The job of all tables; a run may select some of them."""
    from lakehouse.definitions import defs

    return defs.resolve_job_def("lakehouse")


def checks_of(tables: Collection[str]) -> frozenset[AssetCheckKey]:
    """The checks of some tables that are about the days of a run; Dagster left to itself takes all of their checks."""
    checks = lake_job().asset_layer.asset_graph.asset_check_keys
    return frozenset(check for check in checks if table_of(check.asset_key) in tables)


def create_run(
    instance: DagsterInstance,
    tables: Sequence[str],
    first: date,
    last: date,
    *,
    force: bool = False,
    backfill: bool = False,
    not_published: Mapping[str, Mapping[date, str]] | None = None,
    log_level: str = "CRITICAL",
) -> DagsterRun:
    """Record one run over a gapless range of days; nothing is executed yet.

    Args:
        instance: where it is recorded.
        tables: what to materialize, by `layer.name`.
        first: first partition.
        last: last partition, inclusive.
        force: build days again whose inputs and code have not changed.
        backfill: it is part of a backfill and no live run, which decides its engine.
        not_published: by table that an earlier run was to build, the days it did not publish, and why: in this run they
            are held back from what reads them, as if it had been one run.
        log_level: what Dagster prints to this process's standard error while the run is on.
    """
    job, run_id = lake_job(), str(uuid.uuid4())
    keys, checks = frozenset(asset_key(table) for table in tables), checks_of(tables)
    some = keys != job.asset_layer.selected_asset_keys
    if some:
        job = job.get_subset(asset_selection=keys, asset_check_selection=checks)
    # A run that is executed again inherits its tags: the run's own id says whose process this is.
    tags = {**job.run_tags, **partition_tags(first, last), OWNER_TAG: f"{_this_process()}/{run_id}"}
    tags |= {BACKFILL_TAG: "true"} if backfill else {}
    tags |= tags_of_new_runs() | {DAYS_TAG: days_text(first, last)} | why_now()
    config: dict[str, Any] = {"loggers": {"console": {"config": {"log_level": log_level}}}}
    lake: dict[str, Any] = {"force": True} if force else {}
    if not_published:
        texts = {name: {day.isoformat(): why for day, why in days.items()} for name, days in not_published.items()}
        lake["not_published"] = texts
    if lake:
        config["resources"] = {"lakehouse": {"config": lake}}
    plan = create_execution_plan(
        job, config, instance_ref=instance.get_ref() if instance.is_persistent else None, tags=tags
    )
    # Public `create_run_for_job` (dagster 1.13) does just this, but takes no selection of checks.
    return instance.create_run(
        job_name=job.name,
        run_id=run_id,
        run_config=config,
        status=None,
        tags=tags,
        root_run_id=None,
        parent_run_id=None,
        step_keys_to_execute=plan.step_keys_to_execute,
        execution_plan_snapshot=snapshot_from_execution_plan(plan, job.get_job_snapshot_id()),
        job_snapshot=job.get_job_snapshot(),
        parent_job_snapshot=job.get_parent_job_snapshot(),
        asset_selection=keys if some else None,
        asset_check_selection=checks if some else None,
        resolved_op_selection=None,
        op_selection=None,
        remote_job_origin=_job_origin(job.name),
        job_code_origin=reconstructable(lake_job).get_python_origin(),
        asset_graph=job.asset_layer.asset_graph,
    )


def execute(instance: DagsterInstance, run: DagsterRun) -> Iterator[DagsterEvent]:
    """Execute a recorded run in this process and thread, handing over its events as they happen.

    An interrupt (Ctrl-C, SIGTERM) ends the run as cancelled; the caller sees the iterator end.
    """
    try:
        for event in execute_run_iterator(reconstructable(lake_job), run, instance):
            yield event
            if event.is_step_failure and event.step_failure_data.error_source.name == "INTERRUPT":
                instance.report_run_canceling(run)
    finally:
        # A step that was stopped in the middle keeps its slot in the table's pool.
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


def close_abandoned_runs(instance: DagsterInstance) -> list[str]:
    """Mark runs of killed processes of this machine as failed and free the pool slots they hold; returns their ids.

    A process that was killed says nothing: its run would stay "started", and the tables' pools, which let one run at a
    time build a table, would stay taken for ever.
    """
    here = socket.gethostname()
    closed: list[str] = []
    unfinished = [DagsterRunStatus.NOT_STARTED, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]
    for run in instance.get_runs(filters=RunsFilter(statuses=unfinished)):
        host, process, owned = ([*run.tags.get(OWNER_TAG, "").split("/"), "", ""])[:3]
        if host != here or owned != run.run_id or _is_alive(process):
            continue
        close_run(instance, run, f"The process of this run ({process}) is gone; the run was not finished.")
        closed.append(run.run_id)
    return closed


def close_run(instance: DagsterInstance, run: DagsterRun, why: str, *, canceled: bool = False) -> None:
    """Mark a run whose process is gone as failed, or as cancelled, and free the pool slots it holds."""
    if canceled:
        instance.report_run_canceled(run, why)
    else:
        instance.report_run_failed(run, why)
    instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


def claim_run(instance: DagsterInstance, run: DagsterRun) -> None:
    """Record that this process executes the run, so that it can be closed once the process is gone.

    A run that Dagster made is also told over which days it is, and why.
    """
    tags = {OWNER_TAG: f"{_this_process()}/{run.run_id}"}
    if (days := days_of_run(run.tags)) and DAYS_TAG not in run.tags:
        tags[DAYS_TAG] = days_text(days[0], days[-1])
    if WHY_TAG not in run.tags:
        tags[WHY_TAG] = told_by(run.tags)
    if any(run.tags.get(name) != value for name, value in tags.items()):
        instance.add_run_tags(run.run_id, tags)


def is_backfill(tags: Mapping[str, str]) -> bool:
    """Whether a run is part of a backfill, by its tags."""
    return DAGSTER_BACKFILL_TAG in tags or BACKFILL_TAG in tags


def days_of_run(tags: Mapping[str, str]) -> list[date]:
    """The days that a run is about, from its tags; empty where they name none."""
    one = tags.get("dagster/partition")
    first = _day(one or tags.get("dagster/asset_partition_range_start"))
    last = _day(one or tags.get("dagster/asset_partition_range_end"))
    return days_between(first, last) if first and last else []


def unfinished_days(
    instance: DagsterInstance, tables: Sequence[str], *, first: date | None = None, last: date | None = None
) -> dict[str, set[date]]:
    """By table, the days whose newest run was to materialize them, did not, and is over.

    That is: days that failed, days that were left alone because an input failed, and the rest of a broken or
    cancelled run.
    """
    over: dict[str, bool] = {}
    found: dict[str, set[date]] = {}
    for table in tables:
        for day, run_id in attempts(instance, table).items():
            if (first and day < first) or (last and day > last):
                continue
            if run_id not in over:
                run = instance.get_run_by_id(run_id)
                over[run_id] = run is not None and run.is_finished
            if over[run_id]:
                found.setdefault(table, set()).add(day)
    return found


def attempts(instance: DagsterInstance, table: str) -> dict[date, str]:
    """By day that its newest run has not materialized, the run."""
    storage = instance.event_log_storage
    found = storage.get_latest_asset_partition_materialization_attempts_without_materializations(asset_key(table))
    return {day: run_id for partition, (run_id, _) in found.items() if (day := _day(partition)) is not None}


def table_of(key: AssetKey) -> str:
    """`layer.name` of an asset key."""
    return ".".join(key.path)


def table_of_step(step_key: str) -> str:
    """`layer.name` of the step that computes a table."""
    return step_key.replace("__", ".", 1)


def partition_tags(first: date, last: date) -> Mapping[str, str]:
    """The tags by which Dagster knows the days of a run."""
    if first == last:
        return {"dagster/partition": first.isoformat()}
    return {
        "dagster/asset_partition_range_start": first.isoformat(),
        "dagster/asset_partition_range_end": last.isoformat(),
    }


def _this_process() -> str:
    return f"{socket.gethostname()}/{_identity(os.getpid())}"


def _job_origin(job: str) -> RemoteJobOrigin:
    """Where the UI finds the run's job: it lists the run there, and can execute it again."""
    location = RegisteredCodeLocationOrigin(CODE_LOCATION)
    return RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), job)


def _identity(process: int) -> str:
    """The process id together with its start, so that a later process of the same id is not mistaken for it."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return str(process)
    return f"{process}.{fields[19]}"


def _is_alive(identity: str) -> bool:
    process, _, started = identity.partition(".")
    if not process.isdigit():
        return False
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
