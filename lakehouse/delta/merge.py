"""Several files of one partition made into one, batch by batch, so that memory does not grow with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from lakehouse.delta.evolve import stored_schema
from lakehouse.delta.snapshot import DataFile, Snapshot
from lakehouse.delta.staged import VALID, StagedFile, new_path, staged_file
from lakehouse.lazy import T
from lakehouse.store import parquet

_BATCH_ROWS = 32_768
_GROUP_BYTES = 64 << 20  # in memory, of one row group


def merge(snapshot: Snapshot, files: Sequence[DataFile], folder: Path) -> StagedFile:
    """A new file with the rows of some files of one partition, in their order, and the table's columns.

    Its footer counts nulls and tells bounds, as those of the engine's files do; not of a column that one of the files
    lacks: whoever looks for values that waited elsewhere until there was the column (`promote`) knows by that to look.
    Nor of one with NaN (`parquet.may_hold_nan`).

    Args:
        snapshot: whose files they are.
        files: live files of one partition.
        folder: a new stage folder of the table.
    """
    columns = [f for f in stored_schema(snapshot).fields if f.name not in snapshot.partition_by]
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(T.StructType(columns), timezone="UTC")
    sources = [Path(snapshot.uri) / file.path for file in files]
    shared = set(schema.names).intersection(*(parquet.columns_of(each) for each in sources))
    shared -= _with_nan(sources, [f.name for f in schema if pa.types.is_floating(f.type) and f.name in shared])
    known = [f.name for f in columns if f.name in shared and not pa.types.is_nested(schema.field(f.name).type)]
    path = new_path(folder, VALID, snapshot.partition_by, files[0].partition)
    with parquet.writer(path, schema, statistics=known) as writer:
        for group in parquet.row_groups(_batches(sources, schema), most_bytes=_GROUP_BYTES):
            writer.write_table(pa.Table.from_batches(group))
    return staged_file(path, dict(zip(snapshot.partition_by, files[0].partition, strict=True)))


def _with_nan(sources: Sequence[Path], columns: Sequence[str]) -> set[str]:
    """Those of some columns that hold NaN in one of the files."""
    found = set[str]()
    for source in sources if columns else ():
        with parquet.opened(source) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=columns):
                found |= {name for name in columns if parquet.may_hold_nan(batch.column(name))}
    return found


def _batches(sources: Sequence[Path], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of files in the columns of a schema; a column that a file lacks is null."""
    for source in sources:
        with parquet.opened(source) as file:
            there = [name for name in schema.names if name in file.schema_arrow.names]
            for batch in file.iter_batches(_BATCH_ROWS, columns=there):
                columns = [
                    batch.column(each.name).cast(each.type)
                    if each.name in there
                    else pa.nulls(batch.num_rows, each.type)
                    for each in schema
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
