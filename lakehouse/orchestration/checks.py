"""Asset checks as Dagster shows them: a check passes only where no day of the table fails it, whichever days ran last.

Each failed check of a day is an evaluation of that partition. Over them is one evaluation a check and run, which speaks
of every day of the table: it is read from the table's own log (`lakehouse.build.verdicts`), so that a run over a good
day does not turn the check of a bad one green.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetCheckSeverity,
    AssetCheckSpec,
    DagsterInstance,
    MetadataValue,
    TableMetadataValue,
    TableRecord,
)
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)

from lakehouse.build.result import BuildResult
from lakehouse.build.stale import all_waiting_days, published_days
from lakehouse.build.verdicts import INPUTS_FRESH, JUDGED_AFTER, Verdict, by_check, sentence
from lakehouse.checks.audit import blocking_checks, check_names
from lakehouse.checks.metrics import WARNS_ONLY, Outcome
from lakehouse.contracts import Table
from lakehouse.contracts.clock import CLOCKS_CHECK
from lakehouse.days import is_between, newest_day
from lakehouse.orchestration.instance import attempts
from lakehouse.orchestration.metadata import asset_key, legible, quarantine_metadata, rule_results
from lakehouse.read.lake import Lake
from lakehouse.records.depth import DEPTH_CHECK, judge_depth

MOST_DAYS_SHOWN = 100
SUMS_UP = "days_checked"  # metadata of an evaluation that speaks of all days, whose failures are evaluations too
FAILING = "days_failing"

FRESH = (
    "All that a day was computed from, directly or not, is published from its newest input. A warning: the day holds "
    "the last good data, or none, while what it reads failed or is not built yet"
)
AUDITED = "Judged before publishing: a day that fails with an error is not published, and the other days are"
WARNS = "Only warns: the day is published"


def check_specs(table: Table) -> list[AssetCheckSpec]:
    """The checks of a table, with what each means and whether it keeps a day from being published."""
    blocking = blocking_checks(table)
    named = check_names(table) | ({INPUTS_FRESH: FRESH} if table.upstream else {})
    return [
        AssetCheckSpec(
            name, asset=asset_key(table.id), description=_described(name, text, blocking), blocking=name in blocking
        )
        for name, text in named.items()
    ]


def _described(name: str, text: str, blocking: Collection[str]) -> str:
    if name in JUDGED_AFTER or name == INPUTS_FRESH:
        return f"{text}."
    return f"{text.removesuffix(WARNS_ONLY)}. {AUDITED if name in blocking else WARNS}."


def day_evaluations(table: Table, result: BuildResult) -> list[AssetCheckEvaluation]:
    """One evaluation for each failed check of each day, so that a day fails by its own name."""
    return [
        AssetCheckEvaluation(
            asset_key=asset_key(table.id),
            check_name=outcome.check,
            passed=False,
            severity=_severity(blocking=outcome.blocking),
            description=outcome.message,
            metadata=legible({"day": day.isoformat(), **outcome.values}),
            partition=day.isoformat(),
            blocking=outcome.check in blocking_checks(table),
        )
        for day, each in sorted(result.days.items())
        for outcome in each.outcomes
        if not outcome.passed
    ]


def not_fresh(table: Table, waiting: Mapping[date, str], shown: Collection[date]) -> list[AssetCheckEvaluation]:
    """One evaluation for each day that waits for what it reads, with what that is.

    Args:
        table: the table.
        waiting: by day, what it waits for.
        shown: days that readers see rows of.
    """
    return [
        AssetCheckEvaluation(
            asset_key=asset_key(table.id),
            check_name=INPUTS_FRESH,
            passed=False,
            severity=AssetCheckSeverity.WARN,
            description=waits(day, why, shown),
            metadata={"day": day.isoformat()},
            partition=day.isoformat(),
            blocking=False,
        )
        for day, why in sorted(waiting.items())
    ]


def waits(day: date, why: str, shown: Collection[date]) -> str:
    """What readers see of a day that waits for its inputs, and why.

    Args:
        day: the day.
        why: what it waits for.
        shown: days that readers see rows of; one that was built before anything that it reads has none.
    """
    return f"{'holds the last good data' if day in shown else 'has no rows yet'}: {why}"


def evaluations(
    table: Table,
    failed: Sequence[Verdict],
    result: BuildResult | None = None,
    waiting: Mapping[date, str] | None = None,
    shown: Collection[date] = (),
) -> list[AssetCheckEvaluation]:
    """What each check of the table says of all its days.

    Args:
        table: whose checks.
        failed: the checks that fail, of days and of the whole table.
        result: what was built just now, for its figures; None: nothing.
        waiting: the days whose inputs are not fresh, and why; None: not judged.
        shown: days that readers see rows of.
    """
    failing = by_check(failed)
    found = [_over_all(table, name, failing.get(name, ()), result) for name in check_names(table)]
    return found + ([_inputs(table, waiting, shown)] if table.upstream and waiting is not None else [])


def _inputs(table: Table, waiting: Mapping[date, str], shown: Collection[date]) -> AssetCheckEvaluation:
    told = [Verdict(INPUTS_FRESH, day, False, waits(day, why, shown)) for day, why in waiting.items()]
    return _over_all(table, INPUTS_FRESH, by_check(told).get(INPUTS_FRESH, ()), None)


def align(instance: DagsterInstance, table: Table, failed: Sequence[Verdict]) -> list[str]:
    """Have Dagster show how the checks of a table stand, where no run has said so; returns the checks it is told of.

    A restore, a swap or a file that was withdrawn changes what is true without a run, and a run that broke says
    nothing of the checks that it was to judge.

    Args:
        instance: where Dagster keeps evaluations.
        table: the table.
        failed: its checks that fail now.
    """
    return _tell(instance, evaluations(table, failed))


def align_inputs(instance: DagsterInstance, lake: Lake) -> None:
    """Have Dagster show which days wait for their inputs, of every table, where no run has said so.

    A run whose first table has no good day ends there: the tables below judge nothing, and a file that is fixed with
    its old bytes needs no run at all.

    Args:
        instance: where Dagster keeps evaluations.
        lake: where the tables are.
    """
    waiting = all_waiting_days(lake)
    first, last = lake.settings.first_day, newest_day(lake.settings.last_day, datetime.now(UTC))
    for table in lake.tables.values():
        if not table.upstream:
            continue
        published = published_days(lake, table)
        # Of days that were never published, those that a run was to build: nobody has missed the others yet.
        missed = published.union(attempts(instance, table.id)) if waiting[table.id] else published
        told = {day for day in missed if is_between(day, first, last)}  # a stream is at work on the day that is on
        mine = {day: why for day, why in waiting[table.id].items() if day in told}
        _tell(instance, [_inputs(table, mine, lake.snapshot(table.id).by_day(table.day_column))])


def _tell(instance: DagsterInstance, found: Sequence[AssetCheckEvaluation]) -> list[str]:
    """Report those of some evaluations that Dagster does not show yet; returns their checks."""
    newest = instance.event_log_storage.get_latest_asset_check_execution_by_key([e.asset_check_key for e in found])
    told = []
    for evaluation in found:
        record = newest.get(evaluation.asset_check_key)
        # Where no run has judged the table yet, Dagster shows nothing that could be wrong.
        if record is None or _is_being_judged(instance, record):
            continue
        shown = _shown(record)
        # The same verdict over other days is news as well: the page would go on naming a day that is well by now.
        if (
            shown is None
            or shown.partition
            or shown.passed != evaluation.passed
            or (FAILING in shown.metadata and _days_told(shown) != _days_told(evaluation))
        ):
            instance.report_runless_asset_event(evaluation)
            told.append(evaluation.check_name)
    return told


def _days_told(evaluation: AssetCheckEvaluation) -> tuple[Any, list[str]]:
    """How many days fail by an evaluation, and those that it names."""
    listed = evaluation.metadata.get("failing")
    days = [str(each.data["day"]) for each in listed.records] if isinstance(listed, TableMetadataValue) else []
    return evaluation.metadata[FAILING].value, days


def _shown(record: AssetCheckExecutionRecord) -> AssetCheckEvaluation | None:
    """What Dagster shows of a check; nothing where the run that was to judge it ended before."""
    # Dagster (1.13) gives what it noted when the run was made, in place of an evaluation.
    return None if record.status == AssetCheckExecutionRecordStatus.PLANNED else record.evaluation


def _is_being_judged(instance: DagsterInstance, record: AssetCheckExecutionRecord) -> bool:
    """Whether a run that is on will say itself how the check stands."""
    if record.status != AssetCheckExecutionRecordStatus.PLANNED:
        return False
    run = instance.get_run_by_id(record.run_id)
    return run is not None and not run.is_finished


def _over_all(table: Table, name: str, failing: Sequence[Verdict], result: BuildResult | None) -> AssetCheckEvaluation:
    built = sorted(result.days.items()) if result else []
    outcomes = [outcome for _, each in built for outcome in each.outcomes if outcome.check == name]
    metadata: dict[str, Any]
    if name not in JUDGED_AFTER:
        metadata = {SUMS_UP: len(outcomes), FAILING: len(failing), **_figures(outcomes)}
        metadata |= rule_results(table, result.days.values()) if result and name == "row_rules" else {}
    else:
        metadata = _judged_after(name, result) if result else {}
    if failing and failing[0].day is not None:
        records = [TableRecord({"day": str(each.day), "found": each.found}) for each in failing[:MOST_DAYS_SHOWN]]
        metadata["failing"] = MetadataValue.table(records=records)
    return AssetCheckEvaluation(
        asset_key=asset_key(table.id),
        check_name=name,
        passed=not failing,
        severity=_severity(blocking=any(each.blocking for each in failing)),
        description=sentence(failing) if failing else _well(table, name, outcomes, result),
        metadata=legible(metadata),
        blocking=name in blocking_checks(table),
    )


def _judged_after(name: str, result: BuildResult) -> dict[str, Any]:
    """Figures of a check that looks at what the table holds, whatever days were built."""
    return quarantine_metadata(result) if name == DEPTH_CHECK else _clock_figures(result)


def _clock_figures(result: BuildResult) -> dict[str, Any]:
    return {
        "producers": len({each.producer for each in result.producers}),
        "rows_ahead": sum(each["ahead"] + each["far_ahead"] for each in result.producers),
        "rows_impossible": sum(sum(each.wrong.values()) for each in result.producers),
    }


def _well(table: Table, name: str, outcomes: Sequence[Outcome], result: BuildResult | None) -> str:
    if name == DEPTH_CHECK and result is not None and result.quarantine is not None:
        return judge_depth(table, result.quarantine)[1]
    if name == CLOCKS_CHECK:
        return "no clock of a producer is wrong"
    if name == INPUTS_FRESH:
        return "every day is computed from the newest input"
    if not outcomes:
        return "no day fails it; nothing was built"
    if len(outcomes) == 1:
        return outcomes[0].message
    return f"no day fails it; {len(outcomes)} were checked"


def _figures(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """The numbers of one day or of many under the same names: counts added up, of shares and the like the highest."""
    named: dict[str, list[float]] = {}
    for outcome in outcomes:
        for key, value in outcome.values.items():
            if isinstance(value, int | float):
                named.setdefault(key, []).append(value)
    added = ("failed/", "unknown/")
    return {k: sum(v) if k in _ADDED or k.startswith(added) else max(v) for k, v in sorted(named.items())}


_ADDED = {
    "rows",
    "quarantined",
    "duplicates",
    "rows_in",
    "rows_out",
    "late_rows",
    "rows_of_earlier_days",
    "rows_of_later_days",
}


def _severity(*, blocking: bool) -> AssetCheckSeverity:
    return AssetCheckSeverity.ERROR if blocking else AssetCheckSeverity.WARN
