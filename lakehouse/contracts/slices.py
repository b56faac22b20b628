"""Slices: a build that is too heavy for one Spark job, cut by the hash of a part of the table's key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.contracts.mistakes import Mistake, are_known, unless

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

    def mistakes(self, made: Table) -> list[Mistake]:
        """What is wrong with cutting this table so."""
        word, key = "layout.slice_by", ", ".join(made.key) or "none"
        kinds = {c: made.schema[c].dataType for c in self.columns if c in made.columns}
        fractions = [c for c, kind in kinds.items() if isinstance(kind, T.FloatType | T.DoubleType)]
        reads_tables = len(made.upstream) == len(made.inputs) and not made.upsert
        return [
            *unless(self.columns and set(self.columns) <= set(made.key), word, f"columns of the key ({key})",
                    ", ".join(self.columns) or "none", "Rows of one key must be in one slice: name some of the key."),
            *unless(not fractions, word, "no fractions, of which equal ones can have different hashes",
                    ", ".join(fractions), "Name other columns of the key."),
            *unless(reads_tables, word, "a table that reads tables and is no upsert", made.id, "Leave slice_by out."),
            *are_known(word, self.reads, tuple(made.inputs), "an input of the transform"),
        ]  # fmt: skip


def slice_mistakes(table: Table, sources: Mapping[str, Table]) -> list[Mistake]:
    """Inputs that are cut and do not have the columns: of another type, equal values have other hashes.

    Args:
        table: what is built.
        sources: tables by `layer.name`, its inputs among them.
    """
    cut, found = table.layout.slice_by, []
    for name in cut.reads if cut else ():
        source = sources[table.upstream[name].table]
        for column in cut.columns if cut else ():
            wanted = table.schema[column].dataType.simpleString()
            held = source.schema[column].dataType.simpleString() if column in source.columns else "no such column"
            found += unless(
                held == wanted, "layout.slice_by", f"{wanted} for {column} in the input {name} ({source.id})", held,
                f"Leave {name} out of `reads`: each slice then reads what Spark cannot leave out by itself.",
            )  # fmt: skip
    return found
