"""The live files of a table, kept by partition and by day, so that one more commit costs what it changes."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from lakehouse.errors import HistoryGoneError
from lakehouse.store import parquet

Partition = tuple[str | None, ...]


AGAIN = "/again/"  # in a path: what follows is the file's first name


class DataFile(NamedTuple):
    """One live file: its path, its partition values as text, rows and bytes.

    `logged_rows` are the rows by the log, which need not say. `logged_path` is the path as the log has it, where that
    is escaped: a commit that removes the file must name it by the same letters as the one that added it. `folder` is
    the table's.
    """

    path: str
    partition: Partition
    logged_rows: int | None
    size: int
    logged_path: str | None = None
    folder: str = ""

    @property
    def rows(self) -> int:
        """Its rows.

        Raises:
            HistoryGoneError: where the log does not say, and the file cannot.
        """
        return rows_in(Path(self.folder, self.path)) if self.logged_rows is None else self.logged_rows

    @property
    def first_name(self) -> str:
        """Its path when it was written: it has another one where a restore or a swap has brought it back."""
        return self.path.partition(AGAIN)[2] or self.path


@lru_cache(maxsize=100_000)  # a data file never changes
def rows_in(path: Path) -> int:
    """The rows of a data file by its footer.

    Raises:
        HistoryGoneError: where it cannot be read.
    """
    try:
        return int(parquet.footer(path).num_rows)
    except (OSError, pa.ArrowException) as error:
        raise HistoryGoneError(
            f"The rows of {path} are not known: the log has no statistics of it, and it cannot be read ({error}). "
            "If a vacuum has removed it, choose a newer version; `lakehouse history` lists those that can be read."
        ) from None


class _Days(NamedTuple):
    """Files, and the rows that the log says (None: not of all), by the date in one partition column."""

    files: Mapping[date, tuple[DataFile, ...]]
    rows: Mapping[date, int | None]


class LiveFiles:
    """The live files at one version. It never changes: `changed` gives another, which shares what is the same."""

    __slots__ = ("_days", "_logged_rows", "_parts", "number", "size")

    def __init__(
        self, parts: Mapping[Partition, tuple[DataFile, ...]], number: int, logged_rows: int | None, size: int
    ) -> None:
        self._parts = parts
        self._days: dict[int, _Days] = {}
        self._logged_rows = logged_rows
        self.number = number
        self.size = size

    @property
    def rows(self) -> int:
        """All rows; where the log does not say those of a file, its footer does."""
        return sum(file.rows for file in self) if self._logged_rows is None else self._logged_rows

    @classmethod
    def of(cls, files: Iterable[DataFile]) -> LiveFiles:
        """From all files, in any order."""
        parts: dict[Partition, list[DataFile]] = {}
        number = size = 0
        for file in files:
            parts.setdefault(file.partition, []).append(file)
            number, size = number + 1, size + file.size
        by_path = attrgetter("path")
        sorted_parts = {values: tuple(sorted(each, key=by_path)) for values, each in parts.items()}
        return cls(sorted_parts, number, _logged_rows(chain.from_iterable(sorted_parts.values())), size)

    def __iter__(self) -> Iterator[DataFile]:
        return chain.from_iterable(self._parts.values())

    @property
    def partitions(self) -> Mapping[Partition, tuple[DataFile, ...]]:
        """The files by partition values."""
        return self._parts

    def changed(self, added: Collection[DataFile], removed: Collection[DataFile]) -> LiveFiles:
        """As this, without some files, then with others; a file that is named again takes the place of itself."""
        new = {file.path for file in added}
        gone = {file.path for file in removed}
        by_partition: dict[Partition, list[DataFile]] = {file.partition: [] for file in (*added, *removed)}
        for file in added:
            by_partition[file.partition].append(file)
        parts = dict(self._parts)
        number, logged_rows, size = self.number, self._logged_rows, self.size
        for values, files in by_partition.items():
            # Only partitions that the entry names are touched, however many the table has.
            before = parts.pop(values, ())
            kept = [file for file in before if file.path not in gone | new]
            # Sums are carried on from what changed: to add up all files again would cost as much as the table has.
            if after := tuple(sorted([*kept, *files], key=attrgetter("path"))):
                parts[values] = after
            number += len(after) - len(before)
            logged_rows = _carried_on(logged_rows, _logged_rows(before), _logged_rows(after))
            size += sum(file.size for file in after) - sum(file.size for file in before)
        made = LiveFiles(parts, number, logged_rows, size)
        # Groupings that somebody has asked for are carried on too, or the next look would group all files again.
        for position, days in self._days.items():
            made._days[position] = _carried(days, parts, position, by_partition, gone | new)
        return made

    def partition_of(self, path: str) -> Partition | None:
        """The partition of a live file, found the long way; None where it is not live."""
        return next((file.partition for file in self if file.path == path), None)

    def days(self, position: int) -> _Days:
        """Files and rows by the date in the partition column of that number."""
        if position not in self._days:
            found: dict[date, list[DataFile]] = {}
            for values, files in self._parts.items():
                day = as_date(values[position])
                if day is not None:
                    found.setdefault(day, []).extend(files)
            self._days[position] = _Days(
                {day: tuple(sorted(files, key=attrgetter("path"))) for day, files in found.items()},
                {day: _logged_rows(files) for day, files in found.items()},
            )
        return self._days[position]


def _logged_rows(files: Iterable[DataFile]) -> int | None:
    """Their rows as far as the log says; None where it does not say those of some."""
    total = 0
    for file in files:
        if file.logged_rows is None:
            return None
        total += file.logged_rows
    return total


def _carried_on(total: int | None, then: int | None, now: int | None) -> int | None:
    """A sum with one part exchanged; None once a part is not known."""
    return None if total is None or then is None or now is None else total + now - then


def _carried(
    days: _Days,
    parts: Mapping[Partition, tuple[DataFile, ...]],
    position: int,
    touched: Mapping[Partition, Collection[DataFile]],
    changed: Collection[str],
) -> _Days:
    files, rows = dict(days.files), dict(days.rows)
    by_day: dict[date, list[Partition]] = {}
    for values in touched:
        if (day := as_date(values[position])) is not None:
            by_day.setdefault(day, []).append(values)
    for day, partitions in by_day.items():
        kept = [file for file in files.get(day, ()) if file.path not in changed]
        there = {file.path for file in kept}
        new = [file for values in partitions for file in parts.get(values, ()) if file.path not in there]
        if kept or new:
            files[day] = tuple(sorted([*kept, *new], key=attrgetter("path")))
            rows[day] = _logged_rows(files[day])
        else:
            files.pop(day, None)
            rows.pop(day, None)
    return _Days(files, rows)


def file_of(action: Mapping[str, Any], partition_by: Iterable[str], folder: str) -> DataFile:
    """The file that an `add` or a `remove` of the log names; the rows of a removed one are not said.

    Args:
        action: the action, as JSON.
        partition_by: the table's partition columns.
        folder: of the table.
    """
    values = action.get("partitionValues") or {}
    rows = json.loads(action.get("stats") or "{}").get("numRecords")
    path = unquote(action["path"])
    logged_path = action["path"] if path != action["path"] else None
    # An empty text and null are one and the same partition value.
    partition = tuple(values.get(name) or None for name in partition_by)
    return DataFile(path, partition, rows, action.get("size") or 0, logged_path, folder)


@lru_cache(maxsize=100_000)  # the same few thousand days are read of every table, several times a run
def as_date(value: str | None) -> date | None:
    """The day that a partition value says; None for anything else."""
    if value is None or not re.fullmatch(r"\d{4}-\d{2}-\d{2}", value):
        return None
    return date.fromisoformat(value)
