"""Expressions of a checked query in DuckDB's SQL: each form whose meaning is the same, or can be made the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from lakehouse.query.arithmetic import arithmetic, division, negated, shifted, whole_division
from lakehouse.query.dates import extracted
from lakehouse.query.functions import called, is_aggregate, over
from lakehouse.query.kinds import (
    BOOLEAN,
    DATE,
    INTEGER,
    NULL,
    STRING,
    of_sql,
    text,
    wider,
)
from lakehouse.query.literals import is_number, literal, number
from lakehouse.query.precedence import check_order
from lakehouse.query.scope import Scope
from lakehouse.query.sql_text import NotTranslatedError
from lakehouse.query.values import ASK, Value, brought, compared, converted, named, written
from lakehouse.query.windows import window


def translated(node: exp.Expr, scope: Scope) -> Value:
    """An expression.

    Raises:
        NotTranslatedError: where DuckDB would answer something else, or nobody has shown that it does not.
    """
    way = _NODES.get(type(node))
    if way is None:
        raise NotTranslatedError(written(node))
    check_order(node)
    return way(node, scope)


def condition(node: exp.Expr, scope: Scope) -> str:
    """An expression that is true, false or null, and not the bare null: Spark refuses `CASE WHEN NULL`."""
    made = _condition(node, scope)
    if made.kind == NULL:
        raise NotTranslatedError("null as a condition")
    return made.sql


def kept(node: exp.Expr, scope: Scope) -> str:
    """A condition that rows are kept by, as WHERE has it: only there, a subquery that has no answer is one of no.

    Elsewhere Spark says no where the standard says that it is not known.
    """
    if isinstance(node, exp.Paren):
        return kept(node.this, scope)
    if isinstance(node, exp.And):
        return f"({kept(node.this, scope)} AND {kept(node.expression, scope)})"
    inner = node.this if isinstance(node, exp.Not) else node
    while isinstance(inner, exp.Paren):
        inner = inner.this
    if isinstance(inner, exp.Exists):
        made = f"EXISTS ({scope.query(inner.this).sql})"
    elif isinstance(inner, exp.In) and inner.args.get("query"):
        made = _among(inner, scope)
    else:
        return condition(node, scope)
    return f"(NOT {made})" if inner is not node else f"({made})"


def _among(node: exp.Expr, scope: Scope) -> str:
    """`IN (SELECT …)`."""
    check_order(node)
    made = scope.query(node.args["query"])
    if len(made.columns) != 1:
        raise NotTranslatedError(written(node))
    here, there = compared(translated(node.this, scope), Value("q.c0", made.columns[0][1]))
    return f"{here.sql} IN (SELECT {there.sql} FROM ({made.sql}) AS q)"


def _condition(node: exp.Expr, scope: Scope) -> Value:
    made = translated(node, scope)
    if made.kind not in (BOOLEAN, NULL):
        raise NotTranslatedError(f"{made.kind} as a condition")
    return made


def _boolean(node: exp.Expr, _: Scope) -> Value:
    word = "true" if node.this else "false"
    return Value(word.upper(), BOOLEAN, word)


def _column(node: exp.Expr, scope: Scope) -> Value:
    assert isinstance(node, exp.Column)
    return scope.column([part.name for part in node.parts])


def _dot(node: exp.Expr, scope: Scope) -> Value:
    inner = translated(node.this, scope)
    if not isinstance(node.expression, exp.Identifier):
        raise NotTranslatedError(written(node))
    return scope.field(inner, node.expression.name)


def _bracket(node: exp.Expr, scope: Scope) -> Value:
    inner = translated(node.this, scope)
    (at,) = [translated(each, scope) for each in node.expressions]
    # A key that is not in the map gives null in both engines; a place outside of an array is an error in Spark alone.
    if inner.kind.name == "map" and inner.kind.parts[0][1] == at.kind:
        return Value(f"{inner.sql}[{at.sql}]", inner.kind.parts[1][1], named("{}[{}]", inner, at))
    if inner.kind.name == "array" and at.kind == INTEGER:
        # Spark counts from 0 and fails outside; DuckDB counts from 1, from the end where negative, and gives null.
        within = f"{at.sql} >= 0 AND {at.sql} < len({inner.sql})"
        found = (
            f"CASE WHEN {within} THEN {inner.sql}[{at.sql} + 1] WHEN {inner.sql} IS NULL OR {at.sql} IS NULL THEN NULL"
        )
        return Value(f"({found} ELSE {ASK} END)", inner.kind.parts[0][1], named("{}[{}]", inner, at))
    raise NotTranslatedError(written(node))


def _joined(node: exp.Expr, scope: Scope) -> Value:
    word = "AND" if isinstance(node, exp.And) else "OR"
    one, other = _condition(node.this, scope), _condition(node.expression, scope)
    return Value(f"({one.sql} {word} {other.sql})", BOOLEAN, named(f"({{}} {word} {{}})", one, other))


def _not(node: exp.Expr, scope: Scope) -> Value:
    if isinstance(node.this, exp.Is) and isinstance(node.this.expression, exp.Null):
        inner = translated(node.this.this, scope)
        return Value(f"({inner.sql} IS NOT NULL)", BOOLEAN, named("(NOT ({} IS NULL))", inner))
    inner = _condition(node.this, scope)
    return Value(f"(NOT {inner.sql})", BOOLEAN, named("(NOT {})", inner))


def _is(node: exp.Expr, scope: Scope) -> Value:
    inner = translated(node.this, scope)
    if isinstance(node.expression, exp.Null):
        return Value(f"({inner.sql} IS NULL)", BOOLEAN, named("({} IS NULL)", inner))
    if isinstance(node.expression, exp.Boolean) and inner.kind == BOOLEAN:
        return Value(f"({inner.sql} IS NOT DISTINCT FROM {translated(node.expression, scope).sql})", BOOLEAN)
    raise NotTranslatedError(written(node))


_SIGNS: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<="}


def _comparison(node: exp.Expr, scope: Scope) -> Value:
    one, other = translated(node.this, scope), translated(node.expression, scope)
    a, b = compared(one, other)
    if isinstance(node, exp.NullSafeEQ):
        return Value(f"({a.sql} IS NOT DISTINCT FROM {b.sql})", BOOLEAN, named("({} <=> {})", one, other))
    sign = _SIGNS[type(node)]
    # Spark's parser makes <> of NOT and =, and the column's name shows it.
    form = "(NOT ({} = {}))" if sign == "<>" else f"({{}} {sign} {{}})"
    return Value(f"({a.sql} {sign} {b.sql})", BOOLEAN, named(form, one, other))


def _between(node: exp.Expr, scope: Scope) -> Value:
    made = translated(node.this, scope)
    # Each bound is compared in a type of its own, as Spark writes BETWEEN out.
    low, high = (compared(made, translated(node.args[each], scope)) for each in ("low", "high"))
    return Value(f"({low[0].sql} >= {low[1].sql} AND {high[0].sql} <= {high[1].sql})", BOOLEAN)


def _in(node: exp.Expr, scope: Scope) -> Value:
    one = translated(node.this, scope)
    if node.args.get("query"):
        raise NotTranslatedError("IN (SELECT …) within another condition")
    listed = [translated(each, scope) for each in node.expressions]
    pairs = [compared(one, each) for each in listed]
    # Spark brings the whole list to one type, which never changes what is equal to what, decimals and doubles aside.
    if len({a.kind for a, _ in pairs}) > 1:
        raise NotTranslatedError("IN with values of different types")
    name = named("({} IN (" + ", ".join(["{}"] * len(listed)) + "))", one, *listed)
    return Value(f"({pairs[0][0].sql} IN ({', '.join(b.sql for _, b in pairs)}))", BOOLEAN, name)


def _subquery(node: exp.Expr, scope: Scope) -> Value:
    made = scope.query(node)
    if len(made.columns) != 1:
        raise NotTranslatedError(written(node))
    return Value(f"({made.sql})", made.columns[0][1])


def _like(node: exp.Expr, scope: Scope) -> Value:
    escape, likes = None, node
    if isinstance(node, exp.Escape):
        likes, escape = node.this, node.expression.name
    one, pattern = translated(likes.this, scope), translated(likes.expression, scope)
    if not isinstance(likes, exp.Like) or one.kind != STRING or not _is_read_alike(pattern.literal, escape):
        raise NotTranslatedError(written(node))
    ending = f" ESCAPE {text(escape)}" if escape is not None else ""
    if likes.args.get("negate"):
        return Value(f"({one.sql} NOT LIKE {pattern.sql}{ending})", BOOLEAN)
    name = None if ending else named("{} LIKE {}", one, pattern)
    return Value(f"({one.sql} LIKE {pattern.sql}{ending})", BOOLEAN, name)


def _is_read_alike(pattern: str | None, escape: str | None) -> bool:
    """Whether a pattern is known, has no backslash, and its escape stands only before what it is for."""
    if pattern is None or "\\" in pattern:
        return False
    return escape is None or (len(escape) == 1 and not re.search(re.escape(escape) + r"(?![%_])", pattern))


def _negated(node: exp.Expr, scope: Scope) -> Value:
    return number(f"-{node.this.name}") if is_number(node.this) else negated(node, translated(node.this, scope))


def _of_two(make: Callable[[exp.Expr, Value, Value], Value]) -> Callable[[exp.Expr, Scope], Value]:
    return lambda node, scope: make(node, translated(node.this, scope), translated(node.expression, scope))


def _added(node: exp.Expr, scope: Scope) -> Value:
    if isinstance(node.expression, exp.Interval):
        return shifted(node, translated(node.this, scope))
    return arithmetic(node, translated(node.this, scope), translated(node.expression, scope))


def _concatenated(node: exp.Expr, scope: Scope) -> Value:
    one, other = translated(node.this, scope), translated(node.expression, scope)
    if one.kind != STRING or other.kind != STRING:
        raise NotTranslatedError(written(node))
    return Value(f"({one.sql} || {other.sql})", STRING, named("concat({}, {})", one, other))


def _case(node: exp.Expr, scope: Scope) -> Value:
    subject = translated(node.this, scope) if node.this is not None else None
    whens, values = [], []
    for branch in node.args["ifs"]:
        if subject is None:
            whens.append(condition(branch.this, scope))
        else:
            a, b = compared(subject, translated(branch.this, scope))
            whens.append(f"{a.sql} = {b.sql}")
        values.append(translated(branch.args["true"], scope))
    return _chosen(whens, values, node.args.get("default"), scope)


def _if(node: exp.Expr, scope: Scope) -> Value:
    yes = translated(node.args["true"], scope)
    return _chosen([condition(node.this, scope)], [yes], node.args.get("false"), scope)


def _chosen(whens: list[str], values: list[Value], default: exp.Expr | None, scope: Scope) -> Value:
    last = translated(default, scope) if default is not None else Value("NULL", NULL)
    kind = last.kind
    for each in values:
        kind = wider(kind, each.kind)
    pairs = " ".join(f"WHEN {when} THEN {brought(each, kind).sql}" for when, each in zip(whens, values, strict=True))
    return Value(f"(CASE {pairs} ELSE {brought(last, kind).sql} END)", kind)


def _cast(node: exp.Expr, scope: Scope) -> Value:
    inner, kind = translated(node.this, scope), of_sql(node.args["to"])
    trying = bool(node.args.get("safe"))
    name = None if trying else named(f"CAST({{}} AS {str(kind).upper()})", inner)
    return Value(converted(inner, kind, trying=trying), kind, name)


def _call(node: exp.Expr, scope: Scope) -> Value:
    return over(called(node, lambda each: translated(each, scope)), "")


def _extract(node: exp.Expr, scope: Scope) -> Value:
    return replace(extracted(node.this.name.lower(), translated(node.expression, scope)), name=None)


def _substring(node: exp.Expr, scope: Scope) -> Value:
    # The parser has a grammar of its own for these two; what they compute is in the list of functions.
    arguments = [node.this, node.args.get("start"), node.args.get("length")]
    return _call(exp.Anonymous(this="substring", expressions=[each for each in arguments if each is not None]), scope)


def _trim(node: exp.Expr, scope: Scope) -> Value:
    if node.expression is not None or node.args.get("position"):
        raise NotTranslatedError(written(node))
    return _call(exp.Anonymous(this="trim", expressions=[node.this]), scope)


def _today(_: exp.Expr, scope: Scope) -> Value:
    return Value(f"DATE '{scope.today.isoformat()}'", DATE, "current_date()")


def _filtered(node: exp.Expr, scope: Scope) -> Value:
    made = called(node.this, lambda each: translated(each, scope))
    if not is_aggregate(node.this):
        raise NotTranslatedError(written(node))
    return replace(over(made, f" FILTER (WHERE {condition(node.expression.this, scope)})"), name=None)


def _window(node: exp.Expr, scope: Scope) -> Value:
    return window(node, scope, translated)


_NODES: dict[type[exp.Expr], Callable[[exp.Expr, Scope], Value]] = {
    exp.Literal: lambda node, _scope: literal(node),
    exp.Boolean: _boolean,
    exp.Null: lambda _node, _scope: Value("NULL", NULL, "NULL"),
    exp.Column: _column,
    exp.Dot: _dot,
    exp.Bracket: _bracket,
    exp.Paren: lambda node, scope: translated(node.this, scope),
    **dict.fromkeys((exp.And, exp.Or), _joined),
    exp.Not: _not,
    exp.Is: _is,
    **dict.fromkeys((*_SIGNS, exp.NullSafeEQ), _comparison),
    exp.Between: _between,
    exp.In: _in,
    exp.Subquery: _subquery,
    **dict.fromkeys((exp.Like, exp.Escape), _like),
    exp.Neg: _negated,
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), _added),
    exp.Div: _of_two(division),
    **dict.fromkeys((exp.IntDiv, exp.Mod), _of_two(whole_division)),
    exp.DPipe: _concatenated,
    exp.Case: _case,
    exp.If: _if,
    **dict.fromkeys((exp.Cast, exp.TryCast), _cast),
    exp.Anonymous: _call,
    exp.Extract: _extract,
    exp.Substring: _substring,
    exp.Trim: _trim,
    exp.CurrentDate: _today,
    exp.Filter: _filtered,
    exp.Window: _window,
}
