"""Arithmetic with the types and the errors that it has in Spark."""

from __future__ import annotations

import re
from dataclasses import replace

from sqlglot import exp

from lakehouse.query.kinds import DATE, DOUBLE, INTEGER, LONG, MOST_DIGITS, TIMESTAMP, Kind, decimal, wider
from lakehouse.query.sql_text import NotTranslatedError
from lakehouse.query.values import ASK, Value, as_exact, brought, cast, named, quotient, turned, written

_LEAST_SCALE = 6  # digits after the point that Spark keeps of a quotient


def negated(node: exp.Expr, inner: Value) -> Value:
    """`-` before an expression; before a number as written it is a part of that."""
    if not inner.kind.is_number:
        raise NotTranslatedError(written(node))
    if inner.kind == DOUBLE:
        return Value(f"(-{inner.sql})", DOUBLE, named("(- {})", inner))
    return Value(turned(inner, f"-{inner.sql}"), inner.kind, named("(- {})", inner))


_OPERATORS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}


def arithmetic(node: exp.Expr, one: Value, other: Value) -> Value:
    """`+`, `-` and `*` of numbers; days added to dates.

    Args:
        node: the operation.
        one: what stands before the sign.
        other: what stands behind it.

    Raises:
        NotTranslatedError: for what is no number.
    """
    sign = _OPERATORS[type(node)]
    if one.kind == DATE and other.kind == INTEGER and sign in "+-":
        form = "date_add({}, {})" if sign == "+" else "date_sub({}, {})"
        return Value(f"({one.sql} {sign} {other.sql})", DATE, named(form, one, other))
    name = named(f"({{}} {sign} {{}})", one, other)
    kind = _numbers(one, other, node)
    if kind == DOUBLE or kind.is_integer:
        a, b = brought(one, kind), brought(other, kind)
        made = f"({a.sql} {sign} {b.sql})"
        return Value(made if kind == DOUBLE else cast(made, kind), kind, name)
    return replace(_of_decimals(sign, as_exact(one), as_exact(other)), name=name)


def _of_decimals(sign: str, a: Value, b: Value) -> Value:
    """Digits of the result as Spark counts them: of a product the sum of both, of a sum one more than the wider has."""
    p1, s1, p2, s2 = a.kind.precision, a.kind.scale, b.kind.precision, b.kind.scale
    scale = s1 + s2 if sign == "*" else max(s1, s2)
    kind = decimal(p1 + p2 + 1 if sign == "*" else max(p1 - s1, p2 - s2) + scale + 1, scale)
    if sign != "*":
        a, b = brought(a, kind), brought(b, kind)
    return Value(cast(f"{a.sql} {sign} {b.sql}", kind), kind)


def _numbers(one: Value, other: Value, node: exp.Expr) -> Kind:
    if not one.kind.is_number or not other.kind.is_number:
        raise NotTranslatedError(written(node))
    return wider(one.kind, other.kind)


_UNITS = {"DAY", "MONTH", "YEAR", "HOUR", "MINUTE", "SECOND"}


def shifted(node: exp.Expr, moment: Value) -> Value:
    """An interval added to a date or time, or taken from it."""
    interval, sign = node.expression, _OPERATORS[type(node)]
    unit = interval.args.get("unit")
    number, word = interval.this.name, unit.name.upper() if isinstance(unit, exp.Var) else ""
    known = _UNITS if moment.kind == TIMESTAMP else {"DAY", "MONTH", "YEAR"}
    if moment.kind not in (DATE, TIMESTAMP) or word not in known or not re.fullmatch(r"\d{1,5}", number) or sign == "*":
        raise NotTranslatedError(written(interval))
    return Value(cast(f"{moment.sql} {sign} INTERVAL {int(number)} {word}", moment.kind), moment.kind)


def division(node: exp.Expr, one: Value, other: Value) -> Value:
    """`/`; by nothing: an error.

    Args:
        node: the operation.
        one: what is divided.
        other: what it is divided by.

    Raises:
        NotTranslatedError: for what is no number.
    """
    name = named("({} / {})", one, other)
    kind = _numbers(one, other, node)
    if kind.name != "decimal":
        a, b = brought(one, DOUBLE), brought(other, DOUBLE)
        return Value(f"(CASE WHEN {b.sql} = 0 THEN {ASK} ELSE {a.sql} / {b.sql} END)", DOUBLE, name)
    a, b = as_exact(one), as_exact(other)
    # As many digits after the point as the quotient can need; where that is more than fit, they give way to
    # whole digits, down to six.
    scale = max(_LEAST_SCALE, a.kind.scale + b.kind.precision + 1)
    precision = a.kind.precision - a.kind.scale + b.kind.scale + scale
    if precision > MOST_DIGITS:
        whole = precision - scale
        scale = max(MOST_DIGITS - whole, min(scale, _LEAST_SCALE))
        precision = MOST_DIGITS
    kind = decimal(precision, scale)
    return Value(quotient(a, b, kind), kind, name)


def whole_division(node: exp.Expr, one: Value, other: Value) -> Value:
    """`DIV` and `%` of whole numbers; by nothing: an error.

    Args:
        node: the operation.
        one: what is divided.
        other: what it is divided by.

    Raises:
        NotTranslatedError: for other numbers, of which the engines keep different digits.
    """
    if not one.kind.is_integer or not other.kind.is_integer:
        raise NotTranslatedError(written(node))
    kind = LONG if isinstance(node, exp.IntDiv) else wider(one.kind, other.kind)
    sign, word = ("//", "div") if isinstance(node, exp.IntDiv) else ("%", "%")
    a, b = brought(one, kind), brought(other, kind)
    made = f"(CASE WHEN {b.sql} = 0 THEN {ASK} ELSE {cast(f'{a.sql} {sign} {b.sql}', kind)} END)"
    return Value(made, kind, named(f"({{}} {word} {{}})", one, other))
