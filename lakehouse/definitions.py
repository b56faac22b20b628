"""What Dagster loads: assets from the tables, the job, the schedule and the resources. Starts nothing."""

from __future__ import annotations

from dagster import Definitions

from lakehouse.catalog import tables
from lakehouse.orchestration.alerts.sensor import alerts_sensor
from lakehouse.orchestration.assets import build_asset
from lakehouse.orchestration.automation import automation_sensor
from lakehouse.orchestration.freshness import freshness_checks, freshness_job, freshness_schedule
from lakehouse.orchestration.jobs import daily_schedule, lake_executor, whole_lake_job
from lakehouse.orchestration.online import online_assets, online_owners, online_sensors
from lakehouse.orchestration.quarantine import QUARANTINE_JOBS, quarantine_assets
from lakehouse.orchestration.resources import LakehouseResource, SparkEngine
from lakehouse.orchestration.upkeep import upkeep_checks, upkeep_job, upkeep_schedule

engine = SparkEngine()
fresh, tidy = freshness_checks(), upkeep_checks()
whole_lake = whole_lake_job(fresh, tidy)
online = online_assets()
freshness, upkeep = freshness_job(fresh), upkeep_job(tidy)

defs = Definitions(
    assets=[*(build_asset(table) for table in tables().values()), *quarantine_assets(), *online],
    asset_checks=[fresh, tidy],
    jobs=[whole_lake, freshness, upkeep, *QUARANTINE_JOBS],
    # Dagster refuses a schedule by days of a job without tables, as a new project has.
    schedules=[
        *([daily_schedule(whole_lake)] if tables() else []),
        freshness_schedule(freshness),
        upkeep_schedule(upkeep),
    ],
    sensors=[
        automation_sensor(whole_lake),
        alerts_sensor({table.id: table.owner for table in tables().values()} | online_owners()),
        *online_sensors(online),
    ],
    resources={"engine": engine, "lakehouse": LakehouseResource(engine=engine, force=False)},
    # One process and one Spark session a run; the default executor would start a JVM a step.
    executor=lake_executor,
)
