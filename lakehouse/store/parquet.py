"""Parquet files at rest, opened and closed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
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


def read(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a file, with some columns or (None) all. Raises as `opened`."""
    with pq.ParquetFile(path) as file:
        return file.read(None if columns is None else list(columns))


def write(rows: pa.Table, path: Path) -> None:
    """Write a new file, in a folder that is made where it is missing; killed anywhere, a part of it may be there."""
    make_folder(path.parent)
    # As the engine stores decimals: readers then find one type in all files of a table.
    pq.write_table(rows, path, store_decimal_as_integer=True)


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
