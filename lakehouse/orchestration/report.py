"""What Dagster shows of a build: metadata of each partition, and check results."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any

import pyarrow.parquet as pq
from dagster import (
    AssetCheckEvaluation,
    AssetCheckResult,
    AssetCheckSeverity,
    AssetKey,
    MetadataValue,
    TableRecord,
)

from lakehouse.contracts import Table
from lakehouse.contracts.clock import CLOCKS_CHECK
from lakehouse.tables.audit import check_names
from lakehouse.tables.clocks import judge_clocks
from lakehouse.tables.failures import DEPTH_CHECK, judge_depth
from lakehouse.tables.metrics import Outcome
from lakehouse.tables.publish import UNCHANGED, BuildResult, DayResult

PREVIEW_ROWS = 5
MOST_DAYS_SHOWN = 100
LONGEST_CELL = 40
INPUTS_FRESH = "inputs_fresh"
JUDGED_AFTER = (DEPTH_CHECK, CLOCKS_CHECK)  # publishing, which they never block
SUMS_UP = "days_checked"  # metadata of a check result that speaks of several days, whose failures are evaluations too


def asset_key(table: str) -> AssetKey:
    """`layer.name` as an asset key."""
    return AssetKey(table.split("."))


def day_metadata(table: Table, result: BuildResult, day: date, uri: str, total_rows: int) -> dict[str, Any]:
    """Metadata of one partition's materialization; numbers are plotted over time by the UI."""
    each = result.days[day]
    m = each.metrics
    failed = [o.check for o in each.outcomes if not o.passed]
    metadata: dict[str, Any] = {
        "dagster/partition_row_count": m.rows,
        **({} if m.rows_in is None else {"rows_in": m.rows_in}),
        "quarantined": m.quarantined,
        **{f"quarantined/{rule}": count for rule, count in m.failures.items()},
        **{name: float(number) for name, number in m.figures.items()},
        # Of an unchanged day the log tells the rows, not the duplicates that were left out.
        **({} if each.status == UNCHANGED else {"duplicates": m.duplicates}),
        "dagster/row_count": total_rows,
        "status": each.status,
        "checks": f"{len(each.outcomes) - len(failed)} of {len(each.outcomes)} passed"
        + (f"; failed: {', '.join(failed)}" if failed else ""),
        "commit_version": result.version,
        "duration_seconds": round(sum(result.seconds.values()), 3),
        "dagster/uri": uri,
    }
    for source, version in result.inputs.items():
        metadata[f"reads/{source}"] = MetadataValue.asset(asset_key(source))
        metadata[f"reads_version/{source}"] = version
    if table.landing:
        name = f"{day}.csv.gz" if table.landing.format == "csv" else f"{day}/"
        metadata["reads/landing"] = MetadataValue.path(f"landing/{table.landing.source}/{name}")
    metadata |= clock_metadata(result, day)
    if result.facts and day == max(result.days):
        metadata |= result.facts
    if each.sample is not None:
        metadata["preview"] = MetadataValue.md(preview(table, each))
    if each.status == UNCHANGED:
        metadata["checks"] = "unchanged: inputs and code are those of the published rows"
    return metadata


def older_code_metadata(older: Mapping[str, Sequence[date]]) -> dict[str, Any]:
    """How many published days of the table other code built, and which code; the number is plotted by the UI."""
    told = ", ".join(f"{code}: {len(days)} day(s)" for code, days in older.items())
    return {
        "older_code_days": sum(len(days) for days in older.values()),
        "older_code": f"{told}; `lakehouse backfill --outdated` builds them again" if told else "none",
    }


