"""The one factory: a table's contract becomes its Dagster asset."""

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetDep,
    AssetExecutionContext,
    AssetMaterialization,
    AssetsDefinition,
    BetaWarning,
    Failure,
    FreshnessPolicy,
    MaterializeResult,
    Nothing,
    Output,
    RetryRequested,
    TimeWindowPartitionMapping,
    asset,
    in_process_executor,
)
from pyspark.errors import PySparkException

from lakehouse.build.build import build
from lakehouse.build.result import FAILED, UNCHANGED, BuildResult
from lakehouse.build.stale import days_of_older_code, published_days, waiting_days
from lakehouse.build.verdicts import table_verdicts, verdicts
from lakehouse.catalog import lake_without_engine, tables
from lakehouse.contracts import Input, Table
from lakehouse.errors import BadPartitionsError, LakehouseError
from lakehouse.orchestration.checks import check_specs, day_evaluations, evaluations, not_fresh
from lakehouse.orchestration.declared import code_reference, column_lineage, column_schema, report_link
from lakehouse.orchestration.ended import told_by_whom
from lakehouse.orchestration.instance import claim_run, is_unasked
from lakehouse.orchestration.metadata import (
    also_metadata,
    also_text,
    asset_key,
    day_metadata,
    landed_files,
    older_code_metadata,
    open_metadata,
    quarantine_metadata,
    refused,
)
from lakehouse.orchestration.partitions import asked_days, backfill_policy, daily_partitions
from lakehouse.orchestration.quarantine import news
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.orchestration.retries import MAX_RETRIES, SPARK_ERROR, wait_before
from lakehouse.orchestration.slices import slicing_of
from lakehouse.read.lake import Lake, PinnedLake
from lakehouse.settings import get_settings
from lakehouse.spark.cluster_end import ended
from lakehouse.spark.progress import QUERIES, Seldom
from lakehouse.spark.transient import is_transient
from lakehouse.spark.warm import working_on
from lakehouse.texts import counted, days_text
from lakehouse.transforms.addresses import without_addresses

WAITS = "waits for "  # begins the reason of a day whose input was not published
# Dagster's own mark (dagster 1.13) for an output whose events the step logs itself: some days of the step are
# published and logged one by one, the others are not, and an ordinary output would log all of them.
LOGGED_BY_STEP = {"__source_asset_observation__": True}


def build_asset(table: Table) -> AssetsDefinition:
    """The partitioned asset of a table, with its checks, freshness, lineage and policies."""
    with warnings.catch_warnings():
        # Backfill policies and open-ended windows are "beta" in the pinned Dagster; the definition tests cover them.
        warnings.simplefilter("ignore", category=BetaWarning)
        return _build_asset(table)


def _build_asset(table: Table) -> AssetsDefinition:
    upstream = {each.table: tables()[each.table] for each in table.upstream.values()}

    @asset(  # type: ignore[call-overload, untyped-decorator]
        key=asset_key(table.id),
        partitions_def=daily_partitions(),
        deps=[_dep(each) for each in table.upstream.values()],
        check_specs=check_specs(table),
        group_name=table.layer,
        owners=[table.owner],
        kinds={"pyspark", "deltalake", table.layer},
        tags={"layer": table.layer, **({"pii": "true"} if table.pii else {})},
        description=table.description,
        code_version=table.code_version,
        metadata={
            "dagster/table_name": table.id,
            "dagster/column_schema": column_schema(table, upstream),
            "dagster/column_lineage": column_lineage(table, upstream),
            **report_link(table),
            **code_reference(table),
            "key": ", ".join(table.key) or "none: rows are as they arrived",
            "quarantine": table.quarantine_id if table.rules else "none: the table has no row rules",
        },
        freshness_policy=_freshness_policy(table),
        backfill_policy=backfill_policy(),
        pool=pool_of(table),
        op_tags={"lakehouse/table": table.id},
        dagster_type=Nothing,
    )
    def compute(context: AssetExecutionContext, lakehouse: LakehouseResource) -> Iterator[Any]:
        with told_by_whom(context.instance, context.run.run_id):
            yield from _run(context, lakehouse, table)

    made: AssetsDefinition = compute
    return made


def _freshness_policy(table: Table) -> FreshnessPolicy | None:
    """By when the table was last materialized; none where the lake's data has ended, and so nothing is due any more."""
    return None if get_settings().last_day else FreshnessPolicy.time_window(fail_window=table.freshness.age)


def pool_of(table: Table) -> str | None:
    """The pool, of one step at a time, of a table whose runs exclude each other; None where they do not.

    Replacing days is safe beside other runs, and a run that loses a race for the same days tries again. But an upsert
    reads the whole table it replaces days of, and of two intakes one would always be in vain.
    """
    return f"{table.layer}_{table.name}" if table.upsert or table.taken is not None else None


def _dep(each: Input) -> AssetDep:
    if each.reads_other_days:
        mapping = TimeWindowPartitionMapping(
            start_offset=-each.days_before, end_offset=each.days_after, allow_nonexistent_upstream_partitions=True
        )
        return AssetDep(asset_key(each.table), partition_mapping=mapping)
    return AssetDep(asset_key(each.table))


