"""Rows computed again from a few rows of their inputs, and compared with what was published."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from lakehouse.build.route import routed
from lakehouse.contracts import Rule, Table
from lakehouse.delta.staged import FAILED_RULES, QUARANTINED, ROUTE, UNSEEN, VALID
from lakehouse.read.content import OF_THE_RUN
from lakehouse.read.lake import Lake, joined
from lakehouse.store import cells

Row = Mapping[str, Any]

PLACE = ("_source_file", "_source_row")


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """A small frame's rows; times with their zone, whatever zone this process runs in."""
    return cells.rows(frame.toArrow())


def frame_of(lake: Lake, schema: T.StructType, rows: Sequence[Row]) -> DataFrame:
    """Rows as a frame.

    Args:
        lake: whose engine makes it.
        schema: of the frame.
        rows: values by column; a column that a row lacks is null.
    """
    kinds = to_arrow_schema(schema, timezone="UTC")
    columns = [cells.column([row.get(each.name) for row in rows], each.type) for each in kinds]
    return lake.spark.createDataFrame(pa.Table.from_arrays(columns, schema=kinds), schema)


def recomputed(
    table: Table, frames: Mapping[str, DataFrame], quarantined: bool, rules: Sequence[Rule] | None = None
) -> list[dict[str, Any]]:
    """What the transform and the rules make of some input rows: the published rows, or the quarantined ones.

    Args:
        table: whose transform and rules.
        frames: the input rows, by parameter of the transform.
        quarantined: whether the rows that break a rule are wanted, or else the sound ones.
        rules: the row rules; None: the contract's.
    """
    made = rows_of(routed(table, table.transformed(**frames), rules))
    # Chosen here: Spark makes of a filter by the route a chain of all rules, and of a thousand its stack is too small.
    return [row for row in made if row[ROUTE] == (QUARANTINED if quarantined else VALID)]


def matching(
    frame: DataFrame, lake: Lake, columns: Mapping[str, T.DataType], wanted: Collection[tuple[Any, ...]]
) -> DataFrame:
    """The rows of a frame whose values in some columns are among those wanted; null is a value like any other.

    Args:
        frame: the rows.
        lake: whose engine holds the frame.
        columns: types by name; without any, all rows are wanted.
        wanted: a tuple of values in the order of the columns, for each row that is looked for.
    """
    if not columns:
        return frame
    schema = T.StructType([T.StructField(name, kind) for name, kind in columns.items()])
    keys = frame_of(lake, schema, [dict(zip(schema.names, values, strict=True)) for values in wanted])
    # Broadcast, since there are few: the frame is then read once and not shuffled.
    return joined(frame, F.broadcast(keys), columns, "left_semi")


def identity(table: Table, columns: Collection[str]) -> tuple[str, ...]:
    """The columns that tell one row from another: the key within its partition, or else the place in a file."""
    return (
        tuple(dict.fromkeys([*table.key, *table.partition_by]))
        if table.key
        else tuple(c for c in PLACE if c in columns)
    )


def by_identity(ident: Sequence[str]) -> Callable[[Row], tuple[Any, ...]]:
    """A row's identity as a tuple."""
    return lambda row: tuple(row.get(name) for name in ident)


def differing(table: Table, rows: Sequence[Row], again: Sequence[Row], ident: Sequence[str]) -> dict[str, list[str]]:
    """What was published otherwise than it was computed again, in words, by column; empty where all is equal.

    Personal data is named, never shown. A row that did not come out again is told under the empty name.

    Args:
        table: whose rows they are.
        rows: the published ones.
        again: those that were computed again.
        ident: the columns that tell one row from another.
    """
    name_of = by_identity(ident)
    found = {name_of(row): row for row in again}
    told: dict[str, list[str]] = {}
    for row in rows:
        other = found.get(name_of(row))
        what = ", ".join(f"{c}={row.get(c)}" for c in ident if c not in table.pii)
        if other is None:
            told.setdefault("", []).append(f"{what}: no such row comes out")
            continue
        # Columns of the run that read a file are not of the file: a later reading has others.
        for column in (c for c in (*table.columns, FAILED_RULES) if c in row and c not in OF_THE_RUN):
            if not _same(row[column], other.get(column)):
                shown = f"published {row[column]}, computed again {other.get(column)}"
                values = "differs" if column in {*table.pii, *UNSEEN} else shown
                told.setdefault(column, []).append(f"{what}: {column}: {values}")
    return told


def _same(left: Any, right: Any) -> bool:
    return bool(left == right or (left != left and right != right))  # noqa: PLR0124 - NaN equals nothing


def place(row: Row) -> str:
    """`file:line` of a row that names them."""
    return f"{row.get('_source_file') or 'unknown'}:{row.get('_source_row') or '?'}"
