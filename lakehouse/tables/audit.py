"""The audit between stage and publish: table-level checks over a day's figures.

Every check here blocks publication of its day when it fails with severity ERROR.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from lakehouse.contracts import Table, Volume
from lakehouse.tables.metrics import DayMetrics

MAD_TO_SIGMA = 1.4826  # a normal distribution's standard deviation per median absolute deviation
SMALLEST_SIGMA = 0.15  # of the log count: a steady history must not make 15 % an anomaly

Value = int | float | str


@dataclass(frozen=True)
class Outcome:
    """One check on one day. `blocking` is what decides whether the day may be published."""

    check: str
    day: date
    passed: bool
    message: str
    blocking: bool = True
    values: Mapping[str, Value] = field(default_factory=dict)


def check_names(table: Table) -> dict[str, str]:
    """The table's checks with what each one means, derived from its contract."""
    low, high = table.min_rows, table.max_rows
    named = {
        "row_count": f"A day with input publishes at least {low} rows" + (f", at most {high}" if high else ""),
        "null_rates": "Share of nulls a column within the contract's bounds, and none where none may be",
        "row_rules": f"At most {table.max_quarantined:.0%} of a day's rows break a row rule",
    }
    if table.key and not table.keep_first_by:
        named["unique_key"] = f"({', '.join(table.key)}) identifies a row"
    elif table.key:
        named["unique_key"] = f"({', '.join(table.key)}) identifies a row; repeats are counted and left out"
    if table.conserves_rows or table.landing:
        named["row_conservation"] = "Rows in = published + quarantined + duplicates"
    if table.landing:
        named["source_readable"] = "Every landed file of the day can be read to its end and has its columns"
    if table.volume:
        named["volume"] = f"Rows against the median of the last {table.volume.history} same weekdays with rows"
    return named


def audit(table: Table, metrics: DayMetrics, history: Mapping[date, int]) -> list[Outcome]:
    """Every check of the table on one day.

    Args:
        table: whose contract sets the bounds.
        metrics: the day's figures.
        history: published rows by day; the tested day itself is never part of its own baseline.
    """
    run = {
        "row_count": _row_count,
        "null_rates": _null_rates,
        "row_rules": _row_rules,
        "unique_key": _unique_key,
        "row_conservation": _row_conservation,
        "source_readable": _source_readable,
    }
    names = check_names(table)
    outcomes = [run[name](table, metrics) for name in names if name in run]
    if table.volume:
        outcomes.append(volume(table.volume, metrics, history))
    return outcomes


def _row_count(table: Table, m: DayMetrics) -> Outcome:
    empty = m.staged == 0 and not m.rows_in
    high = table.max_rows
    passed = empty or (m.rows >= table.min_rows and (high is None or m.rows <= high))
    bounds = f"at least {table.min_rows}" + (f" and at most {high}" if high is not None else "")
    text = "empty day: no input" if empty else f"{m.rows} rows published; expected {bounds}"
    return Outcome("row_count", m.day, passed, text, values={"rows": m.rows})


def _null_rates(table: Table, m: DayMetrics) -> Outcome:
    bounds = dict.fromkeys(table.required, 0.0) | dict(table.max_null_rate)
    rates = {name: count / m.rows for name, count in m.nulls.items()} if m.rows else {}
    broken = [
        f"{name} is null in {rates[name]:.1%} of rows; at most {bound:.1%} may be"
        for name, bound in bounds.items()
        if exceeds(m.nulls.get(name, 0), m.rows, bound)
    ]
    worst = max(rates, key=lambda name: rates[name], default=None)
    text = "; ".join(broken) or (f"highest: {worst} {rates[worst]:.1%}" if worst else "no rows")
    values: dict[str, Value] = {f"null_rate/{k}": round(v, 6) for k, v in rates.items() if v or k in bounds}
    return Outcome("null_rates", m.day, not broken, text, values=values)


def exceeds(count: int, of: int, bound: float) -> bool:
    """Whether a count is above its bound by more than chance: three standard deviations of a binomial.

    One guest on a day of one row is a null rate of 100 % and says nothing; a bound of 0 has no tolerance.
    """
    return count > bound * of + 3 * math.sqrt(of * bound * (1 - bound))


