"""The policy of a table in groups, a value each: what `@table` takes beside columns, key and inputs.

Every group has defaults that suit most tables; a file says only what differs. `Quality`, `Quarantine`, `Freshness` and
`Layout` decide whether rows are published and what is said of them, never which rows they are, so a change of them
makes no day stale. `Privacy` does: bounds of personal values must go from the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta

from lakehouse.contracts.mistakes import are_names, check, is_at_least, is_days, is_share, is_time, unless
from lakehouse.contracts.slices import SliceBy


@dataclass(frozen=True, kw_only=True)
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

    def __post_init__(self) -> None:
        ratios = (self.min_ratio, self.max_ratio)
        check(
            unless(0 <= self.min_ratio <= 1 <= self.max_ratio, "volume",
                   "min_ratio from 0 to 1 and max_ratio 1 or more", ratios,
                   "A day of the usual size has the ratio 1."),
            unless(self.warn_z > 0, "warn_z", "a number above 0", self.warn_z, "Leave it out for the usual bound."),
            is_at_least("min_history", self.min_history, 1),
            is_at_least("history", self.history, self.min_history),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
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

    def __post_init__(self) -> None:
        check(
            unless(self.warn_z > 0, "warn_z", "a number above 0", self.warn_z, "Leave it out for the usual bound."),
            is_at_least("min_history", self.min_history, 1),
            is_at_least("history", self.history, self.min_history),
        )


@dataclass(frozen=True, kw_only=True)
class Quality:
    """What a day's rows have to be like, all together.

    Attributes:
        min_rows: fewest rows that a day with input publishes.
        max_rows: most rows that it publishes; None: any number.
        max_null_rate: share of nulls allowed, from 0 to 1, by nullable column.
        volume: bounds of the rows against history; None where their number says nothing.
        profile: columns whose distribution is kept with each published day: sum, mean and spread of numbers, rows by
            value of others (those with few values). Never personal data.
        anomalies: bounds of those distributions against history; None: they are kept but not judged.
        known_events: days that are unusual for a known reason, by that reason; no baseline holds them, and what is
            unusual about them is said but fails no check.
        max_shares: by numeric column, another one and how much of its sum over a day the first one's may be, from 0 to
            1, before the check `shares` warns. Never personal data.
        max_late: share of a day's rows that may be later than `allowed_lateness` before the check `lateness` fails (it
            only says).
    """

    min_rows: int = 0
    max_rows: int | None = None
    max_null_rate: Mapping[str, float] = field(default_factory=dict)
    volume: Volume | None = None
    profile: tuple[str, ...] = ()
    anomalies: Anomalies | None = None
    known_events: Mapping[date, str] = field(default_factory=dict)
    max_shares: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    max_late: float = 0.01

    def __post_init__(self) -> None:
        check(
            is_at_least("quality.min_rows", self.min_rows, 0),
            () if self.max_rows is None else is_at_least("quality.max_rows", self.max_rows, self.min_rows),
            *(is_share("quality.max_null_rate", share) for share in self.max_null_rate.values()),
            are_names("quality.profile", self.profile),
            *(is_share("quality.max_shares", share) for _, share in self.max_shares.values()),
            is_share("quality.max_late", self.max_late),
        )


@dataclass(frozen=True, kw_only=True)
class Quarantine:
    """How many rows may be set aside for breaking a rule, and for how long.

    Attributes:
        max_share: share of a day's rows that may fail the row rules before the day is not published, from 0 to 1.
        max_rows: rows of the whole quarantine beyond which the check `quarantine_depth` warns; None: any number.
        max_age: age of its oldest row beyond which that check warns; None: any age.
        max_ages: by row rule, the age of the oldest row that broke it beyond which that check warns: of rows that
            somebody has to look at sooner, such as messages that cannot be read as rows.
    """

    max_share: float = 0.1
    max_rows: int | None = None
    max_age: timedelta | None = None
    max_ages: Mapping[str, timedelta] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check(
            is_share("quarantine.max_share", self.max_share),
            () if self.max_rows is None else is_at_least("quarantine.max_rows", self.max_rows, 0),
            unless(self.max_age is None or is_time(self.max_age), "quarantine.max_age", "a time that is not negative",
                   str(self.max_age), "Write it as timedelta(days=30)."),
            unless(all(map(is_time, self.max_ages.values())), "quarantine.max_ages",
                   "times that are not negative", ", ".join(map(str, self.max_ages.values())),
                   "Write them as timedelta(days=1)."),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Freshness:
    """When a day has to be there.

    Attributes:
        within: time after the end of a day by which its rows have to be there.
        budget: share of days that may miss that in a month.
        every: whole days in which there is at least one with rows. Of a source that comes once a month, 31 days: a day
            without rows is then in time by those of the 30 days before.
    """

    within: timedelta = timedelta(hours=36)
    budget: float = 0.05
    every: timedelta = timedelta(days=1)

    def __post_init__(self) -> None:
        check(
            unless(is_time(self.within, timedelta.resolution), "freshness.within",
                   "a time above zero", str(self.within), "Write it as timedelta(hours=36)."),
            is_share("freshness.budget", self.budget),
            unless(is_days(self.every, 1), "freshness.every", "whole days, 1 or more", str(self.every),
                   "Write it as timedelta(days=31)."),
        )  # fmt: skip

    @property
    def age(self) -> timedelta:
        """At which the table's last materialization breaks Dagster's freshness policy."""
        return self.within + self.every - timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Which columns are about people: their values are never shown, and no statistics of them are kept.

    Attributes:
        person: columns with the id of the person a row is about; `lakehouse forget` looks there.
        tokens: columns with tokens; a new key (`lakehouse keys rotate`) makes every day of the table stale.
        further: other columns that are personal data.
    """

    person: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    further: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check(
            are_names("privacy.person", self.person),
            are_names("privacy.tokens", self.tokens),
            are_names("privacy.further", self.further),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """All personal columns, each once."""
        return tuple(dict.fromkeys((*self.person, *self.tokens, *self.further)))


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How the table's days lie in files, and how a build of them may be cut.

    Attributes:
        files_per_day: files one day is spread over; raise it for days that outgrow one task.
        slice_by: how a build that outgrows the engine may be cut (`backfill --slices`); None: it is always built whole.
    """

    files_per_day: int = 1
    slice_by: SliceBy | None = None

    def __post_init__(self) -> None:
        check(is_at_least("layout.files_per_day", self.files_per_day, 1))
