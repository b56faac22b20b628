"""What was usual of many days at once: the bands of `lakehouse.checks.anomalies`, as arrays.

A page shows a hundred figures of thousands of days. One by one, what was usual of each takes most of its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lakehouse.checks.anomalies import MAD_TO_SIGMA, SMALLEST_NULL_SIGMA, SMALLEST_SIGMA, Band

Numbers = NDArray[np.float64]
Positions = NDArray[np.int64]
Usual = Callable[[Positions, Numbers], Numbers]
"""From positions of days and, a row for each, the figures of its same weekdays before: rows of low, usual and high."""


def bands(
    days: Sequence[date], history: Mapping[date, float], known: Mapping[date, str], sizes: tuple[int, int], usual: Usual
) -> list[Band | None]:
    """What was usual of each day; None where too few of its weekday came before.

    Args:
        days: which are judged, in order.
        history: the figure, by day.
        known: days of events, which are no measure.
        sizes: the fewest days that say what is usual, and the most that are looked at.
        usual: the band of such a figure.
    """
    found: list[Band | None] = [None] * len(days)
    for positions, past in _same_weekdays(days, history, known, sizes):
        rows = usual(positions, past).T.tolist()
        for position, row in zip(positions.tolist(), rows, strict=True):
            found[position] = Band(*row)
    return found


def _same_weekdays(
    days: Sequence[date], history: Mapping[date, float], known: Mapping[date, str], sizes: tuple[int, int]
) -> Iterator[tuple[Positions, Numbers]]:
    """The figures of the newest days of the same weekday before each day, for all days at once that have as many."""
    judged = np.array([day.toordinal() for day in days], dtype=np.int64)
    there = sorted(day for day in history if day not in known)
    past = np.array([day.toordinal() for day in there], dtype=np.int64)
    figures = np.array([history[day] for day in there], dtype=np.float64)
    fewest, most = sizes
    for weekday in range(7):
        mine, before = np.flatnonzero(judged % 7 == weekday), past % 7 == weekday
        of_weekday = figures[before]
        ends = np.searchsorted(past[before], judged[mine])
        for size in range(fewest, most + 1):
            these = ends >= most if size == most else ends == size
            if these.any():
                yield mine[these], of_weekday[ends[these][:, None] + np.arange(-size, 0)]


def usual_counts(past: Numbers, z: float) -> Numbers:
    """As `usual_count`, of each row."""
    logs = np.log(past)
    centre = _median(logs)
    sigma = np.maximum(_spread(logs, centre), SMALLEST_SIGMA)
    return np.stack([np.exp(centre - z * sigma), _median(past), np.exp(centre + z * sigma)])


def usual_shares(past: Numbers, rows: Numbers, z: float) -> Numbers:
    """As `usual_share`, of each row."""
    usual = _median(past)
    chance = np.sqrt(usual * (1 - usual) / rows)
    sigma = np.maximum(np.maximum(_spread(past, usual), chance), SMALLEST_NULL_SIGMA)
    return np.stack([np.maximum(0.0, usual - z * sigma), usual, np.minimum(1.0, usual + z * sigma)])


def usual_sums(past: Numbers, z: float) -> Numbers:
    """As `usual_sum`, of each row."""
    plain = np.any(past <= 0, axis=1)
    found = usual_counts(np.where(plain[:, None], 1.0, past), z)
    if plain.any():
        usual = _median(past[plain])
        sigma = np.maximum(_spread(past[plain], usual), SMALLEST_SIGMA * np.abs(usual))
        found[:, plain] = np.stack([usual - z * sigma, usual, usual + z * sigma])
    return found


def _spread(values: Numbers, centre: Numbers) -> Numbers:
    return MAD_TO_SIGMA * _median(np.abs(values - centre[:, None]))


def _median(values: Numbers) -> Numbers:
    """Of each row: np.median takes several times as long of rows as short as these."""
    ordered = np.sort(values, axis=1)
    middle, odd = divmod(values.shape[1], 2)
    found: Any = ordered[:, middle] if odd else (ordered[:, middle - 1] + ordered[:, middle]) / 2
    return np.asarray(found, dtype=np.float64)
