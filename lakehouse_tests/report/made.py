"""A report made of figures that a test can tell again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from lakehouse.report.figures import (
    Cell,
    ColumnOrigin,
    LakeReport,
    Point,
    Punctuality,
    Series,
    State,
    TableReport,
    Verdict,
    Waiting,
)
from lakehouse.tables.anomalies import Band

AT = datetime(2026, 3, 9, 8, 30, tzinfo=UTC)
FIRST = date(2026, 3, 2)


def days(number: int) -> list[date]:
    return [FIRST + timedelta(days=n) for n in range(number)]


def rows_on(day: date) -> int:
    """Rows of a day: another number each day."""
    return 1_000 + (day - FIRST).days


def made_table(name: str = "gold.sales", number: int = 7, **given: Any) -> TableReport:
    """A table whose days are published, with rows and revenue, and one odd day."""
    span = days(number)
    points = [Point(day, float(rows_on(day)), Band(900.0, 1_000.0, 1_000.0 + number - 1.5)) for day in span]
    revenue = [Point(day, rows_on(day) + 0.25) for day in span]
    passed = {day: Cell(Verdict.PASSED) for day in span}
    told: dict[str, Any] = {
        "owner": "team:test",
        "about": "What was sold.",
        "grain": "one sale",
        "days": {day: Cell(State.PUBLISHED) for day in span},
        "rows": sum(rows_on(day) for day in span),
        "bytes": 12_345,
        "published_at": AT,
        "figures": [
            Series("revenue/GBP", "", revenue, ""),
            Series("rows", "rows", points, "usual: the last 8 same weekdays"),
        ],
        "cost": [Series("seconds", "seconds", [Point(day, 0.5) for day in span])],
        "checks": {"row_count": ("rows within bounds", passed), "volume": ("rows as usual", passed)},
        "quarantine": [Waiting("amount_positive", "an amount above zero", 3, AT, {span[0]: 1, span[-1]: 2})],
        "quarantined": 3,
        "discarded": 0,
        "fresh": Punctuality(True, span[-1], span[-1], [], 5, 1.0, 36.0),
        "columns": [
            ColumnOrigin("amount", "decimal(18,2)", "What was paid", False, [("silver.orders", "amount")]),
            ColumnOrigin("user_id", "string", "Customer", True, []),
        ],
        "reads": ["silver.orders"],
    }
    return TableReport(name=name, **{**told, **given})


def lake_of(*tables: TableReport) -> LakeReport:
    known = [day for each in tables for day in each.days]
    return LakeReport(AT, min(known, default=None), max(known, default=None), tables)


def states(**given: State) -> Mapping[date, Cell]:
    """Days of March 2026 by `d4=State.FAILED` and so on."""
    return {date(2026, 3, int(name[1:])): Cell(state, f"because of {name}") for name, state in given.items()}