def _run(context: AssetExecutionContext, lakehouse: LakehouseResource, table: Table) -> Iterator[Any]:
    if context.job_def.executor_def.name == in_process_executor.name:  # this process is then the whole run's
        claim_run(context.instance, context.run)
    with _retried(context):
        days = asked_days(context.run.tags)
    bad = _held_back(context.run.run_id, lakehouse, table, days)
    asked = [day for day in days if day not in bad]
    held = dict(bad)
    doing = working_on(table=table.id, days=days_text(asked), run=context.run.run_id)
    with _retried(context), QUERIES.watched(Seldom(context.log.info)), doing:
        result = _built(context, lakehouse, table, asked)
    failed = {day: result.days[day].reason for day in result.with_status(FAILED)}
    good = [day for day in asked if day not in failed]
    with _retried(context):
        metadata = _metadata_of(lakehouse, table, result, good)
        found, waiting = judged(PinnedLake(get_settings(), tables()), table, result, days, held)
    _observe(context, result, asked)
    bad.update(failed)
    _log_summary(context, result, good, bad)
    for day in waiting.keys() & metadata.keys():
        metadata[day] |= {"inputs_not_fresh": waiting[day]}
    yield from _materialized(context, result, metadata, whole=not bad)
    yield from _evaluated(context, table, found)
    if failed or (bad and _is_told_here(context, lakehouse, table, good)):
        raise _failure(BadPartitionsError(table.id, failed | bad, len(good)))


def _built(
    context: AssetExecutionContext, lakehouse: LakehouseResource, table: Table, days: Sequence[date]
) -> BuildResult:
    if not days:
        return BuildResult(table, -1, {})
    run, force = context.run, lakehouse.force
    slicing, unasked = slicing_of(run.tags, context.log.info), is_unasked(run.tags)
    return build(lakehouse.lake(), table, days, run_id=run.run_id, force=force, slicing=slicing, unasked=unasked)


def _is_told_here(
    context: AssetExecutionContext, lakehouse: LakehouseResource, table: Table, good: Sequence[date]
) -> bool:
    """Whether days that a table upstream refused fail this step too, and not only the one that refused them.

    A step without one good day would be green for nothing. And what an earlier run of the same backfill held back would
    be missing from a run that is green.
    """
    return not good or (bool(lakehouse.not_published) and not _feeds_this_run(context, table))


def _materialized(
    context: AssetExecutionContext, result: BuildResult, metadata: Mapping[date, Mapping[str, Any]], *, whole: bool
) -> Iterator[MaterializeResult[None] | Output[None]]:
    """Tell Dagster which days are materialized.

    Args:
        context: of the step.
        result: what was built.
        metadata: of the good days.
        whole: every day of the step is good.
    """
    if whole:
        for day, shown in metadata.items():
            context.add_asset_metadata(shown, partition_key=day.isoformat())
        yield MaterializeResult()
        return
    # Good days are materialized and flow on; bad ones are not, and the step of the table that refused them fails.
    for day, shown in metadata.items():
        of_day = AssetMaterialization(asset_key(result.table.id), partition=day.isoformat(), metadata=shown)
        context.log_event(of_day)
    for observation in refused(lake_without_engine(get_settings()), result.table, result):
        context.log_event(observation)
    if metadata:
        yield Output(None, metadata=LOGGED_BY_STEP)


def judged(
    now: Lake, table: Table, result: BuildResult, days: Sequence[date], held: Mapping[date, str]
) -> tuple[list[AssetCheckEvaluation], dict[date, str]]:
    """What the checks say of these days and, last, of all days; and which of these have inputs that are not fresh.

    Args:
        now: the lake as it is after the build.
        table: what was built.
        result: what became of it.
        days: that were to be built.
        held: by day, why it was not begun.
    """
    published = published_days(now, table, days)
    waiting = {**held, **waiting_days(now, table, published.union(days))} if table.upstream else {}
    failed = [*verdicts(now, table), *table_verdicts(now, table, depth=result.quarantine)]
    mine = {day: why for day, why in waiting.items() if day in days}
    shown = now.snapshot(table.id).by_day(table.day_column)
    of_days = [*day_evaluations(table, result), *not_fresh(table, mine, shown)]
    return [*of_days, *evaluations(table, failed, result, waiting, shown)], mine


def _evaluated(
    context: AssetExecutionContext, table: Table, found: Sequence[AssetCheckEvaluation]
) -> Iterator[Output[None]]:
    """Log what the checks say, and give the outputs by which Dagster knows that they were done.

    The evaluations themselves are logged: of one that is yielded, Dagster fails the step where it blocks and fails,
    though the days of this step may be well, and another day be the one that fails.
    """
    for evaluation in found:
        context.log_event(evaluation)
    for key in sorted(context.op_execution_context.selected_asset_check_keys):
        if key.asset_key == asset_key(table.id):
            yield Output(None, output_name=context.assets_def.get_output_name_for_asset_check_key(key))


