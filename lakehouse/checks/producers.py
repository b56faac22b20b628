"""Whose clock is wrong, and by how much: the figures of each producer and arrival day, put together and judged."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from lakehouse.checks.metrics import DayMetrics
from lakehouse.checks.statistics import exceeds, percentile
from lakehouse.contracts import Clock, Table
from lakehouse.days import days_around
from lakehouse.delta.files import as_date
from lakehouse.read.lake import Lake
from lakehouse.records.day_record import DayRecord
from lakehouse.records.history import judgements, latest_records

WRONG = ("far_ahead", "too_old", "mixed_units", "number")  # rows by kind of impossible time
BEFORE = "before_ahead"  # in the figures of a day: messages that are in it and arrived the day before; see `ahead`
_DAY = timedelta(days=1)
_DAY_SECONDS = 86_400

Figures = Mapping[str, int]
_ByDay = Mapping[date, Mapping[str, Figures]]


@dataclass(frozen=True)
class ProducerDay:
    """One producer on one arrival day.

    Figures by name, 0 where there are none:
        rows: lines that arrived.
        ahead: rows dated after their arrival, by at most a day; `ahead_p50` and `ahead_most` say by how many seconds.
        late: rows of earlier days; `late_p50`, `late_p95` and `late_most` are days, over all rows.
        wrong: rows in quarantine for an impossible time, by kind: `far_ahead` (more than a day, of messages more
            than the clock's `ahead`; `far_ahead_p50` and `far_ahead_most` seconds), `too_old`, `mixed_units`, `number`.
    """

    day: date
    producer: str
    figures: Figures

    def __getitem__(self, name: str) -> int:
        return self.figures.get(name, 0)

    @property
    def wrong(self) -> dict[str, int]:
        """Rows with impossible times by kind, without zeros."""
        return {kind: self.figures[kind] for kind in WRONG if self.figures.get(kind)}

    def accused(self, clock: Clock) -> str:
        """What is wrong with the producer's clock, in words; empty where nothing is, or its rows are not known."""
        told: list[str] = []
        if not self["rows"]:  # bronze was built before figures of producers were kept
            return ""
        if self["ahead_most"] > clock.ahead.total_seconds() and exceeds(self["ahead"], self["rows"], clock.max_wrong):
            by = f"by {span(self['ahead_p50'])} (median) to {span(self['ahead_most'])}"
            told.append(f"{self['ahead']} of {self['rows']} rows are ahead of their arrival {by}")
        if exceeds(sum(self.wrong.values()), self["rows"], clock.max_wrong):
            told += [f"{rows} of {self['rows']} rows {self._kind(kind)}" for kind, rows in self.wrong.items()]
        return "; ".join(told)

    def _kind(self, kind: str) -> str:
        return {
            "far_ahead": f"are ahead of their arrival by {span(self['far_ahead_p50'])} (median) or more",
            "too_old": "are too old, as by a clock that was never set",
            "mixed_units": "have seconds and milliseconds mixed up",
            "number": "have a number in place of a time",
        }[kind]


def span(seconds: int) -> str:
    """A time span for people."""
    for size, name in ((365 * _DAY_SECONDS, "years"), (_DAY_SECONDS, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds} s"


def producers(lake: Lake, table: Table) -> Callable[[str], str]:
    """Who made a row, by its `_source_file`: who wrote a landed file, or all who write to the topics of a source.

    Args:
        lake: whose contracts say who produces a file.
        table: whose rows they are: a topic may be read by others under another name.
    """
    landings = {each.landing.source: each.landing for each in lake.tables.values() if each.landing}
    inputs = [lake.table(each.table) for each in table.upstream.values()]
    topics = {name: each.topic.source for each in inputs if each.topic for name in each.topic.topics}

    def producer_of(path: str) -> str:
        _, source, *_ = (*path.split("/"), "")
        if is_message(path):
            return topics.get(source, source)
        return landings[source].producer_of(path) if source in landings else source or "unknown"

    return producer_of


def is_message(path: str) -> bool:
    """Whether a row came as a message, by its `_source_file`."""
    return path.startswith("topic/")


def producer_days(
    lake: Lake, table: Table, days: Iterable[date] | None = None, built: Mapping[date, DayMetrics] | None = None
) -> list[ProducerDay]:
    """The producers of a table with a `Clock` by arrival day, from the figures that commits keep; reads no data.

    Args:
        lake: where the tables are.
        table: the one with the clock; what its landed inputs keep is added.
        days: arrival days; None: all. One before them is told too, where messages that are in them came ahead of it.
        built: figures of days that were built just now, published or not.
    """
    asked = None if days is None else set(days)
    around = None if asked is None else sorted({each for day in asked for each in days_around(day, 1, 1)})
    # A clock may be so wrong that the day is held back: then what was found of it says more than what is published.
    kept = _clocks_of(judgements(lake.settings.root, table.id, around, ["clocks"]))
    kept |= {day: m.clocks for day, m in (built or {}).items()}
    own, before = _parted(kept)
    wanted = None if asked is None else sorted({*asked, *(day for day in before if day + _DAY in asked)})
    merged = defaultdict[tuple[date, str], dict[str, int]](dict)
    for by_day in (own, before, *_of_inputs(lake, table, wanted)):
        for day, producers in by_day.items():
            for producer, figures in producers.items():
                merged[day, producer].update(figures)
    found = (ProducerDay(day, producer, figures) for (day, producer), figures in sorted(merged.items()))
    return [each for each in found if wanted is None or each.day in wanted]


def _of_inputs(lake: Lake, table: Table, days: Collection[date] | None) -> Iterable[_ByDay]:
    """Of each input that is landed or taken from topics, what arrived on some days, or on all."""
    for source in (lake.table(each.table) for each in table.upstream.values()):
        if source.landing:
            yield _clocks_of(latest_records(lake.settings.root, source.id, days, ["clocks"]))
        elif source.topic:
            yield _messages(lake, source, source.topic.source, days)


def _clocks_of(records: Mapping[date, DayRecord]) -> dict[date, Mapping[str, Figures]]:
    """By day and producer, what records say of clocks."""
    return {day: record.figures.get("clocks", {}) for day, record in records.items()}


def _parted(kept: _ByDay) -> tuple[_ByDay, _ByDay]:
    """The figures of arrival days: those that days keep of themselves, and those that they keep of the day before."""
    own, before = defaultdict[date, dict[str, Figures]](dict), defaultdict[date, dict[str, Figures]](dict)
    for day, each in kept.items():
        for producer, figures in each.items():
            earlier = {name.replace(BEFORE, "ahead"): n for name, n in figures.items() if name.startswith(BEFORE)}
            if mine := {name: number for name, number in figures.items() if not name.startswith(BEFORE)}:
                own[day][producer] = mine
            if earlier:
                before[day - _DAY][producer] = earlier
    return own, before


def _messages(
    lake: Lake, table: Table, producer: str, days: Collection[date] | None
) -> dict[date, Mapping[str, Figures]]:
    """By arrival day, how many messages came, and how late; which writer of the topics sent one, nothing says."""
    snapshot, found = lake.snapshot(table.id), dict[date, Mapping[str, Figures]]()
    for day, files in snapshot.by_day(table.day_column).items():
        if days is None or day in days:
            content = snapshot.partition_by.index(table.content_day_column)
            days_late = Counter[int]()
            for file in files:
                days_late[max(0, (day - (as_date(file.partition[content]) or day)).days)] += file.rows
            found[day] = {producer: {"rows": days_late.total(), **lateness(days_late)}}
    return found


def lateness(days_late: Counter[int]) -> dict[str, int]:
    """Of rows by the days that they came late: how many did, and by how much."""
    return {
        "late": days_late.total() - days_late[0],
        **{f"late_p{share}": percentile(days_late, share / 100) for share in (50, 95)},
        "late_most": max(days_late, default=0),
    }


def judge_clocks(clock: Clock, found: Iterable[ProducerDay]) -> tuple[bool, str]:
    """Whether no producer's clock is wrong, and in words whose is; the newest day of each producer is told."""
    accused: dict[str, list[tuple[date, str]]] = defaultdict(list)
    judged = 0
    for each in found:
        judged += 1
        if text := each.accused(clock):
            accused[each.producer].append((each.day, text))
    if not accused:
        return True, f"no clock of a producer is wrong ({judged} judged)" if judged else "no figures of producers yet"
    told = [
        f"the clock of {producer} is wrong on {len(days)} day(s), last {days[-1][0]}: {days[-1][1]}"
        for producer, days in sorted(accused.items())
    ]
    return False, "; ".join(told)
