"""Rows of a few live files without an engine: the log says which files there are, Arrow reads them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pyarrow as pa

from lakehouse.delta.snapshot import DataFile, Snapshot
from lakehouse.store import parquet


def read_file(snapshot: Snapshot, file: DataFile, columns: Sequence[str]) -> pa.Table:
    """Some columns of one file, partition columns included; a column the file does not have is null.

    Args:
        snapshot: whose file it is.
        file: which.
        columns: by name, in the order they are wanted.

    Raises:
        FileNotFoundError: for a file of an old version that a vacuum has removed.
    """
    values = dict(zip(snapshot.partition_by, file.partition, strict=True))
    with parquet.opened(Path(snapshot.uri) / file.path) as data:
        there = set(data.schema_arrow.names)
        read = data.read([name for name in columns if name in there])
        rows = data.metadata.num_rows
    arrays: list[pa.Array | pa.ChunkedArray] = [
        read[name] if name in there else pa.array([_partition_value(values.get(name))] * rows) for name in columns
    ]
    return pa.table(arrays, names=list(columns))


def _partition_value(text: str | None) -> date | str | None:
    """A partition value as the log has it, text; those of dates become dates."""
    try:
        return date.fromisoformat(text or "")
    except ValueError:
        return text
