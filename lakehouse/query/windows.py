"""Window functions and orders in DuckDB's SQL."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from sqlglot import exp

from lakehouse.query.aggregates import MARK
from lakehouse.query.functions import called, function_name, is_aggregate, over
from lakehouse.query.kinds import BOOLEAN, DATE, INTEGER, STRING, TIMESTAMP, wider
from lakehouse.query.scope import Scope
from lakehouse.query.sql_text import NotTranslatedError
from lakehouse.query.values import Value, brought, cast

Translate = Callable[[exp.Expr, Scope], Value]
_RANKS = {"row_number": 0, "rank": 0, "dense_rank": 0, "ntile": 1}  # arguments of each
_SIDES = {"preceding": "PRECEDING", "following": "FOLLOWING"}


def window(node: exp.Expr, scope: Scope, translate: Translate) -> Value:
    """A call with OVER.

    Args:
        node: the call, with what stands behind OVER.
        scope: the names that hold there.
        translate: makes a value of an argument or a part of the order.

    Raises:
        NotTranslatedError: a function or a frame that the engines do not have alike.
    """
    made = _function(node.this, scope, translate)
    ranked = "" if is_aggregate(node.this) else function_name(node.this)
    if alias := node.args.get("alias"):
        named = scope.windows.get(alias.name)  # w and W are two windows to Spark
        if named is None or any(node.args.get(each) for each in ("partition_by", "order", "spec")):
            raise NotTranslatedError(f"the window {alias.name}")
        node = named
    if ranked and (not node.args.get("order") or node.args.get("spec")):
        raise NotTranslatedError(f"{ranked} without ORDER BY or with a frame")
    parts = []
    if by := node.args.get("partition_by"):
        parts.append(f"PARTITION BY {', '.join(grouped(translate(each, scope)).sql for each in by)}")
    if order := node.args.get("order"):
        parts.append(f"ORDER BY {', '.join(ordered(each, translate(each.this, scope)) for each in order.expressions)}")
    if spec := node.args.get("spec"):
        parts.append(_frame(spec, in_order=bool(node.args.get("order"))))
    return Value(over(made, f" OVER ({' '.join(parts)})").sql, made.kind)


def _function(node: exp.Expr, scope: Scope, translate: Translate) -> Value:
    if is_aggregate(node):
        if any(isinstance(each, exp.Distinct) for each in node.expressions):
            raise NotTranslatedError("DISTINCT in a window")
        return called(node, lambda each: translate(each, scope))
    name = function_name(node)
    values = [translate(each, scope) for each in node.expressions] if name else []
    make = _RANKED_OR_BESIDE.get(name)
    made = make(name, values) if make else None
    if made is None:
        raise NotTranslatedError(f"{name or type(node).__name__.upper()} OVER")
    return made


def _rank(name: str, values: Sequence[Value]) -> Value | None:
    """A row's place among the others."""
    if len(values) != _RANKS[name] or not all(each.digits and each.kind == INTEGER for each in values):
        return None
    return Value(cast(f"{name}({', '.join(each.sql for each in values)}){MARK}", INTEGER), INTEGER)


def _beside(name: str, values: Sequence[Value]) -> Value | None:
    """A value of a row some rows away, and what stands in for one that is not there."""
    if len(values) not in (1, 2, 3) or not all(each.digits and each.kind == INTEGER for each in values[1:2]):
        return None
    value, distance, default = values[0], values[1:2], values[2:]
    # Spark keeps the type of the value, whatever stands in for it; DuckDB would widen it.
    if any(wider(each.kind, value.kind) != value.kind for each in default):
        return None
    given = [value, *distance, *(brought(each, value.kind) for each in default)]
    return Value(f"{name}({', '.join(each.sql for each in given)}){MARK}", value.kind)


_RANKED_OR_BESIDE: dict[str, Callable[[str, Sequence[Value]], Value | None]] = {
    **dict.fromkeys(_RANKS, _rank),
    **dict.fromkeys(("lag", "lead"), _beside),
}


def _frame(spec: exp.Expr, *, in_order: bool) -> str:
    """A frame that Spark takes: DuckDB takes one that ends before it begins, too, and a range of rows in no order."""
    kind = str(spec.args.get("kind") or "").upper()
    if spec.args.get("exclude") or kind not in ("ROWS", "RANGE") or (kind == "RANGE" and not in_order):
        raise NotTranslatedError("this frame of a window")
    start, first = _bound(spec.args.get("start"), spec.args.get("start_side"), kind)
    end, last = _bound(spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side"), kind)
    if first > last:
        raise NotTranslatedError("this frame of a window")
    return f"{kind} BETWEEN {start} AND {end}"


def _bound(value: object, side: object, kind: str) -> tuple[str, float]:
    """One end of a frame, and how many rows it is away from the row itself."""
    if isinstance(value, str) and value.upper() == "CURRENT ROW":
        return "CURRENT ROW", 0
    word = _SIDES.get(str(side).lower())
    sign = -1 if word == "PRECEDING" else 1
    if word and isinstance(value, str) and value.upper() == "UNBOUNDED":
        return f"UNBOUNDED {word}", sign * math.inf
    if word and kind == "ROWS" and isinstance(value, exp.Literal) and value.name.isdigit():
        return f"{int(value.name)} {word}", sign * int(value.name)
    raise NotTranslatedError("this frame of a window")


def ordered(node: exp.Expr, made: Value) -> str:
    """One part of an ORDER BY; the parser has said where Spark puts nulls."""
    if not made.kind.is_number and made.kind not in (STRING, DATE, TIMESTAMP, BOOLEAN):
        raise NotTranslatedError(f"an order by {made.kind}")
    way = "DESC" if node.args.get("desc") else "ASC"
    return f"{made.sql} {way} NULLS {'FIRST' if node.args.get('nulls_first') else 'LAST'}"


def grouped(made: Value) -> Value:
    """A value that rows are brought together by."""
    if not groups([made.kind.name]):
        raise NotTranslatedError(f"groups by {made.kind}")
    return made


def groups(kinds: Iterable[str]) -> bool:
    """Whether both engines hold the same values of these types for equal; -0.0 and NaN are told apart by one."""
    plain = {"boolean", "byte", "short", "integer", "long", "decimal", "string", "date", "timestamp"}
    return set(kinds) <= plain
