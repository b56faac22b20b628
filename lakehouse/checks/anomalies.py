"""A day against the same weekdays before it: volume, null rates, means and mixes, from figures that were kept.

Centre and spread are median and median absolute deviation, so that one odd week in the history does not move the bound
(Leys et al. 2013, "Detecting outliers: do not use standard deviation around the mean"). To them come the sampling
error that the day's own size explains, and a least spread: a steady history must not make every wobble an anomaly.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

from lakehouse.checks.metrics import DayMetrics, Outcome, Value
from lakehouse.checks.statistics import median
from lakehouse.contracts import Anomalies, Table, Volume
from lakehouse.texts import counted

MAD_TO_SIGMA = 1.4826  # a normal distribution's standard deviation per median absolute deviation
SMALLEST_SIGMA = 0.15  # of the log count: a steady history must not make 15 % an anomaly
SMALLEST_NULL_SIGMA = 0.01  # of a share of nulls
SMALLEST_MEAN_SIGMA = 0.08  # of the mean logarithm: about 8 % of a typical value
SMALLEST_MIX_SIGMA = 0.03  # of the share of rows that are in another category than usual

Figures = Mapping[str, Any]
SoFar = Callable[[Collection[date]], Mapping[date, int]]
"""How many rows earlier days had by this time of day, of those of them that were built by then."""


class Band(NamedTuple):
    """What is usual of a figure on a day: the middle, and the bounds beyond which it is unusual."""

    low: float
    usual: float
    high: float


def usual_count(values: Sequence[float], z: float) -> Band:
    """What `volume` takes for usual after such counts, all above 0, up to a robust z."""
    # On the log scale a day of half the rows is as unusual as one of twice as many.
    centre, sigma = _log_scale(values)
    return Band(math.exp(centre - z * sigma), median(values), math.exp(centre + z * sigma))


def usual_share(shares: Sequence[float], rows: float, z: float) -> Band:
    """What `null_drift` takes for usual after such shares, on a day of some rows.

    Args:
        shares: of earlier days, 0 to 1.
        rows: of the day that is judged; the fewer, the wider the band.
        z: robust standard deviations that are still usual.
    """
    usual, sigma = _share_scale(shares, rows)
    return Band(max(0.0, usual - z * sigma), usual, min(1.0, usual + z * sigma))


def usual_sum(values: Sequence[float], z: float) -> Band:
    """As `usual_count` where all values are above 0; else by the plain median and spread."""
    if all(value > 0 for value in values):
        return usual_count(values, z)
    usual = median(values)
    sigma = max(_spread(values), SMALLEST_SIGMA * abs(usual))
    return Band(usual - z * sigma, usual, usual + z * sigma)


def _log_scale(counts: Sequence[float]) -> tuple[float, float]:
    logs = [math.log(n) for n in counts]
    return median(logs), max(_spread(logs), SMALLEST_SIGMA)


def _share_scale(shares: Sequence[float], rows: float) -> tuple[float, float]:
    usual = median(shares)
    # The binomial's standard deviation of a share: on a day of few rows a share strays by chance alone.
    chance = math.sqrt(usual * (1 - usual) / rows)
    # The largest of the three: how it has varied, how it varies by chance, and the least that is worth a word.
    return usual, max(_spread(shares), chance, SMALLEST_NULL_SIGMA)


def baseline(day: date, history: Mapping[date, Any], known: Mapping[date, str], most: int) -> list[date]:
    """The newest `most` days before a day that are of its weekday and of no known event, oldest first.

    Args:
        day: which is judged.
        history: days with rows; the values do not matter.
        known: days of events, as sales or holidays, which are no measure.
        most: days, at most.
    """
    same = sorted(each for each in history if each < day and each.weekday() == day.weekday() and each not in known)
    return same[-most:]


def baselines(
    days: Iterable[date], history: Iterable[date], known: Mapping[date, str], most: int
) -> Iterator[tuple[date, list[date]]]:
    """Each of many days with its `baseline`, in one pass over the history.

    Args:
        days: which are judged, in any order.
        history: days with rows.
        known: days of events.
        most: days, at most, for each.
    """
    past = sorted(each for each in history if each not in known)
    newest: dict[int, deque[date]] = defaultdict(lambda: deque(maxlen=most))
    # History and days both go forwards, so each earlier day is taken in once, whatever the number of days judged.
    position = 0
    for day in sorted(days):
        while position < len(past) and past[position] < day:
            newest[past[position].weekday()].append(past[position])
            position += 1
        yield day, list(newest[day.weekday()])


def volume(
    bounds: Volume,
    m: DayMetrics,
    history: Mapping[date, int],
    known: Mapping[date, str] | None = None,
    *,
    so_far: SoFar | None = None,
) -> Outcome:
    """Rows of a day against its recent same weekdays, in ratio (blocking) and robust z of the log (warning).

    Args:
        bounds: the contract's.
        m: the day's figures.
        history: rows by earlier day; those without rows do not count.
        known: days of events, which are no measure.
        so_far: None: the day is over. Else it is not: it can have too many rows for a whole day, and warns of too few
            for this time; whether it has become whole, the check `data_fresh` says.
    """
    known = known or {}
    rows = {day: n for day, n in history.items() if n > 0}
    usual_days = baseline(m.day, rows, known, bounds.history)
    if m.problems:
        return Outcome("volume", m.day, True, "not judged: a file could not be read", values={"rows": m.rows})
    # A day without rows has no ratio worth a bound: it is judged by whether its weekday has rows at all.
    if m.staged == 0 and so_far is None:
        return _nothing(bounds, m, rows, known)
    if len(usual_days) < bounds.min_history:
        text = f"not enough history: {len(usual_days)} of {bounds.min_history} same weekdays with rows"
        return Outcome("volume", m.day, True, text, values={"rows": m.rows, "history": len(usual_days)})
    counts = [rows[day] for day in usual_days]
    usual, ratio, z = _compared(m.rows, counts)
    blocked = not bounds.min_ratio <= ratio <= bounds.max_ratio
    text = (
        f"{counted(m.rows, 'row')}, {ratio:.2f} of the usual {usual:g} of this weekday (robust z {z:.1f}); "
        f"bounds {bounds.min_ratio:g} to {bounds.max_ratio:g}"
    )
    values: dict[str, Value] = {"rows": m.rows, "usual_rows": usual, "ratio": round(ratio, 4), "robust_z": round(z, 2)}
    passed = not blocked and z <= bounds.warn_z
    if so_far is not None and ratio < 1:  # what lacks may come yet, so it never blocks
        passed, by_now, figures = _enough_by_now(bounds, m.rows, [n for n in so_far(usual_days).values() if n])
        text, blocked, values = f"{text}; the day is not over{by_now}", False, values | figures
    if not passed and m.day in known:
        return Outcome("volume", m.day, True, f"{text}; a known event: {known[m.day]}", values=values)
    return Outcome("volume", m.day, passed, text, blocking=blocked, values=values)


def _enough_by_now(bounds: Volume, rows: int, by_now: Sequence[int]) -> tuple[bool, str, dict[str, Value]]:
    """Whether a day that is not over has enough rows for this time of day, as text and in figures.

    Args:
        bounds: the contract's.
        rows: of the day.
        by_now: what earlier days had by this time, of those that had any.
    """
    if len(by_now) < bounds.min_history:
        return True, "", {}
    usual, ratio, z = _compared(rows, by_now)
    passed = ratio >= 1 or (ratio >= bounds.min_ratio and z <= bounds.warn_z)
    return passed, f"; by this time of day it usually has {usual:g} (robust z {z:.1f})", {"usual_rows_by_now": usual}


def _compared(rows: int, counts: Sequence[int]) -> tuple[float, float, float]:
    """What is usual of some counts, and how far a day is from it: in ratio, and in robust z of the logarithm."""
    usual = statistics.median(counts)
    centre, sigma = _log_scale(counts)
    # At least one row for the logarithm: a day of quarantined rows alone is as far down as a day of one row.
    return usual, rows / usual, abs(math.log(max(rows, 1)) - centre) / sigma


def _nothing(bounds: Volume, m: DayMetrics, rows: Mapping[date, int], known: Mapping[date, str]) -> Outcome:
    """A day without rows: a warning where its weekday usually has some, since its file may only be missing."""
    first = min(rows, default=m.day)
    weeks = [m.day - timedelta(weeks=n) for n in range(1, bounds.history + 1) if m.day - timedelta(weeks=n) >= first]
    there = [rows[day] for day in weeks if day in rows and day not in known]
    values: dict[str, Value] = {"rows": 0, "history": len(there)}
    # Most of the weeks, not one of them: a shop that is closed on some Sundays warns on none.
    if 2 * len(there) <= len(weeks) or len(there) < bounds.min_history:
        return Outcome("volume", m.day, True, "empty day, and its weekday has no rows as a rule", values=values)
    usual = statistics.median(there)
    text = f"no rows, but {len(there)} of the last {len(weeks)} same weekdays had some, usually {usual:g}"
    if m.day in known:
        return Outcome("volume", m.day, True, f"{text}; a known event: {known[m.day]}", values=values)
    text += "; if that is right, name the day in known_events"
    return Outcome("volume", m.day, False, text, blocking=False, values=values | {"usual_rows": usual})


def drifts(table: Table, m: DayMetrics, history: Mapping[date, Figures]) -> list[Outcome]:
    """The checks `null_drift`, `mean_shift` and `category_mix` of one day.

    Args:
        table: whose contract sets the sensitivity.
        m: the day's figures.
        history: figures by day as commits keep them; the day itself is not part of its baseline.
    """
    bounds = table.quality.anomalies
    if bounds is None:
        return []
    days = baseline(
        m.day, {d: f for d, f in history.items() if f.get("rows")}, table.quality.known_events, bounds.history
    )
    names = list(drift_checks(table))
    if not m.rows or len(days) < bounds.min_history:
        why = "no rows" if not m.rows else f"not enough history: {len(days)} of {bounds.min_history} same weekdays"
        return [Outcome(name, m.day, True, why, blocking=False) for name in names]
    past = [history[day] for day in days]
    mine: Figures = {"rows": m.rows, "nulls": m.nulls, **m.profile.as_json()}
    judged = {"null_drift": _null_drift, "mean_shift": _mean_shift, "category_mix": _category_mix}
    return [
        _outcome(name, m.day, judged[name](table, mine, past), bounds, table.quality.known_events) for name in names
    ]


def drift_checks(table: Table) -> dict[str, str]:
    """Name and meaning of the drift checks that a contract asks for."""
    if table.quality.anomalies is None:
        return {}
    against = f"against the last {table.quality.anomalies.history} same weekdays"
    named = {"null_drift": f"Share of nulls of each column {against}"}
    named["mean_shift"] = f"Mean of each numeric column of the profile {against}"
    named["category_mix"] = f"Shares of the values of each other column of the profile {against}"
    return named


def _outcome(
    name: str, day: date, found: Mapping[str, tuple[float, str]], bounds: Anomalies, known: Mapping[date, str]
) -> Outcome:
    """`found` holds, by column, the robust z and what it is about."""
    unusual = {column: (z, text) for column, (z, text) in found.items() if z > bounds.warn_z}
    worst = max(found, key=lambda column: found[column][0], default=None)
    values: dict[str, Value] = {f"robust_z/{column}": round(z, 2) for column, (z, _) in found.items()}
    if not unusual:
        text = (
            f"as usual; furthest: {found[worst][1]}, robust z {found[worst][0]:.1f}" if worst else "nothing to compare"
        )
        return Outcome(name, day, True, text, blocking=False, values=values)
    text = "; ".join(f"{what} (robust z {z:.1f}, bound {bounds.warn_z:g})" for z, what in unusual.values())
    if day in known:
        return Outcome(name, day, True, f"{text}; a known event: {known[day]}", blocking=False, values=values)
    return Outcome(name, day, False, text, blocking=bounds.block, values=values)


def _null_drift(table: Table, mine: Figures, past: Sequence[Figures]) -> dict[str, tuple[float, str]]:
    found = {}
    for name in table.columns:
        rates = [each.get("nulls", {}).get(name, 0) / each["rows"] for each in past]
        rate = mine["nulls"].get(name, 0) / mine["rows"]
        # A column that was never null and is not now has nothing to say.
        if rate or any(rates):
            usual, sigma = _share_scale(rates, mine["rows"])
            z = abs(rate - usual) / sigma
            found[name] = z, f"{name} is null in {rate:.1%} of rows, usually in {usual:.1%}"
    return found


def _mean_shift(_: Table, mine: Figures, past: Sequence[Figures]) -> dict[str, tuple[float, str]]:
    """On the log scale: of heavy-tailed amounts the plain mean of a day is the mean of its largest order."""
    found = {}
    for name, each in mine.get("profile", {}).items():
        before = [day["profile"][name] for day in past if name in day.get("profile", {})]
        before = [kept for kept in before if kept.get("log_mean") is not None]  # figures kept before there were such
        if before:
            means = [day["log_mean"] for day in before]
            usual = statistics.median(means)
            # The usual spread, not the day's: a fault that inflates both would excuse itself.
            chance = statistics.median(day["log_stddev"] for day in before) / math.sqrt(each["count"])
            z = abs(each["log_mean"] - usual) / max(_spread(means), chance, SMALLEST_MEAN_SIGMA)
            mean = statistics.median(day["mean"] for day in before)
            found[name] = z, f"values of {name} have shifted: mean {each['mean']:.4g}, usually {mean:.4g}"
    return found


def _category_mix(_: Table, mine: Figures, past: Sequence[Figures]) -> dict[str, tuple[float, str]]:
    found = {}
    for name, now in mine.get("categories", {}).items():
        before = [Counter(day["categories"][name]) for day in past if name in day.get("categories", {})]
        if before:
            # All days together are the mix that is usual; how far each of them is from it says what distance is usual.
            together = sum(before, Counter[str]())
            moved = _apart(now, together)
            usual = [_apart(each, together) for each in before]
            rows = sum(now.values())
            # The expected distance of a sample of that many rows from the mix it was drawn from: sqrt(2 / pi) of each
            # share's standard deviation, summed, and halved as the distance is.
            chance = sum(math.sqrt(n / together.total() * (1 - n / together.total())) for n in together.values())
            sigma = max(_spread(usual), chance / math.sqrt(2 * math.pi * rows), SMALLEST_MIX_SIGMA)
            most = max(
                sorted({*now, *together}),
                key=lambda v: abs(now.get(v, 0) / rows - together[v] / together.total()),
            )
            # Nearer to the mix than usual is no anomaly.
            z = max(0.0, moved - statistics.median(usual)) / sigma
            share, before_share = now.get(most, 0) / rows, together[most] / together.total()
            text = f"{moved:.1%} of rows have another {name} than usual, most of all {most}: {share:.1%}"
            found[name] = z, f"{text}, usually {before_share:.1%}"
    return found


def _apart(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    """Total variation distance: the share of rows that would have to change their category."""
    a, b = sum(one.values()), sum(other.values())
    return sum(abs(one.get(v, 0) / a - other.get(v, 0) / b) for v in {*one, *other}) / 2


def _spread(values: Sequence[float]) -> float:
    centre = median(values)
    return MAD_TO_SIGMA * median([abs(value - centre) for value in values])
