"""A training set: to each label the newest features that were valid at its time, and nothing of what came later.

Labels and the rows of all tables are put in one order, by entity and time, and each label takes the last row of each
table that stands before it: one shuffle, however many tables. Only days are read that some label can use.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from typing import TYPE_CHECKING

from lakehouse.contracts import Features
from lakehouse.delta.log import readable_at
from lakehouse.errors import UsageError
from lakehouse.features.known import SPAN, Life, lives, read_lives, span_of, times
from lakehouse.features.labels import Labels, judged
from lakehouse.features.request import AGE, MISSING, Wanted, parse_features
from lakehouse.lazy import F, T
from lakehouse.read.lake import Lake, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_AT, _LABEL, _FROM = "_at", "_label", "_from"
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class TrainingSet:
    """Labels with features.

    Attributes:
        frame: a row for each label, in no order: its columns, then for each table the features asked for
            (`<table>__<feature>`), `<table>__age_seconds` (from the end of the row's day to the label; null without a
            row) and `<table>__missing` (there was no row, or it was older than the table's ttl).
        labels: how many there are.
        versions: the Delta version of each table that was read; as known then, the newest that counts.
        wanted: the features.
    """

    frame: DataFrame
    labels: int
    versions: Mapping[str, int]
    wanted: tuple[Wanted, ...]


def training_set(
    lake: Lake,
    labels: DataFrame,
    features: Sequence[str],
    *,
    time: str = "event_time",
    as_known_then: bool = False,
    versions: Mapping[str, int] | None = None,
    ttls: Mapping[str, timedelta] | None = None,
    source: str = "The labels",
) -> TrainingSet:
    """Labels with the features that were valid at their time: per table the newest row that is not older than its ttl.

    A row of a day is valid from the end of that day (00:00 UTC of the next). Labels that are there twice stay twice.

    Args:
        lake: where the tables are.
        labels: with the columns that identify the entity, a time, and any others, which are kept.
        features: as `parse_features` reads them, such as `gold.user_features:rolling_7d_amount`.
        time: column with the time of a label; text without an offset is UTC.
        as_known_then: use only what had been published by the label's time; what was corrected later stays as it was.
        versions: Delta version to read by table; a table that is not named is read at its newest.
        ttls: how long rows may be used by table; where a table is not named, as long as it says.
        source: what messages call the labels.

    Raises:
        UsageError: for labels without key or time, and for features that do not exist.
        HistoryGoneError: for a version, or what was known at a time, that cannot be read any more.
    """
    asked = parse_features(features, lake.tables)
    wanted = tuple(replace(each, ttl=(ttls or {}).get(each.table.id)) for each in asked)
    read = {each.table.id: _version(lake, each, versions or {}) for each in wanted}
    key = T.StructType([wanted[0].table.schema[name] for name in wanted[0].features.key])
    found = judged(labels, key, time, source=source)
    if taken := sorted({name for each in wanted for name in each.made} & set(found.frame.columns)):
        raise UsageError(
            f"{source}: the column {taken[0]} would be there twice: it is what a feature is called. Rename it."
        )
    ordered = _labels(found.frame, key.names, time)
    if as_known_then:
        ordered, rows = _as_known_then(lake, ordered, found, wanted, read)
    else:
        rows = [
            _rows(
                lake.read(
                    each.table, _days(lake, each, found, read), lake.snapshot(each.table.id, read[each.table.id])
                ),
                each,
            )
            for each in wanted
        ]
    by = [*key.names, *([SPAN] if as_known_then else [])]
    frame = _joined(ordered, rows, by, wanted, found.frame.columns)
    return TrainingSet(frame, found.rows, read, wanted)


def _version(lake: Lake, wanted: Wanted, versions: Mapping[str, int]) -> int:
    path, name = lake.path(wanted.table.id), wanted.table.id
    if not lake.snapshot(name).exists:
        raise UsageError(f"{name} was never built. Build it: lakehouse backfill --select '+{name}' --from DAY --to DAY")
    return readable_at(path, versions[name]).version if name in versions else lake.snapshot(name).version


def _usable(days: Collection[date], labels: Labels, features: Features) -> list[date]:
    """Of some days those whose rows a label can use: they ended by the end of its day, and within the ttl."""
    longest = -(-features.ttl // _DAY)  # in whole days, rounded up
    return [
        day
        for day in sorted(days)
        if bisect_right(labels.days, day + _DAY * (longest + 1)) > bisect_left(labels.days, day + _DAY)
    ]


def _days(lake: Lake, wanted: Wanted, labels: Labels, read: Mapping[str, int]) -> list[date]:
    snapshot = lake.snapshot(wanted.table.id, read[wanted.table.id])
    return _usable(snapshot.by_day(wanted.table.day_column), labels, wanted.features)


def _labels(frame: DataFrame, key: Sequence[str], time: str) -> DataFrame:
    """Labels as they are put in order: the key, the time, and the whole label as one column."""
    whole = F.struct(*[F.col(quoted(name)) for name in frame.columns]).alias(_LABEL)
    return frame.select(*[F.col(name) for name in key], F.col(quoted(time)).alias(_AT), whole)


def _slot(wanted: Wanted) -> str:
    return f"_of_{wanted.table.name}"


def _rows(frame: DataFrame, wanted: Wanted) -> DataFrame:
    """Rows of a table as they are put in order: at the time from which they are valid."""
    begins = F.date_add(wanted.table.day_column, 1).cast("timestamp")  # as `Features.valid_from`
    spans = [SPAN] if SPAN in frame.columns else []
    slot = F.struct(begins.alias(_FROM), *[F.col(name) for name in wanted.columns]).alias(_slot(wanted))
    return frame.select(*[F.col(name) for name in (*wanted.features.key, *spans)], begins.alias(_AT), slot)


def _joined(
    labels: DataFrame, rows: Sequence[DataFrame], by: Sequence[str], wanted: Sequence[Wanted], names: Sequence[str]
) -> DataFrame:
    from pyspark.sql import Window

    # Entities that no label is of need not be put in order.
    asked = labels.select(*by).distinct()
    several = [each.join(asked, list(by), "left_semi") for each in rows]
    merged = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), [labels, *several])
    # At one moment rows stand before labels: a row is valid from the first moment on.
    before = Window.partitionBy(*by).orderBy(_AT, F.col(_LABEL).isNotNull())
    before = before.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    last = {_slot(each): F.last(_slot(each), ignorenulls=True).over(before) for each in wanted}
    found = merged.select(_AT, _LABEL, *[value.alias(name) for name, value in last.items()]).where(
        F.col(_LABEL).isNotNull()
    )
    return found.select(
        *[F.col(_LABEL)[name].alias(name) for name in names], *[column for each in wanted for column in _told(each)]
    )


def _told(wanted: Wanted) -> list[Column]:
    slot = F.col(_slot(wanted))
    fresh = F.coalesce(F.col(_AT) <= slot[_FROM] + F.lit(wanted.features.ttl), F.lit(False))
    values = {name: slot[name] for name in wanted.columns} | {AGE: F.timestamp_diff("SECOND", slot[_FROM], F.col(_AT))}
    told = [F.when(fresh, value).alias(wanted.called(name)) for name, value in values.items()]
    return [*told, (~fresh).alias(wanted.called(MISSING))]


def _as_known_then(
    lake: Lake, ordered: DataFrame, labels: Labels, wanted: Sequence[Wanted], read: Mapping[str, int]
) -> tuple[DataFrame, list[DataFrame]]:
    """Labels and rows with the span of history that they belong to."""
    since = datetime.combine(labels.days[0], time.min, UTC)
    of_table: dict[str, list[Life]] = {}
    for each in wanted:
        path, column = lake.path(each.table.id), each.table.day_column
        all_days = {
            labels.days[0] + _DAY * n
            for n in range(-((each.features.ttl // _DAY) + 2), (labels.days[-1] - labels.days[0]).days)
        }
        days = _usable(all_days, labels, each.features)
        of_table[each.table.id] = lives(path, read[each.table.id], column, days, since)
    cuts = times(life for several in of_table.values() for life in several)
    ordered = ordered.withColumn(SPAN, span_of(F.col(_AT), cuts))
    # As many numbers as commits that touched these days, at most.
    told = ordered.agg(F.array_sort(F.collect_set(SPAN)).alias("spans")).first()
    asked: list[int] = list(told["spans"]) if told else []
    rows = []
    for each in wanted:
        found = of_table[each.table.id]
        spans: dict[str, list[int]] = {}
        for life in found:  # a file may have been live, gone and live again
            spans.setdefault(life.file.path, []).extend(_spans(life, cuts, asked))
        rows.append(_rows(read_lives(lake, each.table, read[each.table.id], found, spans), each))
    return ordered, rows


def _spans(life: Life, cuts: Sequence[datetime], asked: Sequence[int]) -> list[int]:
    """Of the spans with labels those in which a file was live."""
    first = bisect_right(cuts, life.first)
    end = len(cuts) + 1 if life.end is None else bisect_right(cuts, life.end)
    return list(asked[bisect_left(asked, first) : bisect_left(asked, end)])
