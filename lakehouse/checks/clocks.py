"""What the rows of a day say of the clocks that dated them, by producer: measured in the pass that publishes the day.

Nothing is queried for it. Of a landed table the partitions already part the rows that are dated off their arrival day,
and the lines of each file are known; of a table with a `Clock`, the rows with impossible times are in quarantine, with
where they came from. No clock is compared with another one here: a delay is never negative, so what is dated after its
arrival is the proof, and how far after is the least that the clock is ahead (a one-way measurement; where a producer is
only behind, delay and skew cannot be told apart, and both are lateness).
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.checks.metrics import DayMetrics
from lakehouse.checks.producers import BEFORE, is_message, lateness, producers
from lakehouse.contracts import Clock, Table
from lakehouse.days import end_of
from lakehouse.delta.staged import FAILED_RULES, QUARANTINED, VALID, StagedFile
from lakehouse.read.lake import Lake
from lakehouse.store import parquet

_SOURCE = "_source_file"
_MICROS = pa.timestamp("us", "UTC")


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
            found[day] = replace(m, clocks=_impossible(table.clock, day, aside, producers(lake, table)))
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
        found[producer] = {"rows": rows, **_spread("ahead", over), **lateness(all_rows)}
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

    Of rows that are in the day after their arrival, only messages are counted, as ahead on the day before: the landed
    table has counted the others.
    """
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    ahead: dict[str, array[float]] = defaultdict(lambda: array("d"))
    before: dict[str, array[float]] = defaultdict(lambda: array("d"))
    for file in files:
        for rules, path, arrival, seconds in _broken(file.path, clock):
            producer = producer_of(path)
            if arrival == day:
                kind = _kind_of(clock, rules)
                kinds[producer][kind] += 1
                if kind == "far_ahead" and seconds is not None:
                    ahead[producer].append(seconds)
            elif arrival == day - timedelta(days=1) and is_message(path) and seconds is not None:
                before[producer].append(seconds)
    return {
        producer: _without_zeros(
            {**kinds[producer], **_spread("far_ahead", ahead[producer]), **_spread(BEFORE, before[producer])}
        )
        for producer in sorted({*kinds, *before})
    }


def _kind_of(clock: Clock, rules: Sequence[str]) -> str:
    named = {clock.number: "number", clock.unit: "mixed_units", clock.future: "far_ahead", clock.old: "too_old"}
    return next(kind for rule, kind in named.items() if rule in rules)


def _broken(path: Path, clock: Clock) -> Iterable[tuple[Sequence[str], str, date, float | None]]:
    """The rows that broke a rule on clocks: rules, file, arrival day, and seconds from arrival to event."""
    names = pa.array([rule.name for rule in clock.rules])
    with parquet.opened(path) as data:
        # A kept file may be of before the moment was.
        beside = [name for name in clock.beside if name in data.schema_arrow.names]
        for batch in data.iter_batches(columns=[FAILED_RULES, _SOURCE, clock.column, *beside]):
            failed = batch.column(FAILED_RULES)
            hit = pc.is_in(pc.list_flatten(failed), names)
            rows = pc.unique(pc.filter(pc.list_parent_indices(failed), hit))
            some = batch.take(rows)
            days = some.column("_arrival_date")
            # As numbers: Python has no year 0 and no year 10000.
            arrived = pc.multiply(pc.add(days.cast(pa.int32()).cast(pa.int64()), 1), 86_400_000_000)  # ends of days
            if clock.arrived_at in beside:
                arrived = pc.coalesce(some.column(clock.arrived_at).cast(_MICROS).cast(pa.int64()), arrived)
            after = pc.subtract(some.column(clock.column).cast(_MICROS).cast(pa.int64()), arrived)
            columns = some.column(FAILED_RULES), some.column(_SOURCE), days, after
            yield from (
                (rules, file or "", day, None if micros is None else micros / 1e6)
                for rules, file, day, micros in zip(*(c.to_pylist() for c in columns), strict=True)
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
    """How far the time of a landed row is after its arrival day; 0 where Spark reads a text that Python does not."""
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
