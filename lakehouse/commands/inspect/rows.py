"""How the rows of a query are written: as a table, JSON, CSV or Parquet, on the terminal or into a file."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
from pyarrow import types

from lakehouse import store
from lakehouse.commands.console import console, json_value, table
from lakehouse.errors import UsageError
from lakehouse.settings import Settings
from lakehouse.store import cells

_BATCH = 10_000  # rows made into Python objects at once


class Format(StrEnum):
    """How rows are written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


def write_rows(rows: pa.Table, form: Format) -> None:
    """Write rows to standard output."""
    match form:
        case Format.TABLE:
            names = rows.column_names
            right = [n for n, t in zip(names, rows.schema.types, strict=True) if _is_number(t)]
            console().print(table(names, ([_shown(row[n]) for n in names] for row in _dicts(rows)), right=right))
        case Format.JSON:
            _write_json(rows, sys.stdout)
        case Format.CSV:
            _write_csv(rows, sys.stdout)
        case Format.PARQUET:
            if sys.stdout.isatty():
                raise UsageError("Parquet is no text for a terminal: name a file with --out.")
            _write_parquet(rows, sys.stdout.buffer)
    sys.stdout.flush()


def write_file(rows: pa.Table, form: Format, file: Path, settings: Settings) -> None:
    """Write rows into a file, which is there with all of them or not at all.

    Args:
        rows: of a query, its columns by names that differ.
        form: what the file is written as.
        file: its place; one that is there is replaced.
        settings: where the lakehouse is, in which nothing is written.

    Raises:
        UsageError: for a place inside the lakehouse, or one that cannot be written.
    """
    file = file.expanduser().absolute()
    if store.is_inside(file, settings.root):
        raise UsageError(f"{file} is inside the lakehouse, which this command only reads. Choose another place.")
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with draft.open("wb") as binary:
            if form is Format.PARQUET:
                _write_parquet(rows, binary)
            else:
                with open(binary.fileno(), "w", encoding="utf-8", newline="", closefd=False) as text:
                    (_write_json if form is Format.JSON else _write_csv)(rows, text)
        draft.replace(file)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}. Choose another file.") from None
    finally:
        draft.unlink(missing_ok=True)


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


def _write_json(rows: pa.Table, out: TextIO) -> None:
    """A JSON list, an object a line, written as it is made."""
    out.write("[")
    for number, row in enumerate(_dicts(rows)):
        out.write(",\n " if number else "\n ")
        out.write(_json(row))
    out.write("\n]\n" if rows.num_rows else "]\n")


def _json(value: Any) -> str:
    return json.dumps(_finite(value), default=json_value, ensure_ascii=False, allow_nan=False)


def _write_csv(rows: pa.Table, out: TextIO) -> None:
    """A header and a line for each row; null is an empty cell, an empty text is quoted; what has parts is JSON."""
    out.write(",".join(map(_quoted, rows.column_names)) + "\r\n")
    out.writelines(",".join(map(_csv_cell, row.values())) + "\r\n" for row in _dicts(rows))


def _csv_cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case list() | dict():
            return _quoted(_json(value))
        case str():
            return _quoted(value)
    return _quoted(str(json_value(value)))


def _quoted(value: str) -> str:
    plain = value and not any(sign in value for sign in ',"\r\n')
    return value if plain else '"' + value.replace('"', '""') + '"'


def _write_parquet(rows: pa.Table, out: Any) -> None:
    import pyarrow.parquet as pq

    pq.write_table(rows, out)


def _dicts(rows: pa.Table) -> Iterator[dict[str, Any]]:
    # A time without a zone is UTC here too; one with a zone makes Arrow import pandas.
    plain = [pa.field(each.name, pa.timestamp("us")) if types.is_timestamp(each.type) else each for each in rows.schema]
    for batch in rows.cast(pa.schema(plain)).to_batches(max_chunksize=_BATCH):
        yield from cells.rows(batch)


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
