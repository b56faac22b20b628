"""Figures of the business that a table's days are told by: plotted on its asset and in the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import reduce

# Python rounds what it computes of decimals to 28 digits, and a column may have 38: no sum has as many as here.
EXACT = Context(prec=200)
_SUMS = Context(prec=200, traps=[])  # infinity and minus infinity have no sum, which is no error of whoever adds


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


def added(numbers: Iterable[Decimal]) -> Decimal:
    """Their sum with all of its digits; NaN where they have none."""
    return reduce(_SUMS.add, numbers, Decimal(0))


def columns_of(figures: Mapping[str, Figure]) -> tuple[str, ...]:
    """The columns that figures name, each once."""
    named = [name for each in figures.values() for name in (each.column, getattr(each, "by", "")) if name]
    return tuple(dict.fromkeys(named))
