"""Which row a quarantined row is: a number that stays the same when its day is built again."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from lakehouse.contracts import Table
from lakehouse.delta.files import DataFile
from lakehouse.delta.snapshot import Snapshot
from lakehouse.read.reading import read_file
from lakehouse.store.cells import cells

ORIGIN = ("_source_file", "_source_row", "_raw")
_AT_ONCE = 50_000


def identified(
    table: Table, snapshot: Snapshot, file: DataFile, columns: Sequence[str] = ()
) -> tuple[pa.Table, Sequence[int]]:
    """Some columns of a file's rows, and a number for each row that identifies it within its day.

    The number survives rebuilds. It is made from the row's key; of a row without a whole key from the file, line and
    text it came from; of a row without those from its columns, personal data left out.

    Args:
        table: the contract.
        snapshot: the table, or its quarantine, at one version.
        file: one of its files.
        columns: what is wanted beside key and origin.
    """
    rows = read_file(snapshot, file, list(dict.fromkeys([*columns, *table.key, *ORIGIN])))
    ids, others = array("q"), array("q")
    for part in in_parts(rows):
        for key, origin in zip(_whole_keys(table, part), _tuples(part, ORIGIN), strict=True):
            if key is not None:
                ids.append(_number("key", key))
            elif origin[0] is not None:
                ids.append(_number("origin", origin))
            else:
                others.append(len(ids))
                ids.append(0)
    if others:
        # Read only where some row has neither key nor origin; personal values stay out, for numbers are kept for ever.
        plain = [name for name in table.columns if name not in table.pii and not name.startswith("_")]
        read = read_file(snapshot, file, plain).take(pa.array(others))
        for place, values in zip(
            others, chain.from_iterable(_tuples(part, plain) for part in in_parts(read)), strict=True
        ):
            ids[place] = _number("row", values)
    return rows, ids


def in_parts(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows, so many at a time: as values of Python they take ten times the room, and a day may have millions."""
    for begin in range(0, rows.num_rows, _AT_ONCE):
        yield rows.slice(begin, _AT_ONCE)


def _whole_keys(table: Table, rows: pa.Table) -> list[tuple[Any, ...] | None]:
    """The key of each row; None where a part of it is missing that must be there."""
    if not table.key:
        return [None] * rows.num_rows
    needed = [name for name in table.key if name in table.required or len(table.key) == 1]
    whole = [all(v is not None for v in values) for values in _tuples(rows, needed)]
    return [key if is_whole else None for key, is_whole in zip(_tuples(rows, table.key), whole, strict=True)]


def _tuples(rows: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    columns = [cells(rows[name]) for name in names]
    return list(zip(*columns, strict=True)) if columns else [()] * rows.num_rows


def _number(kind: str, values: Sequence[Any]) -> int:
    # The kind is hashed too: a key and a line of a file can have the same values.
    text = json.dumps([kind, *values], default=str)
    # 63 bits, as the log's and Parquet's longs are signed: by chance two of a million rows of a day share one once in
    # twenty million days.
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
