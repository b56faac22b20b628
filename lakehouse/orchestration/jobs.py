"""Jobs and the daily schedule."""

from __future__ import annotations

from dagster import (
    AssetChecksDefinition,
    AssetSelection,
    ScheduleDefinition,
    build_schedule_from_partitioned_job,
    define_asset_job,
    in_process_executor,
)
from dagster._core.definitions.partitions.partitioned_schedule import UnresolvedPartitionedAssetScheduleDefinition
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from lakehouse.orchestration.pool_slots import sleep_while_waiting

sleep_while_waiting()  # here, since whatever process executes a run has loaded its job

# A table's step fails where a day of it is refused, and what reads its good days goes on: a step that waits for the
# output of another takes it also from one that failed after it.
lake_executor = in_process_executor.configured(
    {"step_dependency_config": {"require_upstream_step_success": False}}, name=in_process_executor.name
)
MAX_RUNTIME = {"dagster/max_runtime": 14400}


def whole_lake_job(*without: AssetChecksDefinition) -> UnresolvedAssetJobDefinition:
    """Every table, bronze to gold, for the days asked for, without checks that are not about those days."""
    return define_asset_job(
        "lakehouse",
        selection=AssetSelection.all() - AssetSelection.checks(*without),
        tags=MAX_RUNTIME,
        description="Every table, bronze to gold",
    )


def daily_schedule(
    job: UnresolvedAssetJobDefinition,
) -> UnresolvedPartitionedAssetScheduleDefinition | ScheduleDefinition:
    """At 01:15 UTC, the day that has just ended, once its files have landed."""
    return build_schedule_from_partitioned_job(
        job, name="daily", hour_of_day=1, minute_of_hour=15, description="Yesterday, every table"
    )
