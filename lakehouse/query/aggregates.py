"""Functions that make one value of many rows, whose meaning in DuckDB is Spark's, or is made so."""

from __future__ import annotations

from lakehouse.query.kinds import BOOLEAN, DATE, DOUBLE, LONG, STRING, TIMESTAMP, Kind, decimal
from lakehouse.query.sql_text import NotTranslatedError
from lakehouse.query.values import Make, Value, brought, cast, of_kind, quotient

MARK = "\0"  # where `FILTER` and `OVER` go in a call; no other text has it


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
        return Value(f"{name}({distinct}{of_kind(value, BOOLEAN)}){MARK}", BOOLEAN)

    return make


def _count_if(value: Value, *, distinct: str) -> Value:
    return Value(f"count({distinct}CASE WHEN {of_kind(value, BOOLEAN)} THEN 1 END){MARK}", LONG)


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
