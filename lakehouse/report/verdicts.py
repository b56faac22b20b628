"""How checks ended on each day: what stands against it, and the rest from what was published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from lakehouse.build.verdicts import Verdict as Failing
from lakehouse.build.verdicts import by_check
from lakehouse.checks.audit import check_names
from lakehouse.contracts import Table
from lakehouse.records.history import DayRecord
from lakehouse.report.figures import Cell, Verdict


def check_cells(
    table: Table, kept: Mapping[date, DayRecord], failing: Sequence[Failing], waits: Mapping[date, str]
) -> dict[str, tuple[str, dict[date, Cell]]]:
    """By check, its meaning and its verdict on each day; checks that speak of no day are left out.

    Args:
        table: whose checks.
        kept: what was published of each day.
        failing: the checks of single days that fail.
        waits: days that hold the last good data of what they read, and of what.
    """
    from lakehouse.orchestration.checks import INPUTS_FRESH, JUDGED_AFTER

    cells: dict[str, tuple[str, dict[date, Cell]]] = {}
    found = by_check(failing)
    for name, meaning in check_names(table).items():
        if name not in JUDGED_AFTER:
            judged = {day: Cell(Verdict.PASSED) for day in kept}
            judged |= {
                each.day: Cell(Verdict.FAILED if each.blocking else Verdict.WARNED, each.found)
                for each in found.get(name, ())
                if each.day is not None
            }
            cells[name] = meaning, dict(sorted(judged.items()))
    if table.upstream:
        fresh = {day: Cell(Verdict.WARNED, waits[day]) if day in waits else Cell(Verdict.PASSED) for day in kept}
        cells[INPUTS_FRESH] = "all that a day is computed from is published from its newest input", fresh
    return cells
