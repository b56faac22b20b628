"""Runs of this process: recorded as Dagster records its own, executed here, and shown like any other run."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from dagster import (
    DagsterEvent,
    DagsterInstance,
    DagsterRun,
    JobDefinition,
    reconstructable,
)
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph

# Public `execute_job` hands over events only when the run is over; this one (dagster 1.13) does as they happen.
from dagster._core.execution.api import create_execution_plan, execute_run_iterator
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.snap import snapshot_from_execution_plan

from lakehouse.orchestration.ended import BY_SOMEBODY
from lakehouse.orchestration.instance import BACKFILL_TAG, OWNER_TAG, checks_of, owner_tag, partition_tags
from lakehouse.orchestration.metadata import asset_key
from lakehouse.orchestration.run_tags import DAYS_TAG, span_text, why_now
from lakehouse.orchestration.slices import tags_for

CODE_LOCATION = "lakehouse.definitions"


@dataclass(frozen=True)
class Asked:
    """How runs are to build.

    Attributes:
        force: build days again whose inputs and code have not changed.
        backfill: they are part of a backfill and no live runs, which decides their engine.
        slices: heavy tables are staged in so many slices, one after the other; 1: whole.
        verbose: Dagster prints what a run logs to the standard error of its process.
    """

    force: bool = False
    backfill: bool = False
    slices: int = 1
    verbose: bool = False


PLAIN = Asked()


def lake_job() -> JobDefinition:
    """The job of all tables; a run may select some of them."""
    from lakehouse.definitions import defs

    return defs.resolve_job_def("lakehouse")


def asset_graph() -> AssetGraph:
    """All tables as Dagster's assets."""
    return lake_job().asset_layer.asset_graph


def create_run(
    instance: DagsterInstance,
    tables: Sequence[str],
    first: date,
    last: date,
    asked: Asked = PLAIN,
    *,
    not_published: Mapping[str, Mapping[date, str]] | None = None,
) -> DagsterRun:
    """Record one run over a gapless range of days; nothing is executed yet.

    Args:
        instance: where it is recorded.
        tables: what to materialize, by `layer.name`.
        first: first partition.
        last: last partition, inclusive.
        asked: how it is to build.
        not_published: by table that an earlier run was to build, the days it did not publish, and why: in this run they
            are held back from what reads them, as if it had been one run.
    """
    job, run_id = lake_job(), str(uuid.uuid4())
    keys, checks = frozenset(asset_key(table) for table in tables), checks_of(job.asset_layer.asset_graph, tables)
    some = keys != job.asset_layer.selected_asset_keys
    if some:
        job = job.get_subset(asset_selection=keys, asset_check_selection=checks)
    tags = {**job.run_tags, **_tags(run_id, first, last, asked)}
    config = _config(asked, not_published or {})
    ref = instance.get_ref() if instance.is_persistent else None
    plan = create_execution_plan(job, config, instance_ref=ref, tags=tags)
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


def _tags(run_id: str, first: date, last: date, asked: Asked) -> dict[str, str]:
    tags = {**partition_tags(first, last), OWNER_TAG: owner_tag(os.getpid(), run_id)}
    tags |= {BACKFILL_TAG: "true"} if asked.backfill else {}
    return tags | tags_for(asked.slices) | {DAYS_TAG: span_text(first, last)} | why_now()


def _config(asked: Asked, not_published: Mapping[str, Mapping[date, str]]) -> dict[str, Any]:
    level = "INFO" if asked.verbose else "CRITICAL"
    config: dict[str, Any] = {"loggers": {"console": {"config": {"log_level": level}}}}
    lake: dict[str, Any] = {"force": True} if asked.force else {}
    if not_published:
        texts = {name: {day.isoformat(): why for day, why in days.items()} for name, days in not_published.items()}
        lake["not_published"] = texts
    if lake:
        config["resources"] = {"lakehouse": {"config": lake}}
    return config


def execute(instance: DagsterInstance, run: DagsterRun) -> Iterator[DagsterEvent]:
    """Execute a recorded run in this process and thread, handing over its events as they happen.

    An interrupt (Ctrl-C, SIGTERM) ends the run as cancelled; the caller sees the iterator end.
    """
    try:
        for event in execute_run_iterator(reconstructable(lake_job), run, instance):
            yield event
            if event.is_step_failure and event.step_failure_data.error_source.name == "INTERRUPT":
                instance.report_run_canceling(run, BY_SOMEBODY)
    finally:
        # A step that was stopped in the middle keeps its slot in the table's pool.
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


def _job_origin(job: str) -> RemoteJobOrigin:
    """Where the UI finds the run's job: it lists the run there, and can execute it again."""
    location = RegisteredCodeLocationOrigin(CODE_LOCATION)
    return RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), job)
