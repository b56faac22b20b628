"""Functions whose meaning in DuckDB is Spark's, or is made so; whatever is not here, Spark computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

from sqlglot import exp

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
    text,
    wider,
)
from lakehouse.query.sql_text import NotTranslatedError
from lakehouse.query.values import ASK, Value, alike, brought, cast, quotient

MARK = "\0"  # where `FILTER` and `OVER` go in a call of an aggregate; no other text has it
Make = Callable[..., Value]


def over(value: Value, ending: str) -> Value:
    """A call with what follows its parentheses."""
    return replace(value, sql=value.sql.replace(MARK, ending))


def is_aggregate(node: exp.Expr) -> bool:
    """Whether it makes one value of many rows."""
    return isinstance(node, exp.Anonymous) and str(node.name).lower() in AGGREGATES


def called(node: exp.Expr, translate: Callable[[exp.Expr], Value]) -> Value:
    """A call, with `MARK` behind the parentheses of an aggregate.

    Raises:
        NotTranslatedError: with the function's name.
    """
    name = str(node.name).lower() if isinstance(node, exp.Anonymous) else ""
    make = AGGREGATES.get(name) or PLAIN.get(name)
    if make is None:
        raise NotTranslatedError(f"the function {name}" if name else node.sql("spark"))
    nodes: Sequence[exp.Expr] = node.expressions
    distinct = ""
    if len(nodes) == 1 and isinstance(nodes[0], exp.Distinct):
        nodes, distinct = nodes[0].expressions, "DISTINCT "
    if name == "count" and not distinct and len(nodes) == 1 and isinstance(nodes[0], exp.Star):
        return Value(f"count(*){MARK}", LONG, "count(1)")
    values = [translate(each) for each in nodes]
    if distinct and (name not in ("count", "sum", "avg") or any(each.kind == DOUBLE for each in values)):
        raise NotTranslatedError(f"{name}(DISTINCT …) of these values")
    try:
        made = make(*values, distinct=distinct) if name in AGGREGATES else make(*values)
    except TypeError:  # another number of arguments
        raise NotTranslatedError(f"{name} with {len(values)} arguments") from None
    return replace(made, name=_name(name, [each.name for each in values], distinct))


def _name(function: str, arguments: Sequence[str | None], distinct: str) -> str | None:
    """What Spark calls a column of the call."""
    if None in arguments or function in _OTHERWISE_NAMED or (function == "substring" and len(arguments) < 3):  # noqa: PLR2004
        return None
    zero = ["0"] if function == "round" and len(arguments) == 1 else []
    return f"{function}({distinct}{', '.join(map(str, [*arguments, *zero]))})"


def _of(value: Value, *kinds: Kind) -> str:
    if value.kind not in kinds:
        raise NotTranslatedError(f"a function of {value.kind}")
    return value.sql


# Aggregates


def _count(*values: Value, distinct: str) -> Value:
    if not values:
        raise TypeError
    if len(values) == 1:
        return Value(f"count({distinct}{values[0].sql}){MARK}", LONG)
    whole = " AND ".join(f"{each.sql} IS NOT NULL" for each in values)
    row = f"CASE WHEN {whole} THEN ROW({', '.join(each.sql for each in values)}) END"
    return Value(f"count({distinct}{row}){MARK}", LONG)


def _number(value: Value) -> Value:
    if not value.kind.is_number:
        raise NotTranslatedError(f"a sum of {value.kind}")
    return value


def _sum(value: Value, *, distinct: str) -> Value:
    kind = _number(value).kind
    if kind.name == "decimal":
        made = Kind("decimal", min(kind.precision + 10, 38), kind.scale)
    else:
        made = DOUBLE if kind == DOUBLE else LONG
    return Value(cast(f"sum({distinct}{value.sql}){MARK}", made), made)


def _avg(value: Value, *, distinct: str) -> Value:
    kind = _number(value).kind
    if kind.name != "decimal":
        return Value(f"avg({distinct}{brought(value, DOUBLE).sql}){MARK}", DOUBLE)
    total = _sum(value, distinct=distinct)
    number = Value(f"CAST(count({distinct}{value.sql}){MARK} AS DECIMAL(20, 0))", Kind("decimal", 20, 0))
    made = decimal(kind.precision + 4, kind.scale + 4)
    whole = quotient(total, number, made)
    return Value(f"(CASE WHEN {number.sql} = 0 THEN NULL ELSE {whole} END)", made)


def _extreme(name: str) -> Make:
    def make(value: Value, *, distinct: str) -> Value:
        if not value.kind.is_number and value.kind not in (STRING, DATE, TIMESTAMP, BOOLEAN):
            raise NotTranslatedError(f"{name} of {value.kind}")
        return Value(f"{name}({distinct}{value.sql}){MARK}", value.kind)

    return make


def _spread(name: str) -> Make:
    def make(value: Value, *, distinct: str) -> Value:
        made = brought(_number(value), DOUBLE)
        return Value(f"{name}({distinct}{made.sql}){MARK}", DOUBLE)

    return make


def _every(name: str) -> Make:
    def make(value: Value, *, distinct: str) -> Value:
        return Value(f"{name}({distinct}{_of(value, BOOLEAN)}){MARK}", BOOLEAN)

    return make


def _count_if(value: Value, *, distinct: str) -> Value:
    return Value(f"count({distinct}CASE WHEN {_of(value, BOOLEAN)} THEN 1 END){MARK}", LONG)


AGGREGATES: dict[str, Make] = {
    "count": _count,
    "sum": _sum,
    "avg": _avg,
    "mean": _avg,
    "min": _extreme("min"),
    "max": _extreme("max"),
    **{name: _spread("stddev_samp") for name in ("std", "stddev", "stddev_samp")},
    **{name: _spread("var_samp") for name in ("variance", "var_samp")},
    "stddev_pop": _spread("stddev_pop"),
    "var_pop": _spread("var_pop"),
    **{name: _every("bool_and") for name in ("bool_and", "every")},
    **{name: _every("bool_or") for name in ("bool_or", "some")},
    "count_if": _count_if,
}


# Texts


def _ascii(value: Value, made: str) -> Value:
    """Letters outside ASCII have other rules in Java."""
    return Value(f"(CASE WHEN strlen({value.sql}) > length({value.sql}) THEN {ASK} ELSE {made} END)", STRING)


def _cased(name: str) -> Make:
    return lambda value: _ascii(value, f"{name}({_of(value, STRING)})")


def _stripped(name: str) -> Make:
    return lambda value: Value(f"{name}({_of(value, STRING)}, ' ')", STRING)


def _places(*numbers: Value, least: int) -> list[str]:
    """Literal whole numbers, none below `least`."""
    if any(each.digits is None or int(each.name or -1) < least for each in numbers):
        raise NotTranslatedError("a place in a text that is no plain number")
    return [str(each.name) for each in numbers]


def _substring(value: Value, start: Value, *length: Value) -> Value:
    if len(length) > 1:
        raise TypeError
    parts = [*_places(start, least=1), *_places(*length, least=0)]
    return Value(f"substring({_of(value, STRING)}, {', '.join(parts)})", STRING)


def _end(name: str) -> Make:
    return lambda value, number: Value(f"{name}({_of(value, STRING)}, {_places(number, least=0)[0]})", STRING)


def _found(name: str) -> Make:
    return lambda value, part: Value(f"{name}({_of(value, STRING)}, {_of(part, STRING)})", BOOLEAN)


def _replace(value: Value, old: Value, new: Value) -> Value:
    if not old.literal:
        raise NotTranslatedError("replace of what is no plain text")
    return Value(f"replace({_of(value, STRING)}, {old.sql}, {_of(new, STRING)})", STRING)


def _concat(*values: Value) -> Value:
    if not values:
        raise TypeError
    return Value("(" + " || ".join(_of(each, STRING) for each in values) + ")", STRING)


# Numbers


def _round(value: Value, *places: Value) -> Value:
    if len(places) > 1:
        raise TypeError
    number = int(_places(*places, least=0)[0]) if places else 0
    if value.kind.is_integer:
        return value
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
            made = decimal(min(kind.precision - kind.scale + 1, 38), 0)
            return Value(cast(f"{name}({value.sql})", made), made)
        if kind != DOUBLE:
            raise NotTranslatedError(f"{name} of {kind}")
        return Value(cast(f"{name}({value.sql})", LONG), LONG)

    return make


def _abs(value: Value) -> Value:
    return Value(cast(f"abs({_number(value).sql})", value.kind), value.kind)


# Choices


def _widest(values: Sequence[Value]) -> list[Value]:
    if not values:
        raise TypeError
    kind = reduce(wider, (each.kind for each in values))
    return [brought(each, kind) for each in values]


def _first_of(name: str) -> Make:
    def make(*values: Value) -> Value:
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


# Dates and times

_DATE_PARTS = {
    "year": "year({})", "quarter": "quarter({})", "month": "month({})", "day": "day({})", "dayofmonth": "day({})",
    "dayofyear": "dayofyear({})", "weekofyear": "weekofyear({})", "week": "weekofyear({})",
    "dayofweek": "dayofweek({}) + 1", "weekday": "isodow({}) - 1",
}  # fmt: skip
_TIME_PARTS = {name: f"{name}({{}})" for name in ("hour", "minute", "second")}
_TRUNCATED = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"), "quarter": "quarter",
    **dict.fromkeys(("month", "mon", "mm"), "month"), "week": "week", "day": "day", "dd": "day",
    "hour": "hour", "minute": "minute", "second": "second",
}  # fmt: skip


def _part(form: str) -> Make:
    def make(value: Value) -> Value:
        kinds = (TIMESTAMP,) if form in _TIME_PARTS.values() else (DATE, TIMESTAMP)
        return Value(cast(form.format(_of(value, *kinds)), INTEGER), INTEGER)

    return make


def extracted(part: str, value: Value) -> Value:
    """`EXTRACT(part FROM value)`."""
    form = _DATE_PARTS.get(part) or _TIME_PARTS.get(part)
    if form is None or part in ("second", "weekofyear", "weekday", "dayofmonth"):
        raise NotTranslatedError(f"EXTRACT({part.upper()} FROM …)")
    return _part(form)(value)


def _unit(value: Value, *, of_days: bool) -> str:
    found = _TRUNCATED.get((value.literal or "").lower())
    if found is None or (of_days and found in ("day", "hour", "minute", "second")):
        raise NotTranslatedError(f"truncation to {value.literal!r}")
    return text(found)


def _date_trunc(unit: Value, value: Value) -> Value:
    moment = cast(_of(value, DATE, TIMESTAMP), TIMESTAMP)
    return Value(f"date_trunc({_unit(unit, of_days=False)}, {moment})", TIMESTAMP)


def _trunc(value: Value, unit: Value) -> Value:
    return Value(cast(f"date_trunc({_unit(unit, of_days=True)}, {_of(value, DATE)})", DATE), DATE)


def _days_on(sign: str) -> Make:
    return lambda value, days: Value(f"({_of(value, DATE)} {sign} {_of(days, INTEGER)})", DATE)


def _day_of(value: Value) -> Value:
    return Value(cast(_of(value, DATE, TIMESTAMP), DATE), DATE)


def _datediff(end: Value, start: Value) -> Value:
    return Value(cast(f"{_day_of(end).sql} - {_day_of(start).sql}", INTEGER), INTEGER)


def _add_months(value: Value, months: Value) -> Value:
    (number,) = _places(months, least=0)
    return Value(cast(f"{_of(value, DATE)} + INTERVAL {number} MONTH", DATE), DATE)


_TOKENS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


def _date_format(value: Value, pattern: Value) -> Value:
    made, left = "", pattern.literal or "?"
    while left:
        token = next((each for each in _TOKENS if left.startswith(each)), None)
        if token is None and left[0] not in "-/: .":
            raise NotTranslatedError(f"date_format with {pattern.literal!r}")
        size = len(token) if token else 1
        if token and left[size:].startswith(token[0]):  # `MMM` is another token
            raise NotTranslatedError(f"date_format with {pattern.literal!r}")
        made += _TOKENS[token] if token else left[0]
        left = left[size:]
    moment = cast(_of(value, DATE, TIMESTAMP), TIMESTAMP)
    ordinary = f"year({moment}) BETWEEN 1000 AND 9999"
    said = f"strftime({moment}, {text(made)})"
    return Value(f"(CASE WHEN {ordinary} THEN {said} WHEN {moment} IS NULL THEN NULL ELSE {ASK} END)", STRING)


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
        name: lambda value: Value(cast(f"length({_of(value, STRING)})", INTEGER), INTEGER)
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
    **{name: _first_of("coalesce") for name in ("coalesce", "nvl", "ifnull")},
    **{name: _first_of(name) for name in ("greatest", "least")},
    "nullif": _nullif,
    **{name: _part(form) for name, form in {**_DATE_PARTS, **_TIME_PARTS}.items() if name != "week"},
    "date_trunc": _date_trunc,
    "trunc": _trunc,
    "date_add": _days_on("+"),
    "dateadd": _days_on("+"),
    "date_sub": _days_on("-"),
    "datediff": _datediff,
    "date_diff": _datediff,
    "add_months": _add_months,
    "last_day": lambda value: Value(f"last_day({_of(value, DATE)})", DATE),
    "to_date": _day_of,
    "date_format": _date_format,
    **dict.fromkeys(("size", "cardinality"), _size),
    "get": _get,
}
# Spark calls their columns otherwise than they are written.
_OTHERWISE_NAMED = {
    "bool_and", "bool_or", "ceiling", "count_if", "date_diff", "date_trunc", "dateadd", "every", "get", "ifnull",
    "left", "mean", "nullif", "nvl", "right", "some", "std", "substr", "to_date", "trunc",
}  # fmt: skip
