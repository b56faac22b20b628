"""Texts and numbers as a query writes them, with the types that they have in Spark."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TypeGuard

from sqlglot import exp

from lakehouse.query.kinds import DOUBLE, INTEGER, LONG, STRING, decimal, text
from lakehouse.query.values import Value, cast


def literal(node: exp.Expr) -> Value:
    """A text or a number."""
    if isinstance(node, exp.Literal) and node.is_string:
        return Value(text(node.name), STRING, node.name, literal=node.name)
    return number(node.name)


def is_number(node: object) -> TypeGuard[exp.Literal]:
    """Whether it is a number as written; its sign is none of it."""
    return isinstance(node, exp.Literal) and not node.is_string


def number(said: str) -> Value:
    """A number with the sign before it, which to Spark is a part of it: so the least whole numbers have their type.

    Args:
        said: as it is written.
    """
    if re.fullmatch(r"-?\d+", said):
        whole = int(said)
        digits = len(str(abs(whole)))
        # By its size, as in Spark: the type decides digits and overflow of whatever is computed with it.
        kind = INTEGER if -(2**31) <= whole < 2**31 else LONG if -(2**63) <= whole < 2**63 else decimal(digits, 0)
        return Value(cast(str(whole), kind), kind, str(whole), digits if kind.is_integer else None)
    if found := re.fullmatch(r"-?(\d*)\.(\d*)", said):
        whole_part, after = found[1].lstrip("0"), found[2]
        # A number with a point is a decimal of just its digits, zeros before it not counted.
        kind = decimal(max(len(whole_part) + len(after), 1), len(after))
        exact = Decimal(said) or Decimal(said).copy_abs()  # no decimal is less than nought by its sign alone
        return Value(cast(text(f"{exact:f}"), kind), kind, str(exact))
    return Value(cast(text(said), DOUBLE), DOUBLE)
