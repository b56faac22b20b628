"""How checks ended on each day: what stands against it, and the rest from what was published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from lakehouse.build.verdicts import INPUTS_FRESH, JUDGED_AFTER, by_check
from lakehouse.build.verdicts import Verdict as Failing
from lakehouse.checks.audit import check_names
from lakehouse.contracts import Table
from lakehouse.records.day_record import DayRecord
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
    cells: dict[str, tuple[str, dict[date, Cell]]] = {}
    passed = dict.fromkeys(sorted(kept), Cell(Verdict.PASSED))
    found = by_check(failing)
    for name, meaning in check_names(table).items():
        if name not in JUDGED_AFTER:
            against = {
                each.day: Cell(Verdict.FAILED if each.blocking else Verdict.WARNED, each.found)
                for each in found.get(name, ())
                if each.day is not None
            }
            judged = passed | against
            cells[name] = meaning, judged if len(judged) == len(passed) else dict(sorted(judged.items()))
    if table.upstream:
        held = {day: Cell(Verdict.WARNED, waits[day]) for day in passed if day in waits}
        cells[INPUTS_FRESH] = "all that a day is computed from is published from its newest input", passed | held
    return cells
