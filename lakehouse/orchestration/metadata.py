"""What Dagster shows of a build: the metadata of each partition."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

from dagster import (
    AssetKey,
    AssetObservation,
    MetadataValue,
    TableRecord,
)

from lakehouse.build.open_days import in_words, landed_by_now, open_until, still_open
from lakehouse.build.result import FAILED, UNCHANGED, BuildResult, DayResult
from lakehouse.checks.producers import span
from lakehouse.contracts import Table
from lakehouse.read.lake import Lake
from lakehouse.store import cells, parquet

PREVIEW_ROWS = 5
LONGEST_CELL = 40
LONGEST_KEY = 32  # characters of a metadata key; a longer one covers its value in Dagster's pages
MOST_DAYS = 10  # named in one text
_A_DAY = 24 * 60 * 60  # seconds; a clock that is further ahead is plotted so


def asset_key(table: str) -> AssetKey:
    """`layer.name` as an asset key."""
    return AssetKey(table.split("."))


def legible(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata with keys that leave room for their values: of a longer one, the beginning and four digits of its own.

    Rules and columns are named by contracts, as long as they please; the texts beside the numbers name them in full.
    """
    return {_legible(key): value for key, value in metadata.items()}


def _legible(key: str) -> str:
    if len(key) <= LONGEST_KEY:
        return key
    digits = hashlib.blake2b(key.encode(), digest_size=2).hexdigest()  # two keys may begin alike
    return f"{key[: LONGEST_KEY - 5]}…{digits}"


def day_metadata(
    table: Table,
    result: BuildResult,
    day: date,
    uri: str,
    total_rows: int,
    landed: Mapping[date, Sequence[Path]] | None = None,
) -> dict[str, Any]:
    """Metadata of one partition's materialization; numbers are plotted over time by the UI.

    Args:
        table: the table.
        result: what was built.
        day: the partition.
        uri: of the table.
        total_rows: of the table.
        landed: by day, the landed files it was read from, as paths under the root.
    """
    each = result.days[day]
    metadata: dict[str, Any] = {
        **_counts(each),
        "dagster/row_count": total_rows,
        "status": each.status,
        "checks": _passed(each),
        "commit_version": result.version,
        "duration_seconds": round(sum(result.seconds.values()), 3),
        "dagster/uri": uri,
    }
    metadata |= _inputs(result)
    if table.landing:
        files = (landed or {}).get(day, ())
        metadata |= _landed(files)
        if landed is not None and not files:
            metadata["checks"] = f"no file has landed; {metadata['checks']}"
    metadata |= clock_metadata(result, day)
    if result.facts and day == max(result.days):
        metadata |= result.facts
    if each.sample is not None:
        metadata["preview"] = MetadataValue.md(preview(table, each))
    if each.status == UNCHANGED:
        metadata["checks"] = "unchanged: inputs and code are those of the published rows"
    return legible(metadata)


def open_metadata(lake: Lake, table: Table, days: Collection[date], now: datetime) -> dict[date, dict[str, Any]]:
    """That a day is not over, by day; empty where it is, or where no rows of it come by then.

    Args:
        lake: where the tables are.
        table: whose days.
        days: the partitions.
        now: by which it is told.
    """
    # Of a range of years only its newest days may be open: these alone are asked until when.
    found = still_open(lake, table, days, now)
    until = {day: open_until(lake, table, day, now) if day in found else None for day in days}
    return {day: {"open": f"{in_words(at)}: built again as rows come"} if at else {} for day, at in until.items()}


def _counts(each: DayResult) -> dict[str, Any]:
    m = each.metrics
    return {
        "dagster/partition_row_count": m.rows,
        **({} if m.rows_in is None else {"rows_in": m.rows_in}),
        "quarantined": m.quarantined,
        **{f"failed/{rule}": count for rule, count in m.failures.items()},
        **{name: float(number) for name, number in m.figures.items()},
        # Of an unchanged day the log tells the rows, not the duplicates that were left out.
        **({} if each.status == UNCHANGED else {"duplicates": m.duplicates}),
    }


def _passed(each: DayResult) -> str:
    """How many checks of a day passed, and which did not: a warning fails no day."""
    told = f"{sum(o.passed for o in each.outcomes)} of {len(each.outcomes)} passed"
    for word, blocking in (("failed", True), ("warned", False)):
        if names := [o.check for o in each.outcomes if not o.passed and o.blocking == blocking]:
            told += f"; {word}: {', '.join(names)}"
    return told


def _inputs(result: BuildResult) -> dict[str, Any]:
    found: dict[str, Any] = {f"reads/{source}": MetadataValue.asset(asset_key(source)) for source in result.inputs}
    if result.inputs:  # under one short name: the interface gives a long one the place of its value
        versions = {source: "none yet" if version < 0 else version for source, version in result.inputs.items()}
        found["read_versions"] = ", ".join(f"{source} {version}" for source, version in versions.items())
    return found


def also_metadata(also: Mapping[date, int]) -> dict[str, Any]:
    """What an upsert wrote beside the days of the run, where its keys live; numbers are plotted by the UI."""
    if not also:
        return {}
    return {"also_written_days": len(also), "also_written_rows": sum(also.values()), "also_written": also_text(also)}


