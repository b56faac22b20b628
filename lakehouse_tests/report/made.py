"""A report made of figures that a test can tell again."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from lakehouse.checks.anomalies import Band, baselines, usual_count
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
        "fresh": Punctuality(True, span[-1], "complete", span[-1], [], 5, 1.0, 36.0),
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


def shop() -> LakeReport:
    """Three tables of a shop over nineteen weeks, with a day that failed, days that wait, a late one and odd figures."""
    chance = random.Random(7)
    span = days(133)
    bad, late, odd = span[120], span[97], span[110]

    def series(name: str, unit: str, level: float, judged: bool = True) -> Series:
        values = {
            day: level * (0.55 if day.weekday() == 6 else 1 + 0.05 * day.weekday()) * chance.uniform(0.93, 1.07)
            for day in span
            if day != bad
        }
        values[odd] *= 0.45
        points = []
        for day, past in baselines(values, values, {}, 8):
            band = usual_count([values[each] for each in past], 4.0) if len(past) > 3 and judged else None
            points.append(Point(day, float(round(values[day], 0 if unit == "rows" else 2)), band))
        return Series(name, unit, points, "usual: the last 8 same weekdays" if judged else "")

    def table(name: str, state: State, why: str, **given: Any) -> TableReport:
        cells = {
            day: Cell(State.EMPTY if day.weekday() == 5 and name.startswith("bronze") else State.PUBLISHED)
            for day in span
        }
        cells |= {bad: Cell(state, why), late: Cell(State.LATE)}
        checks: dict[str, tuple[str, dict[date, Cell]]] = {
            each: (each, {day: Cell(Verdict.PASSED) for day in span if day != bad})
            for each in ("row_count", "null_rates", "row_rules", "volume", "reconciliation")
        }
        checks["volume"][1][odd] = Cell(Verdict.WARNED, "far fewer rows than on Sundays before")
        if state is State.FAILED:
            checks["row_count"][1][bad] = Cell(Verdict.FAILED, why)
        return made_table(
            name, 1, **{"days": cells, "checks": checks, "quarantine": [], "quarantined": 0, "reads": [], **given}
        )

    sources = ("order_id", "country", "amount", "currency")
    lines = table(
        "bronze.sales", State.FAILED, "row_count: the file of the day ends early; land it again", owner="team:data-platform",
        about="Lines of the daily export, as they were landed.", grain="one line of a landed file", reads=["landing.sales"],
        figures=[series("rows", "rows", 5_200)], cost=[series("seconds", "seconds", 2.1, judged=False)], rows=664_210,
        bytes=48_000_000, columns=[ColumnOrigin(name, "string", "As landed", False, [("landing.sales", name)]) for name in sources],
    )  # fmt: skip
    orders = table(
        "silver.orders", State.WAITING, "bronze.sales 2026-06-30 is not published from its newest input", owner="team:sales",
        about="Orders, typed, once each.", grain="one order", reads=["bronze.sales"], rows=201_480, bytes=21_000_000,
        figures=[series("rows", "rows", 1_600), series("country is null", "share", 0.08)], quarantined=1_797,
        quarantine=[
            Waiting("amount_positive", "a purchase has an amount above zero", 1_794, AT, {span[96]: 900, odd: 894}),
            Waiting("currency_known", "the currency is of ISO 4217", 3, AT, {odd: 3}),
        ],
        cost=[series("seconds", "seconds", 3.4, judged=False), series("bytes", "bytes", 160_000, judged=False)],
        columns=[ColumnOrigin(name, "string", "Typed", name == "order_id", [("bronze.sales", name)]) for name in sources],
    )  # fmt: skip
    revenue = table(
        "gold.revenue", State.WAITING, "bronze.sales 2026-06-30 is not published from its newest input", owner="team:finance",
        about="What was sold, by day and country.", grain="day × country", reads=["silver.orders"], rows=4_655, bytes=1_900_000,
        figures=[series("revenue/GBP", "", 28_400), series("purchases", "", 1_540), series("rows", "rows", 35)],
        cost=[series("seconds", "seconds", 1.2, judged=False), series("bytes", "bytes", 14_000, judged=False)],
        columns=[
            ColumnOrigin("country", "string", "Customer's country", False, [("silver.orders", "country")]),
            ColumnOrigin("revenue", "decimal(18,2)", "Sum of purchases", False, [("silver.orders", "amount")]),
            ColumnOrigin("share", "double", "Of the day's revenue", False, [("silver.orders", "amount"), ("silver.orders", "currency")]),
        ],
    )  # fmt: skip
    return LakeReport(AT + timedelta(days=130), span[0], span[-1], (lines, orders, revenue))
