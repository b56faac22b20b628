"""Arrow's values as those of Python, which knows no time before the year 1 or after 9999: such a one becomes a text.

Spark reads and writes such times. One of them, in a row that was set aside for it, must not hide the rows beside it.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types


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
