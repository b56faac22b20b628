"""Whose clock is wrong, and by how much: measured for each producer and arrival day in the pass that publishes the day.

Nothing is queried for it. Of a landed table the partitions already part the rows that are dated off their arrival day,
and the lines of each file are known; of a table with a `Clock`, the rows with impossible times are in quarantine, with
their files. No clock is compared with another one here: a delay is never negative, so what is dated after its arrival
is the proof, and how far after is the least that the clock is ahead (a one-way measurement; where a producer is only
behind, delay and skew cannot be told apart, and both are lateness).
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.checks.metrics import DayMetrics
from lakehouse.checks.statistics import exceeds, percentile
from lakehouse.contracts import Clock, Table
from lakehouse.days import end_of
from lakehouse.delta.staged import FAILED_RULES, QUARANTINED, VALID, StagedFile
from lakehouse.read.lake import Lake
from lakehouse.records.history import latest_records
from lakehouse.store import parquet

WRONG = ("far_ahead", "too_old", "mixed_units", "number")  # rows by kind of impossible time
_SOURCE = "_source_file"
_DAY_SECONDS = 86_400

Figures = Mapping[str, int]


@dataclass(frozen=True)
class ProducerDay:
    """One producer on one arrival day.

    Figures by name, 0 where there are none:
        rows: lines that arrived.
        ahead: rows dated after their arrival, by at most a day; `ahead_p50` and `ahead_most` say by how many seconds.
        late: rows of earlier days; `late_p50`, `late_p95` and `late_most` are days, over all rows.
        wrong: rows in quarantine for an impossible time, by kind: `far_ahead` (more than a day; `far_ahead_p50` and
            `far_ahead_most` seconds), `too_old`, `mixed_units`, `number`.
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


# ---- measured while a day is published ------------------------------------------------------------------------------


def with_clocks(
    lake: Lake,
    table: Table,
    files: Iterable[StagedFile],
    lines: Mapping[date, Mapping[str, int]],
    metrics: Mapping[date, DayMetrics],
) -> dict[date, DayMetrics]:
    """The figures of the days of a landed table, or of a table with a `Clock`, with those of its producers.

    Args:
        lake: whose contracts say who produces a file.
        table: whose days they are.
        files: the staged files.
        lines: of a landed table, lines by day and producer.
        metrics: figures by day.
    """
    by_day: dict[date, list[StagedFile]] = defaultdict(list)
    for file in files:
        by_day[date.fromisoformat(file.partition[table.day_column] or "")].append(file)
    found = dict(metrics)
    for day, m in metrics.items():
        if table.landing:
            off = [file for file in by_day[day] if file.route == VALID and _content(table, file) != day]
            found[day] = replace(m, clocks=_landed(table, day, off, lines.get(day, {})))
        elif table.clock and any(m.failures.get(rule.name) for rule in table.clock.rules):
            aside = [file for file in by_day[day] if file.route == QUARANTINED]
            found[day] = replace(m, clocks=_impossible(table.clock, day, aside, _producers(lake)))
    return found


def _content(table: Table, file: StagedFile) -> date:
    return date.fromisoformat(file.partition[table.content_day_column] or "")


