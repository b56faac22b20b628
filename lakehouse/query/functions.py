"""Functions whose meaning in DuckDB is Spark's, or is made so; whatever is not here, Spark computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

from sqlglot import exp

from lakehouse.query.aggregates import AGGREGATES, MARK
from lakehouse.query.dates import DATES
from lakehouse.query.kinds import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    Kind,
    decimal,
    wider,
)
from lakehouse.query.sql_text import NotTranslatedError
from lakehouse.query.values import ASK, Make, Value, alike, brought, cast, of_kind, places_of, turned


def over(value: Value, ending: str) -> Value:
    """A call with what follows its parentheses."""
    return replace(value, sql=value.sql.replace(MARK, ending))


def function_name(node: exp.Expr) -> str:
    """The lower-case name of what is called; empty for what is no call."""
    return str(node.name).lower() if isinstance(node, exp.Anonymous) else ""


def is_aggregate(node: exp.Expr) -> bool:
    """Whether it makes one value of many rows."""
    return function_name(node) in AGGREGATES


def called(node: exp.Expr, translate: Callable[[exp.Expr], Value]) -> Value:
    """A call, with `MARK` behind the parentheses of an aggregate.

    Raises:
        NotTranslatedError: with the function's name.
    """
    name = function_name(node)
    make = AGGREGATES.get(name) or PLAIN.get(name)
    if make is None:
        raise NotTranslatedError(f"the function {name}" if name else node.sql("spark"))
    if name == "count" and list(map(type, node.expressions)) == [exp.Star]:
        return Value(f"count(*){MARK}", LONG, "count(1)")
    nodes, distinct = _arguments(node)
    values = [translate(each) for each in nodes]
    if distinct:
        _check_distinct(name, values)
    try:
        made = make(*values, distinct=distinct) if name in AGGREGATES else make(*values)
    except TypeError:  # another number of arguments
        raise NotTranslatedError(f"{name} with {len(values)} arguments") from None
    return replace(made, name=_name(name, values, distinct))


def _arguments(node: exp.Expr) -> tuple[Sequence[exp.Expr], str]:
    """The arguments of a call, and `DISTINCT ` where equal ones count once."""
    nodes: Sequence[exp.Expr] = node.expressions
    if len(nodes) == 1 and isinstance(nodes[0], exp.Distinct):
        return nodes[0].expressions, "DISTINCT "
    return nodes, ""


def _check_distinct(name: str, values: Sequence[Value]) -> None:
    # Which doubles are equal (-0.0, NaN) is told otherwise by each engine.
    if name not in ("count", "sum", "avg") or any(each.kind == DOUBLE for each in values):
        raise NotTranslatedError(f"{name}(DISTINCT …) of these values")


def _name(function: str, values: Sequence[Value], distinct: str) -> str | None:
    """What Spark calls a column of the call."""
    arguments = [each.name for each in values]
    if None in arguments or function in _OTHERWISE_NAMED or (function == "substring" and len(arguments) < 3):  # noqa: PLR2004
        return None
    zero = ["0"] if function == "round" and len(arguments) == 1 else []
    return f"{_WRITTEN.get(function, function)}({distinct}{', '.join(map(str, [*arguments, *zero]))})"


# Texts


def _ascii(value: Value, made: str) -> Value:
    """Letters outside ASCII have other rules in Java."""
    return Value(f"(CASE WHEN strlen({value.sql}) > length({value.sql}) THEN {ASK} ELSE {made} END)", STRING)


def _cased(name: str) -> Make:
    return lambda value: _ascii(value, f"{name}({of_kind(value, STRING)})")


def _stripped(name: str) -> Make:
    return lambda value: Value(f"{name}({of_kind(value, STRING)}, ' ')", STRING)


def _substring(value: Value, start: Value, *length: Value) -> Value:
    if len(length) > 1:
        raise TypeError
    parts = [*places_of(start, least=1), *places_of(*length, least=0)]
    return Value(f"substring({of_kind(value, STRING)}, {', '.join(parts)})", STRING)


def _end(name: str) -> Make:
    return lambda value, number: Value(f"{name}({of_kind(value, STRING)}, {places_of(number, least=0)[0]})", STRING)


def _found(name: str) -> Make:
    return lambda value, part: Value(f"{name}({of_kind(value, STRING)}, {of_kind(part, STRING)})", BOOLEAN)


def _replace(value: Value, old: Value, new: Value) -> Value:
    if not old.literal:
        raise NotTranslatedError("replace of what is no plain text")
    return Value(f"replace({of_kind(value, STRING)}, {old.sql}, {of_kind(new, STRING)})", STRING)


def _concat(*values: Value) -> Value:
    if not values:
        raise TypeError
    return Value("(" + " || ".join(of_kind(each, STRING) for each in values) + ")", STRING)


# Numbers


def _round(value: Value, *places: Value) -> Value:
    if len(places) > 1:
        raise TypeError
    number = int(places_of(*places, least=0)[0]) if places else 0
    if value.kind.is_integer:
        return replace(value, digits=None)  # of a call, Spark does not count the digits as of a number as written
    if value.kind == DOUBLE:  # Spark rounds the shortest decimal text that is this number
        rounded = cast(cast(value.sql, STRING), Kind("decimal", 38, min(number, 20)))
        plain = f"isfinite({value.sql}) AND abs({value.sql}) < 1e15 AND {number} <= 20"
        said = cast(cast(rounded, STRING), DOUBLE)
        return Value(f"(CASE WHEN {plain} THEN {said} WHEN {value.sql} IS NULL THEN NULL ELSE {ASK} END)", DOUBLE)
    kind = value.kind
    if kind.name != "decimal":
        raise NotTranslatedError(f"round of {kind}")
    scale = min(kind.scale, number)
    made = decimal(min(kind.precision - kind.scale + 1 + scale, 38), scale)
    return Value(cast(value.sql, made), made)


def _to_whole(name: str) -> Make:
    def make(value: Value) -> Value:
        kind = value.kind
        if kind.name == "decimal":
            more = 1 if kind.scale else 0  # the digit that 9.5 gains; what is whole already keeps its type
            made = decimal(min(kind.precision - kind.scale + more, 38), 0)
            return Value(cast(f"{name}({value.sql})", made), made)
        if kind != DOUBLE:
            raise NotTranslatedError(f"{name} of {kind}")
        return Value(cast(f"{name}({value.sql})", LONG), LONG)

    return make


def _abs(value: Value) -> Value:
    if not value.kind.is_number:
        raise NotTranslatedError(f"abs of {value.kind}")
    return Value(turned(value, f"abs({value.sql})"), value.kind)


# Choices


def _widest(values: Sequence[Value]) -> list[Value]:
    kind = reduce(wider, (each.kind for each in values))
    return [brought(each, kind) for each in values]


def _first_of(name: str, least: int, most: float = math.inf) -> Make:
    def make(*values: Value) -> Value:
        if not least <= len(values) <= most:  # DuckDB takes any number
            raise TypeError
        same = _widest(values)
        if name != "coalesce" and not same[0].kind.is_number and same[0].kind not in (STRING, DATE, TIMESTAMP):
            raise NotTranslatedError(f"{name} of {same[0].kind}")
        return Value(f"{name}({', '.join(each.sql for each in same)})", same[0].kind)

    return make


def _nullif(one: Value, other: Value) -> Value:
    a, b = alike(one, other)
    if not a.kind.is_number and a.kind not in (STRING, DATE, TIMESTAMP, BOOLEAN):
        raise NotTranslatedError(f"nullif of {a.kind}")
    return Value(f"(CASE WHEN {a.sql} = {b.sql} THEN NULL ELSE {one.sql} END)", one.kind)


# Nested values


def _size(value: Value) -> Value:
    if value.kind.name not in ("array", "map"):
        raise NotTranslatedError(f"the size of {value.kind}")
    name = "len" if value.kind.name == "array" else "cardinality"
    return Value(cast(f"{name}({value.sql})", INTEGER), INTEGER)


def _get(value: Value, at: Value) -> Value:
    if value.kind.name != "array" or at.kind != INTEGER:
        raise NotTranslatedError(f"get of {value.kind}")
    return Value(f"(CASE WHEN {at.sql} >= 0 THEN {value.sql}[{at.sql} + 1] END)", value.kind.parts[0][1])


PLAIN: dict[str, Make] = {
    **{name: _cased("lower") for name in ("lower", "lcase")},
    **{name: _cased("upper") for name in ("upper", "ucase")},
    **{name: _stripped(name) for name in ("trim", "ltrim", "rtrim")},
    **{
        name: lambda value: Value(cast(f"length({of_kind(value, STRING)})", INTEGER), INTEGER)
        for name in ("length", "len", "char_length", "character_length")
    },
    **dict.fromkeys(("substring", "substr"), _substring),
    "left": _end("left"),
    "right": _end("right"),
    "startswith": _found("starts_with"),
    "endswith": _found("ends_with"),
    "contains": _found("contains"),
    "replace": _replace,
    "concat": _concat,
    "round": _round,
    "floor": _to_whole("floor"),
    "ceil": _to_whole("ceil"),
    "ceiling": _to_whole("ceil"),
    "abs": _abs,
    "coalesce": _first_of("coalesce", 1),
    **dict.fromkeys(("nvl", "ifnull"), _first_of("coalesce", 2, 2)),
    **{name: _first_of(name, 2) for name in ("greatest", "least")},
    "nullif": _nullif,
    **DATES,
    **dict.fromkeys(("size", "cardinality"), _size),
    "get": _get,
}
_WRITTEN = {"floor": "FLOOR", "ceil": "CEIL"}  # in the names of columns that Spark gives
# Spark calls their columns otherwise than they are written.
_OTHERWISE_NAMED = {
    "bool_and", "bool_or", "ceiling", "count_if", "date_diff", "date_trunc", "dateadd", "every", "get", "ifnull",
    "left", "mean", "nullif", "nvl", "right", "some", "std", "substr", "to_date", "trunc",
}  # fmt: skip
