"""Which input rows some rows are made of, found by place or by key; proven by computing the rows from them alone."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from lakehouse.build.intake.closings import input_rows, input_schema
from lakehouse.build.plan import input_days
from lakehouse.build.recompute import (
    PLACE,
    Row,
    by_identity,
    differing,
    frame_of,
    identity,
    matching,
    place,
    recomputed,
    rows_of,
)
from lakehouse.build.unique import with_neighbours
from lakehouse.contracts import Input, Rule, Table
from lakehouse.contracts.keys import EVENT_DAYS
from lakehouse.contracts.lineage import sources
from lakehouse.delta.log import gone_files, snapshot_at
from lakehouse.delta.snapshot import Snapshot
from lakehouse.errors import HistoryGoneError
from lakehouse.read.lake import Lake

PLACES: dict[str, T.DataType] = {"_source_file": T.StringType(), "_source_row": T.LongType()}


@dataclass
class Made:
    """One attempt to make rows again from one set of input versions."""

    picked: dict[str, list[Row]]
    versions: dict[str, int]
    differences: dict[str, list[str]]
    places: dict[tuple[Any, ...], str] = field(default_factory=dict)
    repeats: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Maker:
    """Makes rows of one table again."""

    def __init__(self, lake: Lake, table: Table, rules: Sequence[Rule], *, quarantined: bool) -> None:
        self._lake = lake
        self._table = table
        self._rules = rules
        self._quarantined = quarantined

    def ident(self, row: Row) -> tuple[str, ...]:
        """What tells the rows apart: a quarantined row may lack its key, but not its place, where it has one."""
        if self._quarantined and row.get("_source_file") is not None:
            return PLACE
        return identity(self._table, row.keys())

    def make(self, rows: Sequence[Row], versions: Mapping[str, int], *, loosely: bool = False) -> Made:
        """One attempt.

        Args:
            rows: of the table.
            versions: of the inputs; one that is not given is the newest.
            loosely: whether a key may be a column that the transform has changed, and rows are not known by its value.
        """
        table = self._table
        made = Made({}, {}, {})
        frames: dict[str, DataFrame] = {}
        for name, each in table.upstream.items():
            days = _input_days(table, each, rows)
            snapshot = self._pinned(each.table, versions.get(each.table), days, made.notes)
            made.versions[each.table] = snapshot.version
            frames[name] = input_rows(self._lake, each, days, snapshot)
        # File and line name one input row for certain; a key names all rows that were put together by it.
        if set(PLACE) <= set(table.transformed(**frames).columns):
            self._pick_by_place(rows, frames, made)
        elif loosely:
            self._pick_loosely(rows, frames, made)
        else:
            self._pick_by_key(rows, frames, made)
        return made

    def _pinned(self, name: str, version: int | None, days: Sequence[date], notes: list[str]) -> Snapshot:
        """The version that was read, or the newest, with a note why."""
        if version is None:
            notes.append(f"no commit says which version of {name} was read: the newest is taken")
            return self._lake.snapshot(name)
        if version < 0:
            return Snapshot(str(self._lake.path(name)), version)  # it had no rows then
        path = self._lake.path(name)
        try:
            snapshot = snapshot_at(path, version)
        except HistoryGoneError:
            notes.append(f"version {version} of {name}, which was read, is no longer in its log: the newest is taken")
            return self._lake.snapshot(name)
        by_day = snapshot.by_day(self._lake.table(name).content_day_column)
        # The log may outlive the files: a vacuum removes those that only older versions need.
        if gone_files(path, [file for day in days for file in by_day.get(day, ())]):
            notes.append(f"files of version {version} of {name}, which was read, were vacuumed: the newest is taken")
            return self._lake.snapshot(name)
        return snapshot

    def _pick_by_place(self, rows: Sequence[Row], frames: Mapping[str, DataFrame], made: Made) -> None:
        """Inputs of a transform that hands on file and line, which name the input row."""
        table = self._table
        ident = self.ident(rows[0])
        name_of = by_identity(ident)
        # Rows that are known by their place name their input rows themselves.
        if ident == PLACE:
            places = {name_of(row): name_of(row) for row in rows}
        else:
            places = self._first_places(rows, frames, made)
        made.places = {name: f"{file}:{line}" for name, (file, line) in places.items()}
        for name, each in table.upstream.items():
            found = rows_of(matching(frames[name], self._lake, PLACES, set(places.values())))
            if found:
                made.picked[each.table] = list(found)
        self._compare(rows, made)

    def _pick_by_key(self, rows: Sequence[Row], frames: Mapping[str, DataFrame], made: Made) -> None:
        """Inputs of an aggregate: the rows that share its key, and those that share what else decides its columns."""
        pairs = self._key_pairs()
        self._take(rows, frames, pairs, made)
        # Only where the rows of one key do not explain it: each further column is a computation of its own.
        if made.differences:
            used = {(self._table.upstream[name].table, c) for name, each in pairs.items() for c in each.values()}
            self._widen(rows, frames, made, used)

    def _pick_loosely(self, rows: Sequence[Row], frames: Mapping[str, DataFrame], made: Made) -> None:
        """Inputs of an aggregate whose key is a column that was changed on its way, as by `upper` or `date_trunc`."""
        pairs = self._key_pairs()
        keys = list(dict.fromkeys(key for each in pairs.values() for key in each))
        for loose in [*([key] for key in keys), *([keys] if len(keys) > 1 else [])]:
            kept = {name: {key: c for key, c in each.items() if key not in loose} for name, each in pairs.items()}
            self._take(rows, frames, kept, made)
            if not made.differences:
                for key in loose:
                    columns = {self._table.upstream[name].table: e[key] for name, e in pairs.items() if key in e}
                    self._narrow(rows, made, key, columns)
                return

    def _take(
        self,
        rows: Sequence[Row],
        frames: Mapping[str, DataFrame],
        pairs: Mapping[str, Mapping[str, str]],
        made: Made,
    ) -> None:
        """Pick the rows of each input that share the values of some keys, and compare what they give."""
        for name, each in self._table.upstream.items():
            schema = self._lake.table(each.table).schema
            types = {column: schema[column].dataType for column in pairs[name].values()}
            wanted = {tuple(row[key] for key in pairs[name]) for row in rows}
            made.picked[each.table] = list(rows_of(matching(frames[name], self._lake, types, wanted)))
        self._compare(rows, made)

    def _narrow(self, rows: Sequence[Row], made: Made, key: str, columns: Mapping[str, str]) -> None:
        """Leave out rows that are not needed: what becomes one key is alike, and alike values are neighbours in order.

        Args:
            rows: of the table.
            made: an attempt that gives them.
            key: of the table.
            columns: by input table the column that the key is made of.
        """
        every = made.picked
        values = sorted({row[column] for name, column in columns.items() for row in every[name]}, key=_order)

        def tried(first: int, end: int) -> Made:
            kept = set(values[first:end])
            fewer = {name: [row for row in every[name] if row[column] in kept] for name, column in columns.items()}
            attempt = Made({**every, **fewer}, made.versions, {})
            self._compare(rows, attempt)
            return attempt

        # Of many values each half is computed once; what is kept in the end was computed, or is all there is.
        first = max(bisect_left(range(len(values)), True, key=lambda n: bool(tried(n, len(values)).differences)) - 1, 0)
        ends = range(first + 1, len(values))
        end = first + 1 + bisect_left(ends, True, key=lambda n: not tried(first, n).differences)
        made.picked = tried(first, end).picked
        names = " and ".join(f"{name}.{column}" for name, column in columns.items())
        made.notes.append(
            f"{key} is not {names} as it stands: the fewest values of it that give the row were looked for"
        )

    def _first_places(
        self, rows: Sequence[Row], frames: Mapping[str, DataFrame], made: Made
    ) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """File and line of the first row of each key, as the table keeps it; the others are noted as repeats."""
        table, ident = self._table, self.ident(rows[0])
        name_of = by_identity(ident)
        # Beyond a day, a row's repeats are in days beside its own.
        key = table.key if table.unique_days else ident
        key_of = by_identity(key)
        types = {name: table.schema[name].dataType for name in key}
        out = table.transformed(**frames)
        order = [name for name in table.keep_first_by if name in out.columns]
        columns = dict.fromkeys([*ident, *order, *PLACE])
        found = rows_of(matching(out, self._lake, types, {key_of(row) for row in rows}).select(*columns))
        places: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        published = {name_of(row) for row in rows}
        for candidate in sorted(found, key=lambda row: [(row[c] is None, row[c]) for c in order]):
            at, named = by_identity(PLACE)(candidate), name_of(candidate)
            if named not in published:
                made.repeats.append(f"{place(candidate)} (of {candidate[table.day_column]})")
            elif places.setdefault(named, at) != at:
                made.repeats.append(place(candidate))
        return places

    def _widen(
        self, rows: Sequence[Row], frames: Mapping[str, DataFrame], made: Made, used: set[tuple[str, str]]
    ) -> None:
        """Add rows that share another column's values: a cancellation counts for whoever bought in its order."""
        table = self._table
        lineage = sources(table, self._lake.tables)
        columns = {pair for column in made.differences for pair in lineage.get(column, ())} - used
        best: Made | None = None
        for name, each in table.upstream.items():
            source = self._lake.table(each.table)
            for column in sorted(c for table_name, c in columns if table_name == each.table):
                held = made.picked[each.table]
                values = {row[column] for row in held} - {None}
                # A day alone is shared by all its rows: that would be the whole day again.
                if column == source.day_column or not values:
                    continue
                types = {column: source.schema[column].dataType}
                more = rows_of(matching(frames[name], self._lake, types, {(value,) for value in values}))
                # Null equals nothing, so rows without a value were not found again by it.
                more += [dict(row) for row in held if row[column] is None]
                # The fewest rows that explain it are the best answer, and only they are worth a computation.
                if best is not None and len(more) >= len(best.picked[each.table]):
                    continue
                tried = Made({**made.picked, each.table: list(more)}, made.versions, {})
                self._compare(rows, tried)
                if not tried.differences:
                    decided = ", ".join(made.differences)
                    tried.notes = [f"{len(more) - len(held)} of these rows only share {column}; they decide {decided}"]
                    best = tried
        if best is not None:
            made.picked, made.differences, made.notes = best.picked, {}, [*made.notes, *best.notes]

    def _key_pairs(self) -> dict[str, dict[str, str]]:
        """By input: key column → the one input column it is taken from; the day is chosen by the window."""
        table, lineage = self._table, sources(self._table, self._lake.tables)
        pairs: dict[str, dict[str, str]] = {name: {} for name in table.upstream}
        for name, each in table.upstream.items():
            for key in table.key:
                found = [column for source, column in lineage[key] if source == each.table]
                if (
                    len(found) == 1
                    and key != table.day_column
                    and _is_kept(table, key, self._lake.table(each.table), found[0])
                ):
                    pairs[name][key] = found[0]
        return pairs

    def _compare(self, rows: Sequence[Row], made: Made) -> None:
        """Compute the rows again from the picked input rows alone."""
        table = self._table
        frames = {
            name: frame_of(self._lake, input_schema(self._lake, each), made.picked.get(each.table, ()))
            for name, each in table.upstream.items()
        }
        again = recomputed(table, frames, self._quarantined, self._rules)
        made.differences = differing(table, rows, again, self.ident(rows[0]))


def _input_days(table: Table, each: Input, rows: Sequence[Row]) -> list[date]:
    if table.upsert:
        return sorted({day for row in rows for day in [row[table.day_column], *(row.get(EVENT_DAYS) or ())]})
    # Repeats are told from rows of neighbouring days, so what these read is read as well.
    days = {row[table.day_column] for row in rows}
    return sorted({read for day in with_neighbours(table, days) for read in input_days(each, day)})


def _order(value: Any) -> tuple[bool, Any, str]:
    """Null first; texts that differ in case or in spaces around them beside each other."""
    return value is not None, value.strip().casefold() if isinstance(value, str) else value, str(value)


def _is_kept(table: Table, key: str, source: Table, column: str) -> bool:
    return bool(table.schema[key].dataType == source.schema[column].dataType)
