"""Nightly upkeep: small files are merged, dead ones removed and logs summed up, and a check of each table says so.

The step looks at the tables whoever runs it, and tidies them in the job `upkeep` alone. It starts no engine.
"""

from collections.abc import Iterator

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetObservation,
    AssetSelection,
    DagsterInstance,
    DefaultScheduleStatus,
    ScheduleDefinition,
    define_asset_job,
    multi_asset_check,
)
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from lakehouse.catalog import tables
from lakehouse.orchestration.instance import table_of, unfinished_runs
from lakehouse.orchestration.metadata import asset_key
from lakehouse.read.lake import table_path
from lakehouse.settings import UPKEEP_CRON, UPKEEP_OFF, get_settings
from lakehouse.versions.upkeep import Limits, Tidied, Untidy, tidy, untidy

CHECK = "tidy"
TIDIES = "lakehouse/tidies"
_BUILD_NOTHING = ("freshness", "upkeep")  # the jobs that only look or tidy
_SPARE_SECONDS = 1800  # for the table at hand when the time is over


def upkeep_checks() -> AssetChecksDefinition:
    """One step that tidies where its run is meant to, then judges every table by its log."""
    specs = [
        AssetCheckSpec(
            CHECK,
            asset=asset_key(table.id),
            description="No partition has many small files and the log is summed up; the job `upkeep` sees to it.",
        )
        for table in tables().values()
    ]

    @multi_asset_check(name=CHECK, specs=specs, can_subset=True)
    def judge(context: AssetCheckExecutionContext) -> Iterator[AssetCheckResult]:
        settings = get_settings()
        wanted = {key.asset_key for key in context.selected_asset_check_keys}
        done = _tidy(context) if TIDIES in context.run.tags else {}
        for table in tables().values():
            if asset_key(table.id) not in wanted:
                continue
            found = untidy(table_path(settings.root, table.id))
            problems = [each.problem for each in done.get(table.id, ()) if each.problem]
            yield AssetCheckResult(
                passed=not found.partitions and not problems,
                asset_key=asset_key(table.id),
                check_name=CHECK,
                severity=AssetCheckSeverity.WARN,
                description="; ".join([said_of(found), *problems]),
                metadata={
                    "files": found.files,
                    "files_to_merge": found.small,
                    "most_files_of_a_partition": found.most,
                    "log_entries_since_checkpoint": found.entries,
                    "bytes_freed": sum(each.bytes_freed for each in done.get(table.id, ())),
                },
            )

    return judge


def _tidy(context: AssetCheckExecutionContext) -> dict[str, list[Tidied]]:
    """Tidy all tables, each told as it is done; returns what was done by the table that it is of."""
    settings = get_settings()
    limits = Limits(settings.upkeep_minutes * 60.0, settings.upkeep_gb * 1e9)
    owners = {name: table.id for table in tables().values() for name in (table.id, table.quarantine_id)}
    done: dict[str, list[Tidied]] = {}
    for each in tidy(
        settings.root,
        list(tables().values()),
        limits,
        undo_days=settings.undo_days,
        busy=lambda: tables_of_runs(context.instance, context.run.run_id),
    ):
        context.log.info(_told(each))
        if each.changed and each.table in owners:
            observed = AssetObservation(asset_key(owners[each.table]), metadata=_figures(each))
            context.op_execution_context.log_event(observed)
        done.setdefault(owners.get(each.table, each.table), []).append(each)
    return done


def tables_of_runs(instance: DagsterInstance, own: str) -> set[str]:
    """The tables that runs which wait or are on will build, `layer.name`; another one's of all tables: all of them."""
    found: set[str] = set()
    for run in unfinished_runs(instance):
        # Its own run is on as well, and would keep it from every table.
        if run.run_id == own or run.job_name in _BUILD_NOTHING:
            continue
        names = set(tables()) if run.asset_selection is None else {table_of(key) for key in run.asset_selection}
        found |= names
    return found


def said_of(found: Untidy) -> str:
    """What is to be tidied, in words."""
    if not found.partitions:
        return f"{found.files} files, at most {found.most} in a partition; {found.entries} log entries to sum up"
    return (
        f"{len(found.partitions)} partition(s) with {found.small} small files to merge (of {found.files}). The job "
        "`upkeep` goes on with them at night; now: lakehouse compact"
    )


def _told(each: Tidied) -> str:
    if each.problem:
        return f"{each.table}: {each.problem}"
    if each.busy:
        return f"{each.table}: left alone, a run is building it"
    return (
        f"{each.table}: {each.files_before} files before, {each.files_after} after; {each.removed} dead files "
        f"({each.bytes_freed / 1e6:.1f} MB) and {each.log_entries_removed} log files removed; {each.left} partitions "
        "left for another night"
    )


def _figures(each: Tidied) -> dict[str, int | str]:
    return {
        "upkeep_of": each.table,
        "files_before": each.files_before,
        "files_after": each.files_after,
        "dead_files_removed": each.removed,
        "bytes_freed": each.bytes_freed,
        "log_files_removed": each.log_entries_removed,
        "partitions_left": each.left,
    }


def upkeep_job(checks: AssetChecksDefinition) -> UnresolvedAssetJobDefinition:
    """Every table, within the limits of a night."""
    # Dagster ends the run itself only where the job's own bound, looked at between tables, does not hold.
    seconds = int(get_settings().upkeep_minutes * 60) + _SPARE_SECONDS
    return define_asset_job(
        "upkeep",
        selection=AssetSelection.checks(checks),
        tags={TIDIES: "true", "dagster/max_runtime": seconds},
        description="Merges small files, removes dead ones and sums up logs; starts no engine and goes on where the "
        "last night stopped",
    )


def upkeep_schedule(job: UnresolvedAssetJobDefinition) -> ScheduleDefinition:
    """At `LAKEHOUSE_UPKEEP_CRON`, UTC."""
    cron = get_settings().upkeep_cron
    return ScheduleDefinition(
        name="nightly_upkeep",
        job=job,
        cron_schedule=UPKEEP_CRON if cron == UPKEEP_OFF else cron,
        execution_timezone="UTC",
        description="Merges small files of every table, removes dead ones and sums up logs; LAKEHOUSE_UPKEEP_CRON says "
        "when",
        # Switched off it still is there: without it Dagster would forget whether somebody had switched it on by hand.
        default_status=DefaultScheduleStatus.STOPPED if cron == UPKEEP_OFF else DefaultScheduleStatus.RUNNING,
    )
