"""The check `data_fresh` of every table: is the newest day that is due complete, by the time the data speaks of.

Dagster's freshness policies look at when a table was last materialized, which a backfill of an old day makes green.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetSelection,
    ScheduleDefinition,
    define_asset_job,
    multi_asset_check,
)
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from lakehouse.build.freshness import freshness
from lakehouse.catalog import lake_without_engine, tables
from lakehouse.contracts import Table
from lakehouse.orchestration.metadata import asset_key
from lakehouse.settings import get_settings

CHECK = "data_fresh"


def freshness_checks() -> AssetChecksDefinition:
    """One step that judges all tables from the figures their commits keep; it needs no engine."""
    specs = [
        AssetCheckSpec(
            CHECK,
            asset=asset_key(table.id),
            description=f"{_owed(table)} complete {table.freshness.within / timedelta(hours=1):g} h after its end; at "
            f"most {table.freshness.budget:.0%} of a month's days were not in time",
        )
        for table in tables().values()
    ]

    @multi_asset_check(name=CHECK, specs=specs, can_subset=True)
    def judge(context: AssetCheckExecutionContext) -> Iterator[AssetCheckResult]:
        wanted = {key.asset_key for key in context.selected_asset_check_keys}
        now, lake = datetime.now(UTC), lake_without_engine(get_settings())
        for table in tables().values():
            if asset_key(table.id) not in wanted:
                continue
            found = freshness(lake, table, now)
            passed = found.met and found.budget_left >= 0
            yield AssetCheckResult(
                passed=passed,
                asset_key=asset_key(table.id),
                check_name=CHECK,
                severity=AssetCheckSeverity.ERROR if not found.met else AssetCheckSeverity.WARN,
                description=found.text(),
                metadata={
                    "due": str(found.due),
                    "complete_up_to": str(found.newest or "never"),
                    "hours_behind": -1.0 if found.behind is None else round(found.behind / timedelta(hours=1), 1),
                    "missed_days": len(found.missed),
                    "judged_days": len(found.judged),
                    "budget_left": round(found.budget_left, 4),
                },
            )

    return judge


def _owed(table: Table) -> str:
    days = table.freshness.every.days
    return "Each day is" if days == 1 else f"One of {days} days is"


def freshness_job(checks: AssetChecksDefinition) -> UnresolvedAssetJobDefinition:
    """These checks alone."""
    return define_asset_job(
        "freshness",
        selection=AssetSelection.checks(checks),
        description="Checks that each table is complete by the time its data speaks of (data_fresh); starts no engine",
    )


def freshness_schedule(job: UnresolvedAssetJobDefinition) -> ScheduleDefinition:
    """Every hour, ten minutes past."""
    return ScheduleDefinition(
        name="hourly_freshness",
        job=job,
        cron_schedule="10 * * * *",
        execution_timezone="UTC",
        description="Executes the check data_fresh of every table, which looks at the time that the data speaks of",
    )
