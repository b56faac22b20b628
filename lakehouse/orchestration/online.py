"""Features online as assets: one for each table with features, there where the address of Redis is set.

Each is loaded when its table was published; the whole newest state, whatever days were published: it has no partitions.
"""

import warnings
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from dagster import (
    AllPartitionMapping,
    AssetCheckResult,
    AssetCheckSpec,
    AssetDep,
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    AutomationCondition,
    AutomationConditionSensorDefinition,
    BetaWarning,
    DefaultSensorStatus,
    Failure,
    FreshnessPolicy,
    MaterializeResult,
    RetryRequested,
    asset,
)

from lakehouse.catalog import lake_without_engine, tables
from lakehouse.contracts import Table
from lakehouse.contracts.features import feature_tables
from lakehouse.contracts.graph import with_upstream
from lakehouse.errors import LakehouseError
from lakehouse.online.address import redis_url
from lakehouse.online.load import Loaded, lake_now, load
from lakehouse.online.parity import Certificate, verify
from lakehouse.online.store import opened
from lakehouse.orchestration.instance import ONLINE, table_of
from lakehouse.orchestration.metadata import asset_key
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.orchestration.retries import MAX_RETRIES, wait_before
from lakehouse.settings import get_settings
from lakehouse.spark.transient import is_transient
from lakehouse.spark.warm import working_on

COUNT, PARITY = "online_count", "online_parity"
DAYS_END = "1 0 * * *"  # a minute after, UTC
TEN_MINUTES = "*/10 * * * *"


def online_key(table: Table) -> AssetKey:
    """Of the features of a table online."""
    return AssetKey([ONLINE, *asset_key(table.id).path])


def online_owners() -> dict[str, str]:
    """Who owns what is online, by how alerts name it."""
    return {table_of(online_key(each)): each.owner for each in feature_tables(tables().values())}


def online_assets() -> list[AssetsDefinition]:
    """One for each table with features; none where no address of Redis is set."""
    if get_settings().redis_url is None:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=BetaWarning)
        return [_asset(each) for each in feature_tables(tables().values())]


def online_sensors(assets: list[AssetsDefinition]) -> list[AutomationConditionSensorDefinition]:
    """What loads them when their tables were published."""
    if not assets:
        return []
    keys = [key for each in assets for key in each.keys]
    return [
        AutomationConditionSensorDefinition(
            "features_online", target=keys, default_status=DefaultSensorStatus.RUNNING, minimum_interval_seconds=30
        )
    ]


def _asset(table: Table) -> AssetsDefinition:
    settings = get_settings()
    within = table.freshness.age

    @asset(
        key=online_key(table),
        deps=[AssetDep(asset_key(table.id), partition_mapping=AllPartitionMapping())],
        group_name=ONLINE,
        owners=[table.owner],
        kinds={"redis"},
        tags={"layer": ONLINE},
        description=f"The newest row of each entity of {table.id} that may be used, in Redis",
        code_version=table.code_version,
        # As of its table: where the data has ended, nothing is due any more.
        freshness_policy=None if settings.last_day else FreshnessPolicy.time_window(fail_window=within),
        automation_condition=_when(table),
        check_specs=[
            AssetCheckSpec(COUNT, asset=online_key(table), description="As many entities are online as Delta has"),
            AssetCheckSpec(
                PARITY, asset=online_key(table), description="What is served is what Delta has, as known then and now"
            ),
        ],
        pool=f"{ONLINE}_{table.layer}_{table.name}",
    )
    def compute(context: AssetExecutionContext, lakehouse: LakehouseResource) -> Iterator[Any]:
        yield from _run(context, lakehouse, table)

    made: AssetsDefinition = compute
    return made


def _when(table: Table) -> Any:
    """After its table was published, and after each day's end, when rows of that day may first be used.

    A stream publishes every few seconds: what it feeds is looked at every ten minutes. Features that are served
    `while_open` it loads itself.
    Not `eager`: that waits for ever for the table's days that nothing is published of.
    """
    due: Any = AutomationCondition.any_deps_updated() | AutomationCondition.cron_tick_passed(DAYS_END)
    is_due = due.since_last_handled() & ~AutomationCondition.in_progress() & ~AutomationCondition.any_deps_in_progress()
    if _is_streamed(table):
        is_due &= AutomationCondition.cron_tick_passed(TEN_MINUTES)
    return is_due.with_label("published")


def _is_streamed(table: Table) -> bool:
    """Whether a table reads a topic, directly or not, whose brokers are set."""
    topics = (each.topic for each in with_upstream(tables(), table))
    return any(topic is not None and get_settings().source_url(topic.source) is not None for topic in topics)


def _run(context: AssetExecutionContext, lakehouse: LakehouseResource, table: Table) -> Iterator[Any]:
    settings = get_settings()
    try:
        url, now = redis_url(settings), lake_now(settings.last_day)
        with working_on(table=table.id, days="online", run=context.run.run_id):
            done = load(lakehouse.lake(), url, table, now, told=context.log.info)
        with opened(url) as store:
            found = verify(lake_without_engine(settings), store, table, now, version=done.delta_version)
    except LakehouseError as error:
        if is_transient(error) and context.retry_number < MAX_RETRIES:
            raise RetryRequested(MAX_RETRIES, wait_before(context.retry_number + 1)) from error
        raise Failure(str(error), allow_retries=False) from error
    yield MaterializeResult(metadata=_metadata(done))
    yield from judged(table, found, now)


def _metadata(done: Loaded) -> dict[str, Any]:
    return {
        "delta_version": done.delta_version,
        "rows_written": done.put.written,
        "rows_there_already": done.put.same,
        "rows_skipped_as_older": done.put.older,
        "rows_removed": done.removed,
        "rows_expired": done.expired,
        "days_of_other_code": len(done.other_code),
        "superseded": done.superseded,
        "seconds": round(done.seconds, 2),
    }


def judged(table: Table, found: Certificate, now: datetime) -> Iterator[AssetCheckResult]:
    """What the checks say: numbers and where rows are from, and of people nothing but tokens."""
    newest: dict[str, Any] = {"delta_version": found.delta_version, "as_of": now.isoformat(timespec="seconds")}
    yield AssetCheckResult(
        passed=not (found.missing or found.extra),
        check_name=COUNT,
        asset_key=online_key(table),
        metadata={
            **newest, "entities": found.entities, "online": found.online, "missing": found.missing, "extra": found.extra
        },
    )  # fmt: skip
    listed = "\n".join(f"- {each.text()}" for each in found.mismatches)
    yield AssetCheckResult(
        passed=found.passed,
        check_name=PARITY,
        asset_key=online_key(table),
        metadata={
            **newest, "sampled": found.sampled, "values": found.values, "mismatched": found.mismatched,
            "versions_gone": found.gone, **({"mismatches": listed} if listed else {}),
        },
    )  # fmt: skip
