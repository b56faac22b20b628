"""Slices: a build that is too heavy for one Spark job, cut by the hash of a part of the table's key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.errors import ContractError

if TYPE_CHECKING:
    from lakehouse.contracts.table import Table


@dataclass(frozen=True)
class SliceBy:
    """How a build of the table may be cut into slices, each of which is staged by itself (`backfill --slices`).

    A slice has the table's rows whose hash of `columns` is its own. Since these are part of the key, rows of one key
    are in one slice, and all slices together are the table, whatever the transform does. How much a slice saves depends
    on how early the rows of others are left out: Spark does that by itself as far as its rows are only selected or
    grouped by these columns; where it cannot know, `reads` says which rows of an input a slice needs.

    Attributes:
        columns: columns of the key.
        reads: by input, an SQL condition of the rows that every slice reads (`false`: none); of its other rows a slice
            reads those of its own hash. The input has `columns` too, of the same types and values.
    """

    columns: tuple[str, ...]
    reads: Mapping[str, str] = field(default_factory=dict)

    def mine(self, number: int, of: int) -> Column:
        """Whether a row belongs to a slice, numbered from 0; null is a value like any other."""
        return F.pmod(F.xxhash64(*self.columns), F.lit(of)) == number

    def cut(self, inputs: Mapping[str, DataFrame], number: int, of: int) -> dict[str, DataFrame]:
        """The rows of the inputs that a slice reads."""
        return {
            name: frame.where(self.mine(number, of) | F.coalesce(F.expr(self.reads[name]), F.lit(False)))
            if name in self.reads
            else frame
            for name, frame in inputs.items()
        }

    def conditions(self, made: Table) -> dict[str, bool]:
        """What must hold of a table that is cut this way, by what is wrong where it does not."""
        kinds = [made.schema[c].dataType for c in self.columns if c in made.columns]
        return {
            f"slice_by names {', '.join(self.columns) or 'no column'}; it must be columns of the key "
            f"({', '.join(made.key) or 'none'}), so that rows of one key are in one slice": bool(self.columns)
            and set(self.columns) <= set(made.key),
            "slice_by must not name fractions, of which equal ones can have different hashes": not any(
                isinstance(kind, T.FloatType | T.DoubleType) for kind in kinds
            ),
            "slice_by is for tables that read tables and are no upserts": len(made.upstream) == len(made.inputs)
            and not made.upsert,
            "slice_by reads what is no input": set(self.reads) <= set(made.inputs),
        }


def check_slices(table: Table, sources: Mapping[str, Table]) -> None:
    """Refuse to cut an input that does not have the columns: of another type, equal values have other hashes.

    Args:
        table: what is built.
        sources: tables by `layer.name`, its inputs among them.

    Raises:
        ContractError: naming input and column.
    """
    if table.slice_by is None:
        return
    for name in table.slice_by.reads:
        source = sources[table.upstream[name].table]
        for column in table.slice_by.columns:
            wanted = table.schema[column].dataType.simpleString()
            found = source.schema[column].dataType.simpleString() if column in source.columns else "no such column"
            if found != wanted:
                raise ContractError(
                    f"{table.id}: slice_by cuts its input {name} ({source.id}) by {column}: expected {wanted}, as in "
                    f"{table.id}, got {found}. Leave {name} out of `reads`: each slice then reads it as far as Spark "
                    "cannot leave rows out by itself."
                )
