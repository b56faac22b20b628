"""Parquet files at rest, opened and closed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakehouse.store.files import make_folder

Footer: TypeAlias = pq.FileMetaData
"""Schema, row groups and their statistics."""


def opened(path: Path) -> pq.ParquetFile:
    """A file to read batch by batch, for a `with` block.

    Raises:
        FileNotFoundError: it is not there.
        pyarrow.ArrowInvalid: it is no whole Parquet file.
    """
    return pq.ParquetFile(path)


def footer(path: Path) -> Footer:
    """What the end of a file says: schema, row groups and their statistics. Raises as `opened`."""
    return pq.read_metadata(path)


def columns_of(path: Path) -> list[str]:
    """The names of a file's columns. Raises as `opened`."""
    return list(pq.read_schema(path).names)


def read(path: Path, columns: Sequence[str] | None = None, between: tuple[str, Any, Any] | None = None) -> pa.Table:
    """The rows of a file, with some columns or (None) all. Raises as `opened`.

    Args:
        path: of the file.
        columns: what is read of the rows.
        between: a column and its bounds: row groups that have no row within them are left out. Others have rows beyond.
    """
    wanted = None if columns is None else list(columns)
    with pq.ParquetFile(path) as file:
        if between is None:
            return file.read(wanted)
        return file.read_row_groups(list(_groups_with(file.metadata, *between)), wanted)


def _groups_with(footer: Footer, column: str, low: Any, high: Any) -> Iterator[int]:
    """The row groups that may have a value of a column within bounds, inclusive: all that do not say."""
    for group in range(footer.num_row_groups):
        told = footer.row_group(group)
        parts = (told.column(number) for number in range(told.num_columns))
        bounds = next((part.statistics for part in parts if part.path_in_schema == column), None)
        if bounds is None or not bounds.has_min_max or (bounds.min <= high and low <= bounds.max):
            yield group


def write(rows: pa.Table, path: Path) -> None:
    """Write a new file, in a folder that is made where it is missing; killed anywhere, a part of it may be there."""
    make_folder(path.parent)
    told = [name for name, values in zip(rows.column_names, rows.columns, strict=True) if not may_hold_nan(values)]
    statistics = told if len(told) < rows.num_columns else True
    # As the engine stores decimals: readers then find one type in all files of a table.
    pq.write_table(rows, path, store_decimal_as_integer=True, write_statistics=statistics)


def may_hold_nan(values: pa.Array | pa.ChunkedArray) -> bool:
    """Whether bounds of the values would mislead: they leave out NaN, which to Spark is greater than any number.

    It would pass over a file for what the bounds say. The engine's own files tell no bounds then. Of nested values,
    their type decides.
    """
    if pa.types.is_floating(values.type):
        return bool(pc.any(pc.is_nan(values)).as_py())
    return pa.types.is_nested(values.type) and _has_floating(values.type)


def safe_statistics(schema: pa.Schema) -> list[str] | bool:
    """The columns, or True for all, whose bounds may be told before it is known whether there is NaN."""
    told = [field.name for field in schema if not _has_floating(field.type)]
    return told if len(told) < len(schema) else True


def _has_floating(kind: pa.DataType) -> bool:
    if not pa.types.is_nested(kind):
        return bool(pa.types.is_floating(kind))
    return any(_has_floating(kind.field(number).type) for number in range(kind.num_fields))


def writer(path: Path, schema: pa.Schema, statistics: Collection[str]) -> pq.ParquetWriter:
    """A new file to write rows to, for a `with` block, compressed as the engine does it.

    Args:
        path: of the file; its folder is made where it is missing.
        schema: its columns.
        statistics: columns of which the footer has null counts and bounds.
    """
    make_folder(path.parent)
    return pq.ParquetWriter(
        path, schema, compression="snappy", write_statistics=list(statistics) or False, store_decimal_as_integer=True
    )


def row_groups(
    batches: Iterable[pa.RecordBatch], *, most_bytes: int, most_rows: int | None = None
) -> Iterator[list[pa.RecordBatch]]:
    """What becomes a row group each: batches of many small files are of a few rows, and such groups are slow to read.

    Args:
        batches: in order.
        most_bytes: in memory; a group is full once it has as many.
        most_rows: a group is full once it has as many, too; None: however many.
    """
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        group.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if size >= most_bytes or (most_rows is not None and rows >= most_rows):
            yield group
            group, rows, size = [], 0, 0
    if rows:
        yield group
