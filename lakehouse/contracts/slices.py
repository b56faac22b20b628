"""Slices: a build that is too heavy for one Spark job, cut by the hash of a part of the table's key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakehouse.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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
        """The rows of the inputs that a slice reads.

        Args:
            inputs: by parameter of the transform.
            number: of the slice, from 0.
            of: how many slices there are.
        """
        return {
            name: frame.where(self.mine(number, of) | F.coalesce(F.expr(self.reads[name]), F.lit(False)))
            if name in self.reads
            else frame
            for name, frame in inputs.items()
        }
