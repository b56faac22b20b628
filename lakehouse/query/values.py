"""Values of DuckDB's SQL with the type they have in Spark, and the ways from one type to another."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal

from sqlglot import exp

from lakehouse.query.kinds import (
    DATE,
    DOUBLE,
    INTEGER,
    NULL,
    STRING,
    TIMESTAMP,
    Kind,
    as_decimal,
    decimal,
    duckdb_type,
    text,
    wider,
)
from lakehouse.query.sql_text import NotTranslatedError

# Where it is reached, DuckDB ends with an error, and Spark is asked: it may answer, or say what is wrong.
ASK = "error('Spark decides')"
_COMPARED = {"boolean", "string", "date", "timestamp", "timestamp_ntz", "void"}
_EXACT = 15  # digits that a double holds
_KEPT_DIGITS = 34  # of a decimal of Scala by default
_DAY = re.compile(r"\d{4}-\d\d-\d\d\Z")
_HOUR = "([01][0-9]|2[0-3])"  # to DuckDB 24:00 is the next day's begin, to Spark no time
_TIME = re.compile(rf"\d{{4}}-\d\d-\d\d([ T]{_HOUR}:\d\d(:\d\d(\.\d{{1,6}})?)?)?\Z")


@dataclass(frozen=True)
class Value:
    """An expression.

    Attributes:
        sql: as DuckDB is given it.
        kind: its type in Spark.
        name: what Spark calls a column of it that got no name; None where that is not known.
        digits: of a literal whole number.
        literal: the text of a text literal.
    """

    sql: str
    kind: Kind
    name: str | None = None
    digits: int | None = None
    literal: str | None = None


Make = Callable[..., Value]
"""What makes a call of its arguments."""


def named(form: str, *parts: Value) -> str | None:
    """What Spark calls a column made of others; None where it is not known of one of them."""
    names = [each.name for each in parts]
    return None if None in names else form.format(*names)


def written(node: exp.Expr) -> str:
    """A part of a query as people write it, or where that is long, what it is."""
    said = node.sql("spark")
    return said if len(said) <= 60 else type(node).__name__.upper()  # noqa: PLR2004


def cast(sql: str, kind: Kind) -> str:
    """DuckDB's own cast."""
    return f"CAST({sql} AS {duckdb_type(kind)})"


def brought(value: Value, kind: Kind) -> Value:
    """The value in a type that holds it, as Spark does by itself."""
    if value.kind == kind:
        return value
    if value.kind.name == "decimal" and kind == STRING and value.kind.precision == value.kind.scale:
        # DuckDB leaves out the nought before the point where the type has no digit there.
        return replace(value, sql=f"regexp_replace({cast(value.sql, kind)}, '^(-?)[.]', '\\10.')", kind=kind)
    if value.kind.name == "decimal" and kind == DOUBLE and value.kind.precision > _EXACT:
        return replace(value, sql=cast(cast(value.sql, STRING), DOUBLE), kind=kind)  # DuckDB would round twice
    return replace(value, sql=cast(value.sql, kind), kind=kind)


def alike(one: Value, other: Value) -> tuple[Value, Value]:
    """Two values in the type that Spark compares them in; a text literal beside a date or time is one."""
    one, other = _moment(one, other.kind), _moment(other, one.kind)
    kind = wider(one.kind, other.kind)
    return brought(one, kind), brought(other, kind)


def compared(one: Value, other: Value) -> tuple[Value, Value]:
    """Two values in the type that they are compared in.

    Raises:
        NotTranslatedError: for types whose values the engines may compare otherwise.
    """
    one, other = alike(one, other)
    if not one.kind.is_number and one.kind.name not in _COMPARED:
        raise NotTranslatedError(f"a comparison of {one.kind}")
    return one, other


def _moment(value: Value, beside: Kind) -> Value:
    if value.literal is None or beside not in (DATE, TIMESTAMP):
        return value
    form = _DAY if beside == DATE else _TIME
    if not form.match(value.literal):
        raise NotTranslatedError(f"{value.literal!r} beside a {beside}")
    return replace(value, sql=f"{duckdb_type(beside)} {text(value.literal)}", kind=beside, literal=None)


def as_exact(value: Value) -> Value:
    """A whole number or decimal as the decimal that Spark computes with beside a decimal."""
    kind = decimal(value.digits, 0) if value.digits is not None else as_decimal(value.kind)
    return brought(value, kind)


def turned(value: Value, made: str) -> str:
    """A number with its sign turned or taken off; of a decimal Spark then keeps 34 digits, so of more it has to say.

    Args:
        value: the number.
        made: it with the other sign, in DuckDB's SQL.
    """
    made, kind = cast(made, value.kind), value.kind
    if kind.precision <= _KEPT_DIGITS:
        return made
    bound = cast(text(f"{Decimal(1).scaleb(_KEPT_DIGITS - kind.scale):f}"), kind)
    return f"(CASE WHEN abs({value.sql}) < {bound} THEN {made} WHEN {value.sql} IS NULL THEN NULL ELSE {ASK} END)"


def unscaled(value: Value) -> str:
    """A decimal's digits as one whole number."""
    return f"CAST(replace({cast(value.sql, STRING)}, '.', '') AS HUGEINT)"