def _row_rules(table: Table, m: DayMetrics) -> Outcome:
    judged = m.rows + m.quarantined
    share = m.quarantined / judged if judged else 0.0
    by_rule = ", ".join(f"{name} {n}" for name, n in sorted(m.failures.items(), key=lambda kv: -kv[1]))
    text = f"{m.quarantined} of {judged} rows quarantined ({share:.2%}; at most {table.max_quarantined:.0%})"
    values: dict[str, Value] = {"quarantined": m.quarantined, "share_quarantined": round(share, 6)}
    values |= {f"failed/{name}": n for name, n in m.failures.items()}
    passed = not exceeds(m.quarantined, judged, table.max_quarantined)
    return Outcome("row_rules", m.day, passed, f"{text}: {by_rule}" if by_rule else text, values=values)


def _unique_key(table: Table, m: DayMetrics) -> Outcome:
    passed = bool(table.keep_first_by) or m.duplicates == 0
    text = f"{m.duplicates} rows repeat a key ({', '.join(table.key)})"
    if m.duplicates:
        text += "; the first of each is kept" if table.keep_first_by else "; the transform must give one row a key"
    return Outcome("unique_key", m.day, passed, text, values={"duplicates": m.duplicates})


def _row_conservation(_: Table, m: DayMetrics) -> Outcome:
    expected = m.rows_in or 0
    text = (
        f"{expected} in = {m.rows} published + {m.quarantined} quarantined + {m.duplicates} duplicates"
        if expected == m.staged
        else f"{expected} rows came in but {m.staged} went out "
        f"({m.rows} published, {m.quarantined} quarantined, {m.duplicates} duplicates)"
    )
    return Outcome(
        "row_conservation", m.day, expected == m.staged, text, values={"rows_in": expected, "rows_out": m.staged}
    )


def _source_readable(_: Table, m: DayMetrics) -> Outcome:
    return Outcome("source_readable", m.day, not m.problems, "; ".join(m.problems) or "all files read to their end")


def volume(bounds: Volume, m: DayMetrics, history: Mapping[date, int]) -> Outcome:
    """Rows of a day against its recent same weekdays, in ratio (blocking) and robust z of the log (warning).

    Median and median absolute deviation, so that one odd week in the history does not move the bound
    (Leys et al. 2013, "Detecting outliers: do not use standard deviation around the mean").
    """
    same = [n for day, n in sorted(history.items()) if day < m.day and day.weekday() == m.day.weekday() and n > 0]
    baseline = same[-bounds.history :]
    if m.problems:
        return Outcome("volume", m.day, True, "not judged: a file could not be read", values={"rows": m.rows})
    if m.staged == 0:
        return Outcome("volume", m.day, True, "empty day: nothing to compare", values={"rows": 0})
    if len(baseline) < bounds.min_history:
        text = f"not enough history: {len(baseline)} of {bounds.min_history} same weekdays with rows"
        return Outcome("volume", m.day, True, text, values={"rows": m.rows, "history": len(baseline)})
    usual = statistics.median(baseline)
    ratio = m.rows / usual
    logs = [math.log(n) for n in baseline]
    centre = statistics.median(logs)
    sigma = max(MAD_TO_SIGMA * statistics.median(abs(x - centre) for x in logs), SMALLEST_SIGMA)
    z = abs(math.log(max(m.rows, 1)) - centre) / sigma
    blocked = not bounds.min_ratio <= ratio <= bounds.max_ratio
    text = (
        f"{m.rows} rows, {ratio:.2f} of the usual {usual:g} of this weekday (robust z {z:.1f}); "
        f"bounds {bounds.min_ratio:g} to {bounds.max_ratio:g}"
    )
    values: dict[str, Value] = {"rows": m.rows, "usual_rows": usual, "ratio": round(ratio, 4), "robust_z": round(z, 2)}
    return Outcome("volume", m.day, not blocked and z <= bounds.warn_z, text, blocking=blocked, values=values)