@contextmanager
def _retried(context: AssetExecutionContext) -> Iterator[None]:
    """Ask Dagster for another attempt where an error may pass; no retry policy, for that would retry any error.

    Published days are skipped by their fingerprint, so a retry costs what is missing.
    """
    try:
        yield
    except Exception as error:
        if (gone := ended()) is not None:
            raise _failure(gone) from None
        if is_transient(error) and context.retry_number < MAX_RETRIES:
            wait = wait_before(context.retry_number + 1)
            context.log.warning(f"{type(error).__name__}: may pass; trying again in {wait:.0f} s")
            # Dagster stores the cause, and Spark's may quote values of rows.
            raise RetryRequested(MAX_RETRIES, wait) from (None if isinstance(error, PySparkException) else error)
        if isinstance(error, LakehouseError):
            raise _failure(error) from error
        if isinstance(error, PySparkException):
            # No cause, which Dagster would store. And no `error`: alerts quote what this project has written alone.
            raise Failure(without_values(error), {SPARK_ERROR: type(error).__name__}, allow_retries=False) from None
        raise


def without_values(error: PySparkException) -> str:
    """What Spark says went wrong, without the values of rows, which it puts between quotes, its plan and its stack."""
    text = re.split(r"\n\s*\n|\n\tat |\nJVM stacktrace|\n== |(?<=SQLSTATE: .{5});\n", str(error))[0].strip()
    shown = re.sub(r"'[^']*'", "'…'", without_addresses(text))
    return f"{type(error).__name__}: {shown}"


def _held_back(run_id: str, lakehouse: LakehouseResource, table: Table, days: list[date]) -> dict[date, str]:
    """The days whose inputs this run did not publish, with the reason; the caller adds those that fail themselves."""
    bad = lakehouse.held_back(run_id, table.id)
    for each in table.upstream.values():
        for day, reason in lakehouse.held_back(run_id, each.table).items():
            if day in days:
                bad[day] = reason if reason.startswith(WAITS) else f"{WAITS}{each.table}: {reason}"
    return bad


def _observe(context: AssetExecutionContext, result: BuildResult, asked: list[date]) -> None:
    """One event about the table's quarantine, where anything was built and the quarantine is not as it was shown."""
    if result.quarantine is None or asked == result.with_status(UNCHANGED):
        return
    if shown := news(context.instance, result.table, result.quarantine):
        context.log_event(shown)


def _metadata_of(
    lakehouse: LakehouseResource, table: Table, result: BuildResult, days: list[date]
) -> dict[date, dict[str, Any]]:
    lake = lakehouse.lake()
    total = lake.snapshot(table.id).live.rows
    uri = str(lake.path(table.id))
    landed = landed_files(lake, table, days)
    told = open_metadata(lake, table, days, datetime.now(UTC))
    metadata = {day: told[day] | day_metadata(table, result, day, uri, total, landed) for day in days}
    if days:
        upstream = {each.table: lake.table(each.table) for each in table.upstream.values()}
        # Once a run: the newest partition is what the UI reads schema and lineage from.
        metadata[days[-1]] |= quarantine_metadata(result) | also_metadata(result.also_replaced)
        metadata[days[-1]]["dagster/column_schema"] = column_schema(table, upstream)
        metadata[days[-1]]["dagster/column_lineage"] = column_lineage(table, upstream)
        metadata[days[-1]] |= older_code_metadata(days_of_older_code(lake, table))
    return metadata


def _feeds_this_run(context: AssetExecutionContext, table: Table) -> bool:
    selected = context.job_def.asset_layer.selected_asset_keys
    return any(
        asset_key(other.id) in selected and any(each.table == table.id for each in other.upstream.values())
        for other in tables().values()
    )


def _log_summary(context: AssetExecutionContext, result: BuildResult, good: list[date], bad: dict[date, str]) -> None:
    rows = sum(result.days[day].metrics.rows for day in good)
    seconds = ", ".join(f"{phase} {s:.2f}" for phase, s in result.seconds.items())
    unchanged = sum(1 for day in good if result.days[day].status == "unchanged")
    also = f"; also wrote {also_text(result.also_replaced)}" if result.also_replaced else ""
    context.log.info(  # one line, since each is an event that Dagster keeps
        f"{result.table.id}: {len(good) - unchanged} day(s) published, {unchanged} unchanged, {len(bad)} not; "
        f"{counted(rows, 'row')}, version {result.version} (seconds: {seconds}){also}"
    )
    if changed := result.table.changed_on_disk():
        context.log.warning(
            f"{result.table.id}: {', '.join(changed)} changed on disk since this process loaded the code; the rows are "
            f"of the loaded code, {result.table.code_version}. Reload it, then run: lakehouse backfill --older-code"
        )
    for day, reason in sorted(bad.items()):
        context.log.warning(f"{result.table.id} {day} was not published: {reason}")


def _failure(error: LakehouseError) -> Failure:
    return Failure(description=str(error), metadata={"error": type(error).__name__}, allow_retries=False)
