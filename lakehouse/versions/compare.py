"""A candidate against the live table: which rows and columns differ, found in one pass and judged by key."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.contracts import Table
from lakehouse.contracts.figures import added
from lakehouse.delta.snapshot import Snapshot
from lakehouse.delta.staged import UNSEEN
from lakehouse.pairs import in_pairs
from lakehouse.read.content import OF_THE_RUN
from lakehouse.read.lake import Lake, in_days
from lakehouse.spark.planning import plan_for
from lakehouse.versions.candidate import Candidate

# What says which build wrote a row, rather than what the row says.
_POSITION = ("_source_file", "_source_row")  # identifies a row of a table without a key
_SIDES = ("live", "candidate")
_AT = "_at"


@dataclass(frozen=True)
class Comparison:
    """How a candidate differs from the live table, over the candidate's days.

    Attributes:
        days: the days compared.
        rows: rows of the live table, and of the candidate.
        only_live, only_candidate: rows whose key only one of them has.
        changed: rows with the same key and other values; `columns` counts them by column.
        by_day: days with differences: rows only live, only in the candidate, changed.
        metrics: by column, sum (of numbers) and nulls of each side.
        added, removed, retyped: columns that differ themselves; only shared ones are compared.
        quarantined: rows in quarantine of each side.
        sample: some differing rows without personal data.
    """

    days: Sequence[date]
    rows: tuple[int, int]
    only_live: int
    only_candidate: int
    changed: int
    columns: Mapping[str, int]
    by_day: Mapping[date, tuple[int, int, int]]
    metrics: Mapping[str, Mapping[str, Any]]
    added: Sequence[str]
    removed: Sequence[str]
    retyped: Sequence[str]
    quarantined: tuple[int, int]
    sample: Sequence[Mapping[str, Any]] = field(default_factory=tuple)

    @property
    def same(self) -> bool:
        """True where no reader could tell the two apart."""
        rows = self.only_live + self.only_candidate + self.changed
        columns = [*self.added, *self.removed, *self.retyped]
        return not rows and not columns and self.quarantined[0] == self.quarantined[1]


def compare(lake: Lake, candidate: Candidate, *, sample: int = 10) -> Comparison:
    """Compare a candidate with the live table as it is now, in one grouped pass over both.

    What comes back to the driver is counts by day and at most `sample` rows.

    Args:
        lake: where the tables are, and what computes.
        candidate: the candidate.
        sample: most differing rows to show.
    """
    table, live = candidate.table, lake.snapshot(candidate.table.id)
    plan_for(lake.spark, lake.settings, None)  # a small build may have been before this
    # Only the candidate's days: the live table has others, which a swap would leave as they are.
    frames = [_frame(lake, each, table, candidate.days) for each in (live, candidate.main)]
    old, new = (_types(frame) for frame in frames)
    # Columns of one type on both sides are compared; the others are only named.
    names = [name for name in new if old.get(name) == new[name] and name not in OF_THE_RUN]
    key = _key(table, [name for name in names if not _has_map(new[name])])
    others = [name for name in names if name not in key]
    numbers = {name: new[name] for name in names if isinstance(new[name], T.NumericType)}
    # Groups a day, rounded up, so that there are enough of them for the sample wanted: each gives one row.
    most = max(1, -(-sample // max(1, len(candidate.days))))
    found = _grouped(frames, table, key, {name: new[name] for name in others}, numbers, most)
    sums = _sums(found)
    return Comparison(
        days=candidate.days,
        rows=(sums["live"], sums["candidate"]),
        only_live=sums["live"] - sums["both"],
        only_candidate=sums["candidate"] - sums["both"],
        changed=sums["changed"],
        columns={n: total for n in others if (total := sum(row[f"differs_{n}"] for row in found))},
        by_day=_by_day(found),
        metrics={n: _metrics(found, n, new[n]) for n in names},
        **_differing(old, new),
        quarantined=_quarantined(lake, candidate),
        sample=_samples(found, key)[:sample],
    )


def _types(frame: DataFrame) -> dict[str, T.DataType]:
    return {each.name: each.dataType for each in frame.schema.fields}


def _differing(old: Mapping[str, T.DataType], new: Mapping[str, T.DataType]) -> dict[str, list[str]]:
    """Columns that differ themselves, by the words of `Comparison`."""
    return {
        "added": [name for name in new if name not in old],
        "removed": [name for name in old if name not in new],
        "retyped": [name for name in new if name in old and old[name] != new[name]],
    }


def _sums(found: Sequence[Row]) -> dict[str, int]:
    """Rows over all days; a sum over no row at all is null in Spark."""
    return {name: sum(row[name] or 0 for row in found) for name in ("live", "candidate", "both", "changed")}


def _samples(found: Sequence[Row], key: Sequence[str]) -> list[dict[str, Any]]:
    return [_shown(row["sample"], key) for row in found if row["sample"] is not None]


def _by_day(found: Sequence[Row]) -> dict[date, tuple[int, int, int]]:
    by_day: dict[date, tuple[int, int, int]] = {}
    for row in found:
        counts = (row["live"] - row["both"], row["candidate"] - row["both"], row["changed"])
        if any(counts):
            before = by_day.get(row["day"], (0, 0, 0))
            by_day[row["day"]] = (before[0] + counts[0], before[1] + counts[1], before[2] + counts[2])
    return dict(sorted(by_day.items()))


def _frame(lake: Lake, snapshot: Snapshot, table: Table, days: Sequence[date]) -> DataFrame:
    frame = lake.spark.read.format("delta").option("versionAsOf", snapshot.version).load(snapshot.uri)
    return frame.where(in_days(table.day_column, days))


def _key(table: Table, names: Sequence[str]) -> list[str]:
    if table.key and set(table.key) <= set(names):
        return list(table.key)
    return list(_POSITION) if set(_POSITION) <= set(names) else list(names)


def _grouped(
    frames: Sequence[DataFrame],
    table: Table,
    key: Sequence[str],
    others: Mapping[str, T.DataType],
    numbers: Mapping[str, T.DataType],
    most: int,
) -> list[Row]:
    """Counts and sums by day, in `most` groups each with one differing row, chosen by the hash of its key."""
    live = F.col("_live")
    values = F.struct(*others) if others else F.struct(F.lit(1))
    one, two = (frame.select(*key, *others, F.lit(n == 0).alias("_live")) for n, frame in enumerate(frames))
    by_key = (
        _told_apart(one.unionByName(two), table, key)
        .groupBy(*key, _AT)
        .agg(
            F.count_if(live).alias("_n_live"),
            F.count_if(~live).alias("_n_candidate"),
            F.any_value(F.when(live, values), True).alias("_of_live"),
            F.any_value(F.when(~live, values), True).alias("_of_candidate"),
        )
    )

    def value(side: str, name: str) -> Column:
        return F.when(F.col(f"_n_{side}") > 0, F.col(name)) if name in key else F.col(f"_of_{side}")[name]

    # Of a key that stands twice on one side and once on the other, one pair is compared, and one row is only there.
    both = F.least("_n_live", "_n_candidate")
    differs = {n: (both > 0) & ~_is_same(value("live", n), value("candidate", n), others[n]) for n in others}
    changed = in_pairs(or_, differs.values(), F.lit(False))
    differing = changed | (F.col("_n_live") != F.col("_n_candidate"))
    digest = F.xxhash64(*key)
    figures = [
        F.sum("_n_live").alias("live"),
        F.sum("_n_candidate").alias("candidate"),
        F.sum(both).alias("both"),
        F.count_if(changed).alias("changed"),
        *[F.count_if(each).alias(f"differs_{name}") for name, each in differs.items()],
        F.min_by(F.when(differing, _sample(table, key, others, value)), F.when(differing, digest)).alias("sample"),
    ]
    for name in [*key, *others]:
        for side in _SIDES:
            there, each = F.col(f"_n_{side}"), value(side, name)
            figures.append(F.sum(F.when(each.isNull(), there)).alias(f"nulls_{side}_{name}"))
            if name in numbers:
                # A key's value counts for each of its rows; of other columns there is one value a group.
                if isinstance(numbers[name], T.IntegralType):
                    each = each.cast("decimal(20,0)")  # the sum of whole numbers may have more digits than they can
                total = each * there if name in key else each
                figures.append(F.sum(total).alias(f"sum_{side}_{name}"))
    day = F.coalesce(value("candidate", table.day_column), value("live", table.day_column)).alias("day")
    return by_key.groupBy(day, F.pmod(digest, F.lit(most)).alias("group")).agg(*figures).collect()


def _told_apart(rows: DataFrame, table: Table, key: Sequence[str]) -> DataFrame:
    """The rows with the day by which those of a key are told apart: null where its one row may have moved to another.

    As a rule a key is unique within a day alone, or some days: of one that stands on several, any two rows would be
    compared, and what is the same on both sides be told as changed.
    """
    day = F.col(table.day_column)
    if table.upsert or not table.key or set(key) != set(table.key) or table.day_column in key:
        return rows.withColumn(_AT, F.lit(None).cast("date"))
    same = Window.partitionBy(*key)
    most = F.greatest(F.count_if("_live").over(same), F.count_if(~F.col("_live")).over(same))
    return rows.withColumn(_AT, F.when(most > 1, day))


def _is_same(one: Column, other: Column, kind: T.DataType) -> Column:
    return _comparable(one, kind).eqNullSafe(_comparable(other, kind))


def _has_map(kind: T.DataType) -> bool:
    match kind:
        case T.MapType():
            return True
        case T.ArrayType():
            return _has_map(kind.elementType)
        case T.StructType():
            return any(_has_map(each.dataType) for each in kind.fields)
    return False


def _comparable(value: Column, kind: T.DataType) -> Column:
    """The value with its maps as sorted lists of entries: Spark compares no maps, whose entries have no order."""
    if not _has_map(kind):
        return value
    match kind:
        case T.MapType():
            held = kind.valueType  # a key holds no map

            def entry(each: Column) -> Column:
                return F.struct(each["key"].alias("key"), _comparable(each["value"], held).alias("value"))

            return F.array_sort(F.transform(F.map_entries(value), entry))
        case T.ArrayType():
            element = kind.elementType
            return F.transform(value, lambda each: _comparable(each, element))
        case T.StructType():
            fields = [_comparable(value[each.name], each.dataType).alias(each.name) for each in kind.fields]
            return F.when(value.isNotNull(), F.struct(*fields))
    return value


def _sample(table: Table, key: Sequence[str], others: Collection[str], value: Any) -> Column:
    shown = [name for name in [*key, *others] if name not in table.pii and name not in UNSEEN]
    sides = [
        F.when(F.col(f"_n_{side}") > 0, F.struct(*[value(side, name).alias(name) for name in shown])).alias(side)
        for side in _SIDES
    ]
    return F.struct(*sides)


def _shown(found: Row, key: Sequence[str]) -> dict[str, Any]:
    """A differing row: what it is called, the values that differ, of each side, and then those that do not."""
    live, candidate = (None if found[side] is None else found[side].asDict() for side in _SIDES)
    if live is None or candidate is None:
        only = "live" if candidate is None else "candidate"
        return {"only": only, **(live or candidate or {})}
    same = {name: value for name, value in live.items() if candidate[name] == value}
    differing = {name: {"live": live[name], "candidate": candidate[name]} for name in live if name not in same}
    return {**{name: same[name] for name in key if name in same}, **differing, **same}


def _metrics(found: Sequence[Row], name: str, kind: T.DataType) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for side in _SIDES:
        said[f"{side}_nulls"] = sum(row[f"nulls_{side}_{name}"] or 0 for row in found)
        if isinstance(kind, T.NumericType):
            totals = [each for row in found if (each := row[f"sum_{side}_{name}"]) is not None]
            # Python's own sum of decimals rounds to 28 digits.
            total = added(totals) if any(isinstance(each, Decimal) for each in totals) else sum(totals)
            said[f"{side}_sum"] = int(total) if isinstance(kind, T.IntegralType) else total
    return said


def _quarantined(lake: Lake, candidate: Candidate) -> tuple[int, int]:
    table = candidate.table
    if candidate.side is None:
        return 0, 0
    wanted = set(candidate.days)
    counts = [
        sum(rows for day, rows in side.rows_by_day(table.day_column).items() if day in wanted)
        for side in (lake.snapshot(table.quarantine_id), candidate.side)
    ]
    return counts[0], counts[1]
