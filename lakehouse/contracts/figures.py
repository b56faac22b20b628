"""Figures of the business that a table's days are told by: plotted on its asset and in the report."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from lakehouse.contracts.mistakes import Mistake, are_known, unless

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


def figure_mistakes(table: Table) -> list[Mistake]:
    """What is wrong with a table's figures."""
    held = {name: table.schema[name].dataType for name in columns_of(table.figures) if name in table.columns}
    return [
        *are_known("figures", columns_of(table.figures), table.columns, f"a column of {table.model.__name__}"),
        *unless(not set(held) & set(table.pii), "figures", "no personal data, since figures are kept with each commit",
                ", ".join(sorted(set(held) & set(table.pii))), "Take it out."),
        *(each for name, figure in table.figures.items() for each in _mistakes(table, name, figure, held)),
    ]  # fmt: skip


def _mistakes(table: Table, name: str, figure: Figure, held: Mapping[str, T.DataType]) -> list[Mistake]:
    found = unless(
        _NAME.fullmatch(name) and name not in TAKEN, "figures",
        f"a name of small letters, digits and _, and none that the asset has ({', '.join(sorted(TAKEN))})", repr(name),
        "Choose another name.", name,
    )  # fmt: skip
    if not isinstance(figure, Sum):
        return found
    summed, by = held.get(figure.column, T.LongType()), held.get(figure.by, T.StringType())
    exact = isinstance(summed, T.DecimalType | T.LongType | T.IntegerType)
    sound = isinstance(by, T.StringType) and figure.by not in table.partition_by
    return [
        *found,
        *unless(exact, "figures", f"a decimal or whole-number column for the Sum {name}",
                f"{figure.column} ({summed.simpleString()})", "Sum another column, or Count.", figure.column),
        *unless(sound, "figures", f"a text column that is no partition column for by= of the Sum {name}",
                f"{figure.by} ({by.simpleString()})", "Leave by= out, or name another column.", figure.by),
    ]  # fmt: skip
