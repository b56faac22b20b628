"""Jobs and the daily schedule."""

from __future__ import annotations

from datetime import timedelta

from dagster import (
    AssetChecksDefinition,
    AssetSelection,
    RunRequest,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
    define_asset_job,
    in_process_executor,
    schedule,
)
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from lakehouse.days import is_between
from lakehouse.orchestration.pool_slots import sleep_while_waiting
from lakehouse.settings import get_settings

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


def daily_schedule(job: UnresolvedAssetJobDefinition) -> ScheduleDefinition:
    """At 01:15 UTC, the day that has just ended, once its files have landed.

    Dagster's own schedule of a partitioned job takes the newest partition, which may be the day that is on.
    """

    @schedule(
        job=job,
        name="daily",
        cron_schedule="15 1 * * *",
        execution_timezone="UTC",
        description="Yesterday, every table",
    )
    def daily(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        day = context.scheduled_execution_time.date() - timedelta(days=1)
        settings = get_settings()
        if not is_between(day, settings.first_day, settings.last_day):
            return SkipReason(f"{day} is no day of the lake (LAKEHOUSE_FIRST_DAY, LAKEHOUSE_LAST_DAY).")
        return RunRequest(day.isoformat(), partition_key=day.isoformat())

    return daily
