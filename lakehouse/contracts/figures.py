"""Figures of the business that a table's days are told by: plotted on its asset and in the report."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import types as T

if TYPE_CHECKING:
    from lakehouse.contracts.table import Table

_NAME = re.compile(r"[a-z][a-z0-9_]*")
# Keys that each partition's metadata has of its own.
TAKEN = frozenset({"rows_in", "quarantined", "duplicates", "status", "checks", "commit_version", "preview", "report"})


@dataclass(frozen=True)
class Sum:
    """The exact sum of a whole-number or decimal column over a day's rows.

    With `by`, one sum for each value of that column, named `figure/value`: money of several currencies is never added.

    Attributes:
        column: what is added up.
        by: text column that splits the sum; empty: one sum.
    """

    column: str
    by: str = ""


@dataclass(frozen=True)
class Count:
    """The rows of a day, or with `column` those where it is not null.

    Attributes:
        column: what must not be null; empty: every row counts.
    """

    column: str = ""


Figure = Sum | Count


def columns_of(figures: Mapping[str, Figure]) -> tuple[str, ...]:
    """The columns that figures name, each once."""
    named = [name for each in figures.values() for name in (each.column, getattr(each, "by", "")) if name]
    return tuple(dict.fromkeys(named))


def conditions(table: Table, known: Collection[str]) -> dict[str, bool]:
    """What must hold of a table's figures, by what to say where it does not."""
    types = {name: table.schema[name].dataType for name in columns_of(table.figures) if name in known}
    sums = [each for each in table.figures.values() if isinstance(each, Sum)]
    exact = (T.DecimalType, T.LongType, T.IntegerType)
    return {
        "a figure is named by small letters, digits and _, and by no key of the asset's own": all(
            _NAME.fullmatch(name) and name not in TAKEN for name in table.figures
        ),
        "a PII column has no figures, whose values are kept with each commit": not set(types) & set(table.pii),
        "a Sum is of a decimal or whole-number column": all(
            isinstance(types.get(each.column, T.LongType()), exact) for each in sums
        ),
        "a Sum is by a text column that is no partition column": all(
            isinstance(types.get(each.by, T.StringType()), T.StringType) and each.by not in table.partition_by
            for each in sums
            if each.by
        ),
    }