def also_text(also: Mapping[date, int]) -> str:
    """Days and rows in words, the first days by name."""
    listed = ", ".join(f"{day} ({rows:,})" for day, rows in sorted(also.items())[:MOST_DAYS])
    more = f" and {len(also) - MOST_DAYS} more" if len(also) > MOST_DAYS else ""
    return f"{sum(also.values()):,} row(s) of {len(also)} further day(s), where keys of this run live: {listed}{more}"


def older_code_metadata(older: Mapping[str, Sequence[date]]) -> dict[str, Any]:
    """How many published days of the table other code built, and which code; the number is plotted by the UI."""
    told = ", ".join(f"{code}: {len(days)} day(s)" for code, days in older.items())
    return {
        "older_code_days": sum(len(days) for days in older.values()),
        "older_code": f"{told}; `lakehouse backfill --older-code` builds what can be built again" if told else "none",
    }


def preview(table: Table, each: DayResult) -> str:
    """The first five published rows as Markdown, without personal data and technical columns."""
    shown = [c for c in table.columns if c not in table.pii and not c.startswith("_") and c not in table.partition_by]
    assert each.sample is not None
    with parquet.opened(each.sample) as file:
        batch = next(file.iter_batches(batch_size=PREVIEW_ROWS, columns=shown), None)
    rows = cells.rows(batch) if batch is not None else []
    lines = ["| " + " | ".join(shown) + " |", "|" + "---|" * len(shown)]
    lines += ["| " + " | ".join(_cell(row[c]) for c in shown) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return textwrap.shorten(text, LONGEST_CELL, placeholder="…").replace("|", "\\|")


def quarantine_metadata(result: BuildResult) -> dict[str, Any]:
    """Depth and age of the whole quarantine, plotted over time by the UI; its own asset has the rows by rule."""
    depth = result.quarantine
    if depth is None:
        return {}
    return {
        "quarantine_rows": depth.rows,
        "quarantine_age_days": round(depth.age.total_seconds() / 86400, 2),
        **({"quarantine_discarded": depth.discarded} if depth.discarded else {}),
    }


def clock_metadata(result: BuildResult, day: date) -> dict[str, Any]:
    """How wrong the clocks of the day's producers are, of those that are; numbers are plotted over time by the UI."""
    shown: dict[str, Any] = {}
    for each in (producer for producer in result.producers if producer.day == day):
        # As most of the rows say that are ahead. An impossible year would make a flat line of all other days: the UI
        # cuts no axis, so the number is cut, and a text beside it has the whole of it.
        seconds = each["far_ahead_p50"] if each["far_ahead"] > each["ahead"] else each["ahead_p50"]
        found: dict[str, Any] = {
            "rows_ahead": each["ahead"] + each["far_ahead"],
            "minutes_ahead": round(min(seconds, _A_DAY) / 60, 1),
            "rows_impossible": sum(each.wrong.values()),
            **({"ahead": f"{span(seconds)}; plotted as a day"} if seconds > _A_DAY else {}),
        }
        # Curves of nothing but zeros would be the first that people see of a table.
        if any(found.values()):
            shown |= {f"clock/{each.producer}/{name}": number for name, number in found.items()}
    return shown


def refused(lake: Lake, table: Table, result: BuildResult) -> list[AssetObservation]:
    """One observation for each day that its checks kept from being published: why, where the rows are, what to do.

    Args:
        lake: where the tables are.
        table: the table.
        result: what was built of it.
    """
    found = []
    for day in result.with_status(FAILED):
        each = result.days[day]
        checks = [o.check for o in each.outcomes if o.blocking and not o.passed]
        metadata: dict[str, Any] = {
            "status": FAILED,
            "failed": ", ".join(checks),
            "why": each.reason,
            "rows": each.metrics.rows,
            "quarantined": each.metrics.quarantined,
            "duplicates": each.metrics.duplicates,
            "next": _next_step(table, day, checks),
        }
        if each.metrics.rows_in is not None:
            metadata["rows_in"] = each.metrics.rows_in
        if table.landing:
            metadata |= _landed(landed_files(lake, table, [day]).get(day, ()))
        text = f"{table.id} {day} was not published: {each.reason}"
        found.append(AssetObservation(asset_key(table.id), description=text, metadata=metadata, partition=str(day)))
    return found


def _next_step(table: Table, day: date, checks: Sequence[str]) -> str:
    again = "lakehouse backfill --failed-only"
    if "source_readable" in checks:
        return f"land the file again; the sensor then builds the day, or: {again}"
    if table.rules and "row_rules" in checks:
        return f"look at the rows: lakehouse quarantine show {table.id} --day {day}; fix the cause, then: {again}"
    return f"fix the source or the contract, then: {again}"


def landed_files(lake: Lake, table: Table, days: Sequence[date]) -> dict[date, list[Path]]:
    """By day, the files that a landed table is built from, as paths under the root.

    Args:
        lake: where the tables are.
        table: the table.
        days: arrival days.
    """
    found: dict[date, list[Path]] = {}
    for file in landed_by_now(lake, table, min(days), max(days)) if days else ():
        found.setdefault(file.arrival_date, []).append(file.path.relative_to(lake.settings.root))
    return found


def _landed(files: Sequence[Path]) -> dict[str, Any]:
    """How many files, and a link to them; none that would lead nowhere."""
    if not files:
        return {"landed_files": 0}
    where = files[0] if len(files) == 1 else files[0].parent
    return {"reads/landing": MetadataValue.path(str(where)), "landed_files": len(files)}


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
