"""What the rows of a partition are, as a number in the log: tables that read a day see whether it holds other rows.

Each row that is staged carries a hash of its columns; the sum of the hashes is committed with the rows (`rows/<day>`,
or `rows/<event day>/<arrival day>`). So it is the same whatever the order of the rows and the files they are in: a
compaction does not change it, a build that gives the very same rows does not, and a restore brings the old one back.
Columns that name the run do not count.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import numpy as np

from lakehouse.contracts import Table
from lakehouse.delta.snapshot import WITHDRAWN, Snapshot
from lakehouse.delta.staged import CONTENT, VALID, StagedFile
from lakehouse.lazy import T
from lakehouse.read.lake import quoted
from lakehouse.store import parquet

OF_THE_RUN = frozenset({"_ingested_run", "_code_version"})
"""Columns that say which run made a row: the same row has others after a rebuild."""

CONTENT_PREFIX = "rows/"
"""Of the application ids under which the log keeps the content of partitions."""

_LARGEST = (1 << 63) - 1


def content_of_row(table: Table) -> str:
    """The hash of a row, as an expression of Spark SQL over the table's columns."""
    parts = []
    for each in table.schema.fields:
        if each.name in OF_THE_RUN:
            continue
        name = quoted(each.name)
        nested = isinstance(each.dataType, T.ArrayType | T.MapType | T.StructType)
        parts.append(f"to_json({name}, map('ignoreNullFields', 'false'))" if nested else name)
        if each.name not in table.required:  # the hash passes over nulls: a value would be as good in any other column
            parts.append(f"isnull({name})")
    return f"xxhash64({', '.join(parts)})"


def content_name(table: Table, partition: Mapping[str, str | None]) -> str | None:
    """Application id under which the log keeps the content of a partition; None where it belongs to no day."""
    own, seen = partition[table.day_column], partition[table.content_day_column]
    return content_of_day(own) if table.content_day_column == table.day_column else content_of_days(own, seen)


def content_of_day(own: str | None) -> str | None:
    """`content_name` of a table whose rows are of the day of their partition."""
    return None if own is None else f"{CONTENT_PREFIX}{own}"


def content_of_days(own: str | None, seen: str | None) -> str | None:
    """`content_name` of a table whose partitions hold rows of other days, as it sees them."""
    return None if own is None or seen is None else f"{CONTENT_PREFIX}{seen}/{own}"


def contents(table: Table, files: Collection[StagedFile], base: Snapshot, *, added: bool = False) -> dict[str, int]:
    """The transactions that say what partitions hold once a commit has put staged files there.

    Args:
        table: what the files are of.
        files: all that the commit puts there.
        base: the table before it.
        added: the files come beside those that are there; else they replace them.
    """
    valid = [file for file in files if file.route == VALID]
    # Reading one column of many small files is waiting for the disk.
    with ThreadPoolExecutor(max_workers=min(8, (os.cpu_count() or 1) * 2)) as pool:
        sums = list(pool.map(_sum, valid))
    # What is added goes onto the number that is there; of a partition without files, onto none.
    there = {content_name(table, _values(base, values)) for values in base.live.partitions} if added else set()
    found: dict[str, int | None] = {}
    for file, number in zip(valid, sums, strict=True):
        name = content_name(table, file.partition)
        if name is not None:
            before = found[name] if name in found else base.transaction(name) if name in there else 0
            found[name] = _added(before, number)
    return {
        name: WITHDRAWN if number is None else number
        for name, number in found.items()
        if number is not None or base.transaction(name) is not None
    }


def content_names(table: Table, snapshot: Snapshot, days: Collection[date]) -> set[str]:
    """The names under which a snapshot may keep the content of some days of the table.

    Args:
        table: the contract.
        snapshot: the table at one version.
        days: of the table's own day column.
    """
    texts = {day.isoformat() for day in days}
    names = {content_name(table, _values(snapshot, values)) for values in snapshot.live.partitions}
    return {name for name in names if name is not None and name.rpartition("/")[2] in texts}


def content_by_name(table: Table, snapshot: Snapshot, files: Iterable[Sequence[str | None]]) -> set[str]:
    """The names of the partitions with these values.

    Args:
        table: the contract.
        snapshot: the table at one version; its partition columns.
        files: the partition values of files.
    """
    return {name for values in files if (name := content_name(table, _values(snapshot, values))) is not None}


def _values(snapshot: Snapshot, partition: Sequence[str | None]) -> dict[str, str | None]:
    return dict(zip(snapshot.partition_by, partition, strict=True))


def _added(before: int | None, number: int | None) -> int | None:
    """A sum does not depend on order or files; modulo 2^63, as the log's transactions are positive longs."""
    return None if number is None or before is None else (before + number) & _LARGEST


def _sum(file: StagedFile) -> int | None:
    """Sum of the hashes of a file's rows; None where it has none, having been staged by something else."""
    if CONTENT not in file.types or file.nulls.get(CONTENT, 0):
        return None
    column = parquet.read(file.path, [CONTENT])[CONTENT].to_numpy()
    return int(column.astype(np.uint64).sum()) & _LARGEST  # wraps around, as it should
