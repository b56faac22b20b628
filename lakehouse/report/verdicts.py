"""How checks ended on each day: failures from Dagster's event log, everything else from what was published."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from lakehouse.contracts import Table
from lakehouse.report.figures import Cell, Verdict
from lakehouse.tables.audit import check_names
from lakehouse.tables.history import Record

if TYPE_CHECKING:
    from dagster import AssetCheckEvaluation, DagsterInstance

MOST_FAILURES = 2_000  # newest of each check that are looked at


@dataclass(frozen=True)
class Found:
    """The newest failure of a check on a day; `at` is in seconds since the epoch."""

    at: float
    run_id: str
    error: bool
    text: str


def found_by_checks(instance: DagsterInstance, table: Table) -> dict[str, dict[date, Found]]:
    """By check and day, the newest failure that the event log has."""
    from dagster import AssetCheckKey
    from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as Status

    from lakehouse.orchestration.report import asset_key

    found: dict[str, dict[date, Found]] = {}
    for name in check_names(table):
        # Public reads (dagster 1.13) give the newest evaluation of a check only.
        failed = instance.event_log_storage.get_asset_check_execution_history(
            AssetCheckKey(asset_key(table.id), name), limit=MOST_FAILURES, status={Status.FAILED}
        )
        for record in failed:
            told = record.evaluation
            day = _day(told) if told else None
            if told and day:
                severe = told.severity.value == "ERROR"
                each = Found(record.create_timestamp, record.run_id, severe, told.description or "failed")
                found.setdefault(name, {}).setdefault(day, each)
    return found


def _day(told: AssetCheckEvaluation) -> date | None:
    """The day that an evaluation is about; None where it sums up several."""
    named = told.partition or (told.metadata["day"].value if "day" in told.metadata else None)
    return date.fromisoformat(str(named)) if named else None


def check_cells(
    table: Table,
    kept: Mapping[date, Record],
    broken: Collection[date],
    checks: Mapping[str, Mapping[date, Found]],
    waits: Mapping[date, str],
) -> dict[str, tuple[str, dict[date, Cell]]]:
    """By check, its meaning and its verdict on each day; checks that speak of no day are left out.

    Args:
        table: whose checks.
        kept: what was published of each day.
        broken: days whose newest run did not publish them.
        checks: what `found_by_checks` gives.
        waits: days that hold the last good data of what they read, and of what.
    """
    from lakehouse.orchestration.report import INPUTS_FRESH, JUDGED_AFTER

    cells: dict[str, tuple[str, dict[date, Cell]]] = {}
    for name, meaning in check_names(table).items():
        if name not in JUDGED_AFTER:
            found = checks.get(name, {})
            judged = {day: _verdict(found.get(day), kept.get(day), day in broken) for day in {*kept, *broken, *found}}
            cells[name] = meaning, {day: cell for day, cell in sorted(judged.items()) if cell}
    if table.upstream:
        fresh = {day: Cell(Verdict.WARNED, waits[day]) if day in waits else Cell(Verdict.PASSED) for day in kept}
        cells[INPUTS_FRESH] = "all that a day is computed from is published from its newest input", fresh
    return cells


def _verdict(found: Found | None, record: Record | None, broken: bool) -> Cell | None:
    """A failure stands until the day is published after it; one that blocked, as long as the day is broken."""
    if found and found.error and broken:
        return Cell(Verdict.FAILED, found.text)
    if record is None:
        return None
    if found and not found.error and (found.run_id == record.run_id or found.at > record.at.timestamp()):
        return Cell(Verdict.WARNED, found.text)
    return Cell(Verdict.PASSED)
