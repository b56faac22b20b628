"""Add rows to days that are there: of what a stream has brought since a day was published, only that is computed.

A day is added to where its table makes each row of one input row (`conserves_rows`), an input is taken in batches, and
the day was published by the same code from the same inputs, but for files that have come since. Whatever is otherwise,
and a day with many small files, is built whole: that is always right, and what this must come out like.

A new row may repeat one that is there. Which of them comes first, the inputs say (`keep_first_by`): their keys are
looked up in the older files. Where a new row comes before one that is there, that one would have to go; the days are
then built whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path

from pyspark.sql import DataFrame, Observation, Window
from pyspark.sql import functions as F

from lakehouse.build.base import Base, Pinned
from lakehouse.build.plan import Plan, as_open, make_plan
from lakehouse.build.route import BEATEN, observed
from lakehouse.build.unique import reach, with_neighbours, with_places
from lakehouse.contracts import Table
from lakehouse.delta.log import entries
from lakehouse.delta.maintenance import mergeable
from lakehouse.delta.snapshot import Snapshot
from lakehouse.delta.staged import COPIES, QUARANTINED, VALID, StagedFile, known_file
from lakehouse.errors import HistoryGoneError
from lakehouse.read.lake import Lake, in_days, joined
from lakehouse.records.day_record import DayRecord
from lakehouse.records.history import latest_records

MOST_SMALL = 48  # files of a day: with as many, it is built whole, into few; a stream merges them before that
FULL = 16 << 20  # bytes of a file that counts as small no more
MOST_SHARE = 0.5  # new rows of those that are there: with more, it costs what the whole day does
_SPOILT = "_spoilt"  # of a mark: a row that is there would have to go

Paths = Mapping[str, frozenset[str]]
"""Files by parameter of the transform."""


class BuildWholeError(Exception):
    """A row that is there comes after a new one of its key, so that the days have to be built whole."""


@dataclass(frozen=True)
class Growth:
    """Days that are added to.

    Attributes:
        days: in order.
        added: files with rows that the days have not been built from.
        recent: files that one of the days has not been built from, of their neighbours too.
        kept: the files of the days, whose rows stay.
        duplicates: by day, rows that were repeats when it was built before.
    """

    days: Sequence[date]
    added: Paths
    recent: Paths
    kept: Sequence[StagedFile]
    duplicates: Mapping[date, int]

    @cached_property
    def seen(self) -> Observation:
        """Told by the engine, when the rows are written, whether a row that is there would have to go."""
        # Not before: it is of one kind of session or the other, and to find out what grows starts none.
        return Observation()

    def check(self, files: Sequence[StagedFile]) -> None:
        """Once the rows are written.

        Args:
            files: to which they were.

        Raises:
            BuildWholeError: see there.
        """
        try:
            spoilt = self.seen.get[_SPOILT]
        except Exception:  # noqa: BLE001  # which one, depends on the engine
            # One that finds on its way that there are no rows leaves out the rest of the plan, and what was to be seen
            # with it: as where only a neighbour of the day has new ones.
            spoilt = bool(files)
        if spoilt:
            raise BuildWholeError


def may_grow(table: Table, lake: Lake) -> bool:
    """Whether days of a table can be added to, so that what is new costs what it is, and not the whole day."""
    return (
        table.conserves_rows
        and not table.upsert
        and table.partition_by == (table.day_column,)
        and not table.reads_other_days
        # An hour that closes changes what is there: each of its rows says when that was.
        and all(each.hours_close_after is None for each in table.upstream.values())
        and any(lake.table(each.table).taken is not None for each in table.upstream.values())
    )


def growth_of(base: Base, plan: Plan, days: Sequence[date]) -> Growth | None:
    """Which of some days can be added to; None where there is none.

    Args:
        base: the table.
        plan: its inputs, pinned for these days at least.
        days: stale ones.
    """
    table, lake = base.table, base.lake
    if not (may_grow(table, lake) and base.is_live):
        return None
    records = latest_records(lake.settings.root, table.id, days, ("duplicates", "inputs"))
    then = _Then(base, plan, records)
    grown = [day for day in days if then.grows(day)]
    if not grown:
        return None
    added: dict[str, set[str]] = {name: set() for name in plan.inputs}
    recent: dict[str, set[str]] = {name: set() for name in plan.inputs}
    near = with_neighbours(table, grown)
    for name, snapshot in plan.inputs.items():
        now = snapshot.by_day(lake.table(table.upstream[name].table).content_day_column)
        for day in grown:
            added[name].update({f.path for f in now.get(day, [])} - then.files(name, day, day))
            # What is new to any of the days counts as new to all of them: at worst they are built whole for nothing.
            for each in near:
                recent[name].update({f.path for f in now.get(each, [])} - then.files(name, day, each))
    kept = _kept(base.main, table, grown, VALID)
    kept += _kept(base.side, table, grown, QUARANTINED) if base.side else []
    return Growth(
        grown, _frozen(added), _frozen(recent), kept, {d: records[d].figures.get("duplicates") or 0 for d in grown}
    )


def grown_rows(lake: Lake, plan: Plan, growth: Growth) -> DataFrame:
    """The rows to add to the days, with marks for those that repeat rows that are there, or on a neighbour."""
    table, days = plan.table, list(growth.days)
    rows = table.transformed(**plan.frames(lake, days, growth.added))
    made = rows.withColumn(_SPOILT, F.lit(False))
    if table.key:
        near = with_neighbours(table, days) if plan.beside & set(days) else days
        marks = _marks(table, _near(lake, plan, near, growth, rows), days)
        made = made.withColumn(BEATEN, F.lit(False)).unionByName(marks, allowMissingColumns=True)
    return observed(made, growth.seen, F.max(_SPOILT).alias(_SPOILT))


def _near(lake: Lake, plan: Plan, near: Sequence[date], growth: Growth, rows: DataFrame) -> DataFrame:
    """Key, day and order of the new rows, and of all rows with the same keys within reach."""
    table = plan.table
    only_recent = {name: paths - growth.added[name] for name, paths in growth.recent.items()}
    older = dict[str, frozenset[str]]()
    for name, snapshot in plan.inputs.items():
        by_day = snapshot.by_day(lake.table(table.upstream[name].table).content_day_column)
        older[name] = frozenset(f.path for day in near for f in by_day.get(day, ())) - growth.recent[name]

    def rows_of(files: Paths) -> DataFrame:
        return table.transformed(**plan.frames(lake, near, files))

    recent = with_places(table, rows, recent=True, added=True)
    if any(only_recent.values()):
        recent = recent.unionByName(with_places(table, rows_of(only_recent), recent=True, added=False))
    # Not distinct, which would be a shuffle: to a semi join, a key that is there twice is there.
    keys = recent.select(*table.key)
    # A batch has few keys: every task gets them all, and the day's rows are not shuffled. Only of rows that have one of
    # them their place is made: it takes as long as to look for them.
    there = joined(rows_of(older), F.broadcast(keys), table.key, "left_semi")
    return recent.unionByName(with_places(table, there, recent=False, added=False))


def _marks(table: Table, rows: DataFrame, days: Sequence[date]) -> DataFrame:
    """One mark or several for each key and day whose new rows are repeats (as in `lakehouse.build.unique`)."""
    day = F.col(table.day_column)
    here = Window.partitionBy(*table.key, day)
    first = rows.withColumns(
        {"_first_at": F.min("_at").over(reach(table)), "_there": F.max(~F.col("_at.added")).over(here)}
    )
    elsewhere = F.col("_first_at.day") != day
    is_new = F.when(elsewhere, F.col("_first_at.recent")).otherwise(F.col("_first_at.added"))
    marked = first.where(in_days(table.day_column, days) & (F.col("_there") | elsewhere))
    columns = dict.fromkeys([*table.key, table.day_column])
    return marked.select(*columns, F.lit(True).alias(BEATEN), (F.col("_there") & is_new).alias(_SPOILT))


def _kept(store: Pinned, table: Table, days: Sequence[date], route: str) -> list[StagedFile]:
    """The live files of some days, by their footers; which repeats were left out of them is known by the record."""
    by_day = store.snapshot.by_day(table.day_column)
    folder, columns = store.target.path, store.snapshot.partition_by
    read = [known_file(folder, columns, file, route) for day in days for file in by_day.get(day, [])]
    return [replace(each, high={name: high for name, high in each.high.items() if name != COPIES}) for each in read]


def _frozen(paths: Mapping[str, set[str]]) -> Paths:
    return {name: frozenset(each) for name, each in paths.items()}


class _Then:
    """What days were built from when they were published, by the records of their commits."""

    def __init__(self, base: Base, plan: Plan, records: Mapping[date, DayRecord]) -> None:
        self._base, self._plan, self._records = base, plan, records
        self._snapshots: dict[tuple[str, int], Snapshot] = {}
        self._files: dict[tuple[str, int, date], set[str]] = {}

    def grows(self, day: date) -> bool:
        """Whether the day holds just what its inputs gave then, and these have only got more since."""
        base, record, table = self._base, self._records.get(day), self._base.table
        if record is None or record.operation != "publish" or record.code_version != table.code_version:
            return False
        versions = {name: record.inputs.get(each.table, -1) for name, each in table.upstream.items()}
        live = [each.snapshot.by_day(table.day_column).get(day, []) for each in base.stores]
        there = sum(file.rows for files in live for file in files)
        if not there or max(mergeable(files, FULL) for files in live) >= MOST_SMALL or not self._readable(versions):
            return False
        new = [self._new_rows(name, day) for name in self._plan.inputs]
        if None in new or sum(filter(None, new)) > MOST_SHARE * there:
            return False
        inputs = {name: self._snapshot(name, version) for name, version in versions.items()}
        # Only what was published, quarantine included, from these very inputs and code is what they give.
        made_of = make_plan(base.lake, table, [day], inputs, record.at).fingerprints[day]
        # Nothing tells any more whether the day was open then because messages waited.
        return base.is_current(day, made_of) or base.is_current(day, as_open(made_of))

    def _new_rows(self, name: str, day: date) -> int | None:
        """Rows of an input that are of the day and came since it was built; None where some that it had are gone."""
        now = {f.path: f for f in self._plan.inputs[name].by_day(self._column(name)).get(day, [])}
        before = self.files(name, day, day)
        return sum(now[path].rows for path in now.keys() - before) if before <= now.keys() else None

    def files(self, name: str, day: date, of: date) -> set[str]:
        """The files of one day of an input that a day was built from; of those merged since, what became of them."""
        key = name, self._records[day].inputs.get(self._base.table.upstream[name].table, -1), of
        if key not in self._files:
            column = self._column(name)
            then = {f.path for f in self._snapshot(*key[:2]).by_day(column).get(of, ())}
            now = {f.path for f in self._plan.inputs[name].by_day(column).get(of, ())}
            self._files[key] = then if then <= now else self._merged(name, key[1], then)
        return self._files[key]

    def _merged(self, name: str, version: int, files: set[str]) -> set[str]:
        """Files of an input at a version as they are called now, as far as they were merged with each other alone."""
        now = self._plan.inputs[name]
        try:
            since = list(entries(Path(now.uri), version + 1, now.version, now.partition_by))
        except HistoryGoneError:  # nobody can tell: the day is built whole
            return files
        for entry in since:
            partitions = {file.partition for file in entry.added.values()}
            # Where an entry does not say of which partitions its files were, nothing is known of what it merged.
            if entry.changes_rows or partitions != {file.partition for file in entry.removed.values()}:
                continue
            for partition in partitions:
                old = {path for path, file in entry.removed.items() if file.partition == partition}
                if old <= files:
                    files = files - old | {path for path, file in entry.added.items() if file.partition == partition}
        return files

    def _readable(self, versions: Mapping[str, int]) -> bool:
        """Whether the log still tells these versions: those of tables that did not exist then, it does not."""
        try:
            return all(self._snapshot(name, version).version == version for name, version in versions.items())
        except Exception:  # noqa: BLE001  # whatever keeps the log from telling, the day can be built whole
            return False

    def _snapshot(self, name: str, version: int) -> Snapshot:
        now = self._plan.inputs[name]
        if version == now.version:
            return now
        if (name, version) not in self._snapshots:
            self._snapshots[name, version] = self._base.lake.snapshot(self._base.table.upstream[name].table, version)
        return self._snapshots[name, version]

    def _column(self, name: str) -> str:
        return self._base.lake.table(self._base.table.upstream[name].table).content_day_column
