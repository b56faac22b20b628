"""Bounds of a day against history: they decide whether its rows are published, not which rows they are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Volume:
    """Bounds on a day's rows against the median of the last `history` same weekdays that had rows.

    Outside `[min_ratio, max_ratio]` the day is not published. Beyond `warn_z` robust standard deviations of the log
    count it is published with a warning. With fewer than `min_history` such days nothing is claimed.

    Attributes:
        min_ratio: fewest rows, as a share of the median.
        max_ratio: most rows, as a multiple of the median.
        warn_z: robust standard deviations beyond which the check warns.
        history: how many same weekdays before are compared with.
        min_history: fewest such days for a judgement.
    """

    min_ratio: float = 0.25
    max_ratio: float = 4.0
    warn_z: float = 4.0
    history: int = 8
    min_history: int = 4


@dataclass(frozen=True)
class Anomalies:
    """How far a day's distributions may be from those of the last `history` same weekdays before it.

    Judged are the null rate of each column, the mean of each numeric column in `profile` and the mix of values of each
    other column there. Beyond `warn_z` robust standard deviations the day is published with a warning, or not at all
    where `block` is set. With fewer than `min_history` such days nothing is claimed.

    Attributes:
        warn_z: robust standard deviations beyond which the checks fail.
        history: how many same weekdays before are compared with.
        min_history: fewest such days for a judgement.
        block: True where such a day is not published; else the checks only warn.
    """

    warn_z: float = 5.0
    history: int = 8
    min_history: int = 4
    block: bool = False