def quotient(above: Value, below: Value, kind: Kind) -> str:
    """One decimal by another, to the digits of `kind`, half up; by nothing: an error.

    Args:
        above: what is divided, a decimal.
        below: what it is divided by, a decimal.
        kind: of the quotient, a decimal.

    Raises:
        NotTranslatedError: the quotient has fewer digits after the point than its parts.
    """
    # In whole numbers, since DuckDB divides decimals as doubles: the digits of both, one's moved to the left.
    shift = kind.scale - above.kind.scale + below.kind.scale
    n, d = unscaled(above), unscaled(below)
    if shift < 0:
        raise NotTranslatedError("a quotient of fewer digits than its parts have")
    n = f"({n} * {10**shift}::HUGEINT)"
    # Half up, away from zero, without a fraction: (2n + d) // 2d.
    half = f"((2 * abs({n}) + abs({d})) // (2 * abs({d})))"
    sign = f"(CASE WHEN ({n} < 0) = ({d} < 0) THEN 1 ELSE -1 END)"
    digits = f"CAST({sign} * {half} AS DECIMAL(38, 0))"
    scaled = f"{digits} * CAST({text('0.' + '0' * (kind.scale - 1) + '1')} AS DECIMAL({kind.scale}, {kind.scale}))"
    made = cast(scaled if kind.scale else digits, kind)
    return f"(CASE WHEN {below.sql} = 0 THEN {ASK} ELSE {made} END)"


_NUMBER_TEXT = {
    "integer": r"[+-]?[0-9]+",
    "long": r"[+-]?[0-9]+",
    "short": r"[+-]?[0-9]+",
    "byte": r"[+-]?[0-9]+",
    "decimal": r"[+-]?([0-9]+(\.[0-9]+)?|\.[0-9]+)",
    "double": r"[+-]?([0-9]+(\.[0-9]+)?|\.[0-9]+)([eE][+-]?[0-9]+)?",
    "date": r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "timestamp": rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}} {_HOUR}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?",
}


def converted(value: Value, kind: Kind, *, trying: bool = False) -> str:
    """`CAST` and `TRY_CAST` as a query writes them, where both engines agree; what else the values hold, Spark decides.

    Args:
        value: what is cast.
        kind: to which type.
        trying: what cannot be cast becomes null.

    Raises:
        NotTranslatedError: for other types.
    """
    if value.kind == kind:
        return value.sql
    if value.kind == NULL:
        return cast(value.sql, kind)
    if trying and value.kind != STRING:
        raise NotTranslatedError(f"TRY_CAST of {value.kind}")
    way = _WAYS.get((value.kind.name, kind.name))
    if way is None:
        raise NotTranslatedError(f"a cast of {value.kind} to {kind}")
    return way(value, kind)


def _plainly(value: Value, kind: Kind) -> str:
    return brought(value, kind).sql


def _from_text(value: Value, kind: Kind) -> str:
    """Spark trims and takes more forms; DuckDB rounds. So only the plain form is taken."""
    fits = f"regexp_full_match({value.sql}, {text(_NUMBER_TEXT[kind.name])})"
    return f"(CASE WHEN {fits} THEN {cast(value.sql, kind)} WHEN {value.sql} IS NULL THEN NULL ELSE {ASK} END)"


def _truncated(value: Value, kind: Kind) -> str:
    return cast(f"trunc({value.sql})", kind)


def _shortest(value: Value, kind: Kind) -> str:
    # Of a text with an exponent, DuckDB does not see that it has too many digits. Of more digits than a double holds,
    # Java (before 19) writes others than the shortest: 8.41E21 is 8.409999999999999E21.
    fits = f"abs({value.sql}) < 1e{min(kind.precision, _EXACT) - kind.scale}"
    made = cast(cast(value.sql, STRING), kind)
    return f"(CASE WHEN {fits} THEN {made} WHEN {value.sql} IS NULL THEN NULL ELSE {ASK} END)"


def _year_of_four(value: Value, kind: Kind) -> str:
    ordinary = f"year({value.sql}) BETWEEN 1 AND 9999"
    return f"(CASE WHEN {ordinary} THEN {cast(value.sql, kind)} WHEN {value.sql} IS NULL THEN NULL ELSE {ASK} END)"


_INTEGERS = ("byte", "short", "integer", "long")
_WAYS: dict[tuple[str, str], Callable[[Value, Kind], str]] = {
    **{(one, other): _plainly for one in _INTEGERS for other in (*_INTEGERS, "decimal", "double", "string")},
    **{("decimal", name): _truncated for name in _INTEGERS},
    **{("double", name): _truncated for name in _INTEGERS},
    **{("string", name): _from_text for name in _NUMBER_TEXT},
    ("decimal", "decimal"): _plainly,
    ("decimal", "double"): _plainly,
    ("decimal", "string"): _plainly,
    ("double", "decimal"): _shortest,
    ("boolean", "string"): _plainly,
    ("date", "string"): _year_of_four,
    ("timestamp", "string"): _year_of_four,
    ("date", "timestamp"): _plainly,
    ("timestamp", "date"): _plainly,
}


def of_kind(value: Value, *kinds: Kind) -> str:
    """A function's argument, which has to be of these types."""
    if value.kind not in kinds:
        raise NotTranslatedError(f"a function of {value.kind}")
    return value.sql


def places_of(*numbers: Value, least: int) -> list[str]:
    """Literal whole numbers, none below `least`; one that is no int, Spark refuses."""
    if any(each.digits is None or each.kind != INTEGER or int(each.name or -1) < least for each in numbers):
        raise NotTranslatedError("a place in a text that is no plain number")
    return [str(each.name) for each in numbers]