def preview(table: Table, each: DayResult) -> str:
    """The first five published rows as Markdown, without personal data and technical columns."""
    shown = [c for c in table.columns if c not in table.pii and not c.startswith("_") and c not in table.partition_by]
    assert each.sample is not None
    with pq.ParquetFile(each.sample) as file:
        batch = next(file.iter_batches(batch_size=PREVIEW_ROWS, columns=shown), None)
    rows = batch.to_pylist() if batch is not None else []
    lines = ["| " + " | ".join(shown) + " |", "|" + "---|" * len(shown)]
    lines += ["| " + " | ".join(_cell(row[c]) for c in shown) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return textwrap.shorten(text, LONGEST_CELL, placeholder="…").replace("|", "\\|")


def check_results(table: Table, result: BuildResult) -> list[AssetCheckResult]:
    """One result a check over all days of the run; days that failed are listed."""
    judged = [_summary(table, result, name) for name in check_names(table) if name not in JUDGED_AFTER]
    return judged + _depth_check(table, result) + _clocks_check(table, result)


def quarantine_metadata(result: BuildResult) -> dict[str, Any]:
    """Depth, age and rows by rule of the whole quarantine; numbers are plotted over time by the UI."""
    depth = result.quarantine
    if depth is None:
        return {}
    return {
        "quarantine_rows": depth.rows,
        "quarantine_age_days": round(depth.age.total_seconds() / 86400, 2),
        **({"quarantine_discarded": depth.discarded} if depth.discarded else {}),
        **{f"quarantine_rows/{rule}": number for rule, number in depth.by_rule.most_common()},
    }


def _depth_check(table: Table, result: BuildResult) -> list[AssetCheckResult]:
    if result.quarantine is None or DEPTH_CHECK not in check_names(table):
        return []
    passed, text = judge_depth(table, result.quarantine)
    return [
        AssetCheckResult(
            passed=passed,
            asset_key=asset_key(table.id),
            check_name=DEPTH_CHECK,
            severity=AssetCheckSeverity.WARN,
            description=text,
            metadata=quarantine_metadata(result),
        )
    ]


def clock_metadata(result: BuildResult, day: date) -> dict[str, Any]:
    """How the clocks of the day's producers are; numbers are plotted over time by the UI."""
    shown: dict[str, Any] = {}
    for each in result.producers:
        if each.day == day:
            shown[f"clock/{each.producer}/rows_ahead"] = each["ahead"] + each["far_ahead"]
            shown[f"clock/{each.producer}/minutes_ahead"] = round(max(each["ahead_p50"], each["far_ahead_p50"]) / 60, 1)
            shown[f"clock/{each.producer}/rows_impossible"] = sum(each.wrong.values())
    return shown


def _clocks_check(table: Table, result: BuildResult) -> list[AssetCheckResult]:
    if table.clock is None:
        return []
    passed, text = judge_clocks(table.clock, result.producers)
    return [
        AssetCheckResult(
            passed=passed,
            asset_key=asset_key(table.id),
            check_name=CLOCKS_CHECK,
            severity=AssetCheckSeverity.WARN,
            description=text,
            metadata={
                "producers": len({each.producer for each in result.producers}),
                "rows_ahead": sum(each["ahead"] + each["far_ahead"] for each in result.producers),
                "rows_impossible": sum(sum(each.wrong.values()) for each in result.producers),
            },
        )
    ]


def failed_evaluations(table: Table, result: BuildResult) -> list[AssetCheckEvaluation]:
    """One evaluation for each failed check of each day, so that a day of a range fails by its own name."""
    return [
        AssetCheckEvaluation(
            asset_key=asset_key(table.id),
            check_name=outcome.check,
            passed=False,
            severity=_severity(outcome),
            description=outcome.message,
            metadata=_metadata(outcome),
            partition=day.isoformat(),
        )
        for day, each in sorted(result.days.items())
        for outcome in each.outcomes
        if not outcome.passed
    ]


def not_fresh(table: Table, waiting: Mapping[date, str]) -> list[AssetCheckEvaluation]:
    """One evaluation for each day that holds the last good data of what it reads, with what that is."""
    return [
        AssetCheckEvaluation(
            asset_key=asset_key(table.id),
            check_name=INPUTS_FRESH,
            passed=False,
            severity=AssetCheckSeverity.WARN,
            description=f"holds the last good data: {why}",
            metadata={"day": day.isoformat()},
            partition=day.isoformat(),
        )
        for day, why in sorted(waiting.items())
    ]


def inputs_fresh(table: Table, days: Sequence[date], waiting: Mapping[date, str]) -> list[AssetCheckResult]:
    """The result of `inputs_fresh` over all days of the run; none for a table that reads no table."""
    if not table.upstream:
        return []
    text = f"{len(days) - len(waiting)} of {len(days)} days are computed from the newest input"
    if waiting:
        day = min(waiting)
        text = f"{text}; {day} holds the last good data: {waiting[day]}"
    one = {"day": days[0].isoformat()} if len(days) == 1 else {SUMS_UP: len(days), "days_failed": len(waiting)}
    return [
        AssetCheckResult(
            passed=not waiting,
            asset_key=asset_key(table.id),
            check_name=INPUTS_FRESH,
            severity=AssetCheckSeverity.WARN,
            description=text,
            metadata=one,
        )
    ]


def _summary(table: Table, result: BuildResult, name: str) -> AssetCheckResult:
    outcomes = [(day, o) for day, each in sorted(result.days.items()) for o in each.outcomes if o.check == name]
    failed = [(day, o) for day, o in outcomes if not o.passed]
    key = asset_key(table.id)
    rules = rule_results(table, result.days.values()) if name == "row_rules" else {}
    if len(outcomes) == 1:
        outcome = outcomes[0][1]
        return AssetCheckResult(
            passed=outcome.passed,
            asset_key=key,
            check_name=name,
            severity=_severity(outcome),
            description=outcome.message,
            metadata={**_metadata(outcome), **rules},
        )
    if not outcomes:
        text = f"nothing was built: {len(result.days)} unchanged day(s) stand as they were audited"
        return AssetCheckResult(passed=True, asset_key=key, check_name=name, description=text, metadata={SUMS_UP: 0})
    metadata: dict[str, Any] = {SUMS_UP: len(outcomes), "days_failed": len(failed)}
    for field in sorted({k for _, o in outcomes for k in o.values if k in _SUMMED or k.startswith(_SUMMED_BY_NAME)}):
        metadata[field] = sum(float(o.values.get(field, 0)) for _, o in outcomes)
    metadata |= rules
    if failed:
        records = [TableRecord({"day": day.isoformat(), "found": o.message}) for day, o in failed[:MOST_DAYS_SHOWN]]
        metadata["failed_days"] = MetadataValue.table(records=records)
    unchanged = len(result.days) - len(outcomes)
    text = f"{len(outcomes) - len(failed)} of {len(outcomes)} days passed"
    if unchanged:
        text += f"; {unchanged} unchanged days were not checked again"
    blocking = any(o.blocking for _, o in failed)
    return AssetCheckResult(
        passed=not failed,
        asset_key=key,
        check_name=name,
        severity=AssetCheckSeverity.ERROR if blocking else AssetCheckSeverity.WARN,
        description=text + (f": {failed[0][0]} {failed[0][1].message}" if failed else ""),
        metadata=metadata,
    )


_SUMMED = {"rows", "quarantined", "duplicates", "rows_in", "rows_out"}
_SUMMED_BY_NAME = ("failed/", "unknown/")


def rule_results(table: Table, results: Iterable[DayResult]) -> dict[str, Any]:
    """Of each row rule what it found in the run: its rows as a number, plotted over time, and all rules in a table."""
    days = [each.metrics.failures for each in results if each.status != UNCHANGED]
    rows = {rule.name: sum(each.get(rule.name, 0) for each in days) for rule in table.rules}
    if not days or not rows:
        return {}
    records = [
        TableRecord(
            {
                "rule": rule.name,
                "result": "passed" if not rows[rule.name] else "broken",
                "rows": rows[rule.name],
                "days": sum(1 for each in days if each.get(rule.name)),
                "a sound row": rule.describes,
            }
        )
        for rule in table.rules
    ]
    return {**{f"failed/{name}": n for name, n in rows.items()}, "rules": MetadataValue.table(records)}


def _severity(outcome: Outcome) -> AssetCheckSeverity:
    return AssetCheckSeverity.ERROR if outcome.blocking else AssetCheckSeverity.WARN


def _metadata(outcome: Outcome) -> dict[str, Any]:
    return {"day": outcome.day.isoformat(), **outcome.values}