def _landed(table: Table, day: date, off: Sequence[StagedFile], lines: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Lines, rows dated after their arrival and days late, by producer, from the files of other days than the arrival.

    A file of rows is read (two columns) only where its footer does not tell whose they are, and where its rows are
    dated after the arrival.
    """
    landing = table.landing
    assert landing is not None
    late: dict[str, Counter[int]] = defaultdict(Counter)
    ahead: dict[str, array[float]] = defaultdict(lambda: array("d"))
    for file in off:
        days = (day - _content(table, file)).days
        only = _only(file, lines, landing.producer_of)
        if days > 0 and only is not None:
            late[only][days] += file.rows
        elif days > 0:
            for path, rows in _counted(file.path).items():
                late[landing.producer_of(path)][days] += rows
        elif landing.time is not None:
            for path, text in _pairs(file.path, landing.time):
                ahead[landing.producer_of(path)].append(_seconds_after(end_of(day), text))
    found: dict[str, dict[str, int]] = {}
    for producer in sorted({*lines, *late, *ahead}):
        rows, over, days_late = lines.get(producer, 0), ahead[producer], late[producer]
        all_rows = days_late + Counter({0: max(0, rows - days_late.total())})
        found[producer] = {
            "rows": rows,
            **_spread("ahead", over),
            "late": days_late.total(),
            **{f"late_p{share}": percentile(all_rows, share / 100) for share in (50, 95)},
            "late_most": max(days_late, default=0),
        }
    return {producer: _without_zeros(figures) for producer, figures in found.items()}


def _only(file: StagedFile, lines: Mapping[str, int], producer_of: Callable[[str], str]) -> str | None:
    if len(lines) == 1:
        return next(iter(lines))
    low, high = file.low.get(_SOURCE), file.high.get(_SOURCE)
    return producer_of(low) if isinstance(low, str) and low == high else None


def _impossible(
    clock: Clock, day: date, files: Sequence[StagedFile], producer_of: Callable[[str], str]
) -> dict[str, dict[str, int]]:
    """Rows with impossible times by producer and kind.

    Left out are rows that are in a day after their arrival: the landed table has counted them as ahead.
    """
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    ahead: dict[str, array[float]] = defaultdict(lambda: array("d"))
    end = int(end_of(day).timestamp())
    for file in files:
        for rules, path, micros in _broken(file.path, clock, day):
            kind = _kind_of(clock, rules)
            producer = producer_of(path)
            kinds[producer][kind] += 1
            if kind == "far_ahead" and micros is not None:
                ahead[producer].append(micros / 1e6 - end)
    return {
        producer: _without_zeros({**counted, **_spread("far_ahead", ahead[producer])})
        for producer, counted in sorted(kinds.items())
    }


def _kind_of(clock: Clock, rules: Sequence[str]) -> str:
    named = {clock.number: "number", clock.unit: "mixed_units", clock.future: "far_ahead", clock.old: "too_old"}
    return next(kind for rule, kind in named.items() if rule in rules)


def _broken(path: Path, clock: Clock, day: date) -> Iterable[tuple[Sequence[str], str, int | None]]:
    """The rows that arrived on a day and broke a rule on clocks: rules, file, and time in microseconds since 1970."""
    names = pa.array([rule.name for rule in clock.rules])
    with parquet.opened(path) as data:
        for batch in data.iter_batches(columns=[FAILED_RULES, _SOURCE, "_arrival_date", clock.column]):
            failed = batch.column(FAILED_RULES)
            hit = pc.is_in(pc.list_flatten(failed), names)
            rows = pc.unique(pc.filter(pc.list_parent_indices(failed), hit))
            some = batch.take(rows)
            some = some.filter(pc.equal(some.column("_arrival_date"), pa.scalar(day)))
            # As numbers: Python has no year 0 and no year 10000.
            moments = some.column(clock.column).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            columns = some.column(FAILED_RULES), some.column(_SOURCE), moments
            yield from (
                (rules, file or "", micros)
                for rules, file, micros in zip(*(c.to_pylist() for c in columns), strict=True)
            )


def _counted(path: Path) -> dict[str, int]:
    """Rows of a staged file by landed file."""
    counted: Counter[str] = Counter()
    with parquet.opened(path) as data:
        for batch in data.iter_batches(columns=[_SOURCE]):
            counted.update({each["values"]: each["counts"] for each in pc.value_counts(batch.column(0)).to_pylist()})
    return dict(counted)


def _pairs(path: Path, column: str) -> Iterable[tuple[str, str]]:
    with parquet.opened(path) as data:
        for batch in data.iter_batches(columns=[_SOURCE, column]):
            yield from zip(batch.column(_SOURCE).to_pylist(), batch.column(column).to_pylist(), strict=True)


def _seconds_after(end: datetime, text: str) -> float:
    """How far a time is after the end of its arrival day; 0 where Spark reads a text that Python does not."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return 0.0
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - end).total_seconds()


def _spread(name: str, seconds: array[float]) -> dict[str, int]:
    ordered = sorted(seconds)
    if not ordered:
        return {}
    return {name: len(ordered), f"{name}_p50": int(ordered[(len(ordered) - 1) // 2]), f"{name}_most": int(ordered[-1])}


def _without_zeros(figures: Mapping[str, int]) -> dict[str, int]:
    return {name: number for name, number in figures.items() if number}


# ---- put together and judged ----------------------------------------------------------------------------------------


def _producers(lake: Lake) -> Callable[[str], str]:
    landings = {each.landing.source: each.landing for each in lake.tables.values() if each.landing}

    def producer_of(path: str) -> str:
        source = path.split("/")[1] if path.startswith("landing/") else ""
        return landings[source].producer_of(path) if source in landings else source or "unknown"

    return producer_of


def producer_days(
    lake: Lake, table: Table, days: Iterable[date] | None = None, built: Mapping[date, DayMetrics] | None = None
) -> list[ProducerDay]:
    """The producers of a table with a `Clock` by arrival day, from the figures that commits keep; reads no data.

    Args:
        lake: where the tables are.
        table: the one with the clock; what its landed inputs keep is added.
        days: arrival days; None: all.
        built: figures of days that were built just now, published or not.
    """
    wanted = None if days is None else sorted(set(days))
    root, merged = lake.settings.root, defaultdict[tuple[date, str], dict[str, int]](dict)
    own = _kept_figures(root, table.id, wanted)
    # What was built just now is not in the history yet, and may never be: a day that failed is judged too.
    own |= {day: m.clocks for day, m in (built or {}).items()}
    landed = [each.table for each in table.upstream.values() if lake.table(each.table).landing]
    for by_day in (own, *(_kept_figures(root, name, wanted) for name in landed)):
        for day, producers in by_day.items():
            for producer, figures in producers.items():
                merged[day, producer].update(figures)
    return [ProducerDay(day, producer, figures) for (day, producer), figures in sorted(merged.items())]


def _kept_figures(root: Path, name: str, days: Collection[date] | None) -> dict[date, Mapping[str, Figures]]:
    """By day and producer, what the commits of a table say of clocks."""
    found = latest_records(root, name, days, ["clocks"])
    return {day: record.figures.get("clocks", {}) for day, record in found.items()}


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
