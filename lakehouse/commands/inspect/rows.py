"""How the rows of a query are written: as a table, JSON, CSV or Parquet, on the terminal or into a file."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from operator import add
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
from pyarrow import compute, types

from lakehouse import store
from lakehouse.commands.console import console, json_value, table
from lakehouse.errors import UsageError
from lakehouse.settings import Settings
from lakehouse.store import cells

_BATCH = 10_000  # rows made into Python objects at once
_TO_QUOTE = r'[,"\r\n]|^$'  # as `_quoted`, for Arrow
_TEXT_OF_JSON = json.JSONEncoder(ensure_ascii=False).encode
_GROUP = 100_000  # rows of a Parquet row group, unless they are wide
_GROUP_BYTES = 128 * 2**20


class Format(StrEnum):
    """How rows are written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


def write_rows(rows: pa.Table, form: Format) -> None:
    """Write rows to standard output."""
    schema, batches = rows.schema, rows.to_batches()
    match form:
        case Format.TABLE:
            names = schema.names
            right = [n for n, t in zip(names, schema.types, strict=True) if _is_number(t)]
            columns = ([map(_shown, cells.cells(each)) for each in part.columns] for part in _small(schema, batches))
            shown = (row for part in columns for row in zip(*part, strict=True))
            console().print(table(names, shown, right=right))
        case Format.JSON:
            _write_json(schema, batches, sys.stdout)
        case Format.CSV:
            _write_csv(schema, batches, sys.stdout)
        case Format.PARQUET:
            if sys.stdout.isatty():
                raise UsageError("Parquet is no text for a terminal: name a file with --out.")
            _write_parquet(schema, batches, sys.stdout.buffer)
    sys.stdout.flush()


def write_file(
    rows: pa.RecordBatchReader, form: Format, file: Path, settings: Settings, most: int | None = None
) -> int:
    """Write rows into a file as they come, which is there with all of them or not at all.

    Args:
        rows: of a query, its columns by names that differ.
        form: what the file is written as.
        file: its place; one that is there is replaced.
        settings: where the lakehouse is, in which nothing is written.
        most: rows to be written; None: all.

    Returns:
        How many rows came, those among them that were not written.

    Raises:
        UsageError: for a place inside the lakehouse, or one that cannot be written.
    """
    file = file.expanduser().absolute()
    if store.is_inside(file, settings.root):
        raise UsageError(f"{file} is inside the lakehouse, which this command only reads. Choose another place.")
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    came = 0

    def written() -> Iterator[pa.RecordBatch]:
        nonlocal came
        for batch in rows:
            yield batch if most is None else batch.slice(0, max(most - came, 0))
            came += batch.num_rows

    try:
        with draft.open("wb") as binary:
            if form is Format.PARQUET:
                _write_parquet(rows.schema, written(), binary)
            else:
                with open(binary.fileno(), "w", encoding="utf-8", newline="", closefd=False) as text:
                    (_write_json if form is Format.JSON else _write_csv)(rows.schema, written(), text)
        draft.replace(file)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}. Choose another file.") from None
    finally:
        draft.unlink(missing_ok=True)
    return came


def form_of(file: Path) -> Format:
    """The form that a file's name says.

    Raises:
        UsageError: where it says none.
    """
    try:
        return Format(file.suffix.removeprefix(".").lower())
    except ValueError:
        raise UsageError(f"{file}: say with --format whether it is csv, json or parquet.") from None


def _shown(value: Any) -> Any:
    """A cell of a table: what has parts is JSON, and bytes are digits, as in the other forms."""
    match value:
        case list() | dict():
            return _json(value)
        case bytes():
            return json_value(value)
    return value


def _write_json(schema: pa.Schema, rows: Iterable[pa.RecordBatch], out: TextIO) -> None:
    """A JSON list, an object a line, written as it is made."""
    names = [f"{_json(name)}: " for name in schema.names]
    before, after = "[\n ", "[]\n"
    for batch in _small(schema, rows):
        columns = [_column(each, "null", _json_texts, _json) for each in batch.columns]
        for row in zip(*columns, strict=True):
            out.write(f"{before}{{{', '.join(map(add, names, row))}}}")
            before, after = ",\n ", "\n]\n"
    out.write(after)


def _json_texts(column: pa.Array) -> list[str]:
    return ["null" if each is None else _TEXT_OF_JSON(each) for each in column.to_pylist()]


def _json(value: Any) -> str:
    return json.dumps(_finite(value), default=json_value, ensure_ascii=False, allow_nan=False)


def _write_csv(schema: pa.Schema, rows: Iterable[pa.RecordBatch], out: TextIO) -> None:
    """A header and a line for each row; null is an empty cell, an empty text is quoted; what has parts is JSON."""
    out.write(",".join(map(_quoted, schema.names)) + "\r\n")
    for batch in _small(schema, rows):
        columns = [_column(each, "", _csv_texts, _csv_cell) for each in batch.columns]
        out.writelines(f"{','.join(row)}\r\n" for row in zip(*columns, strict=True))


def _csv_texts(column: pa.Array) -> list[str]:
    marked = compute.match_substring_regex(column, _TO_QUOTE).to_pylist()
    texts = zip(column.to_pylist(), marked, strict=True)
    return [_quoted(each) if quoted else each or "" for each, quoted in texts]


def _csv_cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case float():
            return str(value)
        case list() | dict():
            return _quoted(_json(value))
    return _quoted(str(json_value(value)))


def _quoted(value: str) -> str:
    plain = value and not any(sign in value for sign in ',"\r\n')
    return value if plain else '"' + value.replace('"', '""') + '"'


def _write_parquet(schema: pa.Schema, rows: Iterable[pa.RecordBatch], out: Any) -> None:
    import pyarrow.parquet as pq

    from lakehouse.store.parquet import row_groups, safe_statistics  # late, as what they need

    with pq.ParquetWriter(out, schema, write_statistics=safe_statistics(schema)) as writer:
        for group in row_groups(rows, most_bytes=_GROUP_BYTES, most_rows=_GROUP):
            writer.write_table(pa.Table.from_batches(group, schema))


def _column(
    column: pa.Array, null: str, texts: Callable[[pa.Array], list[str]], cell: Callable[[Any], str]
) -> list[str]:
    """The cells of a column: by Arrow, and in Python where its words are others, once for each value.

    Args:
        column: of a few thousand rows.
        null: the cell of a null.
        texts: the cells of a column of texts.
        cell: that of any other value.
    """
    kind = column.type
    if types.is_boolean(kind) or types.is_integer(kind):
        return [null if each is None else each for each in column.cast(pa.string()).to_pylist()]
    if types.is_string(kind) or types.is_large_string(kind):
        return texts(column)
    if types.is_temporal(kind) or types.is_decimal(kind):
        values = column.dictionary_encode()
        known = [cell(each) for each in cells.cells(values.dictionary)]
        return [null if place is None else known[place] for place in values.indices.to_pylist()]
    return [cell(each) for each in cells.cells(column)]


def _small(schema: pa.Schema, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    # A time without a zone is UTC here too; one with a zone makes Arrow import pandas.
    plain = [pa.field(each.name, pa.timestamp("us")) if types.is_timestamp(each.type) else each for each in schema]
    for batch in rows:
        yield from pa.Table.from_batches([batch]).cast(pa.schema(plain)).to_batches(max_chunksize=_BATCH)


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are written as text."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {str(k): _finite(v) for k, v in value.items()}
        case list() | tuple():  # a map comes as pairs
            return [_finite(each) for each in value]
    return value


def _is_number(kind: Any) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
