"""Arrow's values as those of Python, which knows no time before the year 1 or after 9999: such a one becomes a text.

Spark reads and writes such times. One of them, in a row that was set aside for it, must not hide the rows beside it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyarrow import types

_BEYOND = re.compile(r"([+-]?\d+)(-\d\d-\d\d(?: \d\d:\d\d:\d\d(?:\.\d{6})?)?)Z?")
_FAR = re.compile(r"<value out of range: (-?\d+)>")  # what Arrow writes of years of six digits
_DAYS_IN_400_YEARS = 146_097


def cells(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column."""
    try:
        found: list[Any] = column.to_pylist()
    except OverflowError:
        texts = column.cast(_with_texts(column.type)).to_pylist()
        return [_cell(each, text) for each, text in zip(column, texts, strict=True)]
    return found


def rows(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows, by column."""
    names = table.schema.names
    columns = [cells(column) for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values as a column again, such texts among them; of what has parts, only times that Python has."""
    if not (types.is_timestamp(kind) or types.is_date32(kind)) or not any(isinstance(each, str) for each in values):
        return pa.array(values, kind)
    numbers = [_number(each, kind) for each in values]
    return pa.array(numbers, pa.int32() if types.is_date32(kind) else pa.int64()).cast(kind)


def _number(value: Any, kind: pa.DataType) -> int | None:
    """How Arrow stores a date, or a time in microseconds. Each 400 years are as long as any others."""
    if isinstance(value, str) and (far := _FAR.match(value)):
        return int(far[1])
    found = _BEYOND.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        number: int | None = pa.scalar(value, kind).value
        return number
    cycles = (int(found[1]) - 2000) // 400
    near = datetime.fromisoformat(f"{int(found[1]) - 400 * cycles:04}{found[2]}").replace(tzinfo=UTC)
    if types.is_date32(kind):
        return int(pa.scalar(near.date(), kind).value) + cycles * _DAYS_IN_400_YEARS
    return int(pa.scalar(near, pa.timestamp("us", "UTC")).value) + cycles * _DAYS_IN_400_YEARS * 86_400_000_000


def _cell(value: pa.Scalar, text: Any) -> Any:
    try:
        return value.as_py()
    except OverflowError:
        return text


def _with_texts(kind: pa.DataType) -> pa.DataType:
    """The type with texts in place of times, wherever in it they are."""
    if types.is_timestamp(kind) or types.is_date(kind):
        return pa.string()
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(_with_texts(kind.value_type))
    if types.is_map(kind):
        return pa.map_(_with_texts(kind.key_type), _with_texts(kind.item_type))
    if types.is_struct(kind):
        return pa.struct([field.with_type(_with_texts(field.type)) for field in kind])
    return kind
