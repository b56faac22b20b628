"""Rows of tables without an engine, for small results: the log says which files are live, Arrow reads them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.delta.opening import open_snapshot
from lakehouse.read.reading import read_file
from lakehouse.store import cells


def column_names(path: Path) -> list[str]:
    """The columns of a table, in order; none where it was never built."""
    snapshot = open_snapshot(path)
    return [] if snapshot.schema is None else [field.name for field in snapshot.schema.fields]


def files_of(path: Path, columns: Sequence[str], days: Collection[date] | None = None) -> Iterator[pa.Table]:
    """The rows of each live file in turn, in the order of its partition and path.

    delta-rs's own Arrow dataset is not used: it reads ahead through callbacks into Python, and a process that stops
    in the middle of that hangs at its end.

    Args:
        path: folder of the table; no file where it was never built.
        columns: what to read.
        days: only these, by the table's first partition column; None: all.
    """
    snapshot = open_snapshot(path)
    wanted = None if days is None else {day.isoformat() for day in days}
    for file in sorted(snapshot.files, key=lambda each: (str(each.partition), each.path)):
        if file.rows and (wanted is None or file.partition[0] in wanted):
            yield read_file(snapshot, file, columns)


def top_rows(
    path: Path,
    columns: Sequence[str],
    *,
    days: Collection[date],
    order_by: Sequence[tuple[str, str]],
    limit: int,
    where: Any = None,
) -> list[dict[str, Any]]:
    """The first rows of some days of a table in some order; none where it was never built.

    Args:
        path: folder of the table.
        columns: what to read, the columns of the order included.
        days: the days to read.
        order_by: pairs of column and `ascending` or `descending`.
        limit: most rows.
        where: an Arrow filter expression.
    """
    found = list(files_of(path, columns, days))
    if not found:
        return []
    whole = pa.concat_tables(found, promote_options="default")  # an older file may lack a column
    kept = whole if where is None else whole.filter(where)
    return cells.rows(kept.sort_by(list(order_by)).slice(0, limit))


def matching_rows(
    path: Path, wanted: Mapping[str, Any], days: Collection[date] | None, most: int
) -> list[dict[str, Any]]:
    """The first rows, with all their columns, that have these values; of a file only what is needed is read.

    Args:
        path: folder of the table.
        wanted: value by column, of the column's own type; None for null.
        days: only these, by the table's first partition column; None: all.
        most: rows to stop at.
    """
    snapshot, columns = open_snapshot(path), column_names(path)
    among = None if days is None else {day.isoformat() for day in days}
    rows: list[dict[str, Any]] = []
    for file in sorted(snapshot.files, key=lambda each: (str(each.partition), each.path)):
        if not file.rows or (among is not None and file.partition[0] not in among):
            continue
        # First the columns that are asked for: of nearly all files nothing else is ever read.
        keys = read_file(snapshot, file, list(wanted))
        hit = pc.indices_nonzero(_hits(keys, wanted))
        if len(hit):
            rows += cells.rows(read_file(snapshot, file, columns).take(hit))
        if len(rows) >= most:
            break
    return rows[:most]


def _hits(keys: pa.Table, wanted: Mapping[str, Any]) -> pa.Array:
    found = pa.array([True] * keys.num_rows)
    for name, value in wanted.items():
        column = keys[name].combine_chunks()
        try:
            same = column.is_null() if value is None else pc.equal(column, pa.scalar(value, column.type))
            if isinstance(value, float) and math.isnan(value):  # equal to nothing for Arrow, and to itself in a key
                same = pc.is_nan(column)
        except (pa.ArrowInvalid, OverflowError):  # a number with more digits than any value of the column
            same = pa.array([False] * keys.num_rows)
        # Null beside a value is not equal to it; left null, it would hide what the other columns say.
        found = pc.and_(found, pc.fill_null(same, False))
    return found
