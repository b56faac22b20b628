"""GROUP BY, ORDER BY, LIMIT and DISTINCT, whose names may mean columns of the tables or of the select list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from lakehouse.query.expressions import translated
from lakehouse.query.functions import is_aggregate
from lakehouse.query.literals import is_number
from lakehouse.query.scope import Named, Scope
from lakehouse.query.sql_text import NotTranslatedError
from lakehouse.query.values import Value
from lakehouse.query.windows import grouped, ordered


def only(node: exp.Expr, known: set[str]) -> None:
    """Go on where a node has nothing else than what is translated."""
    for name, value in node.args.items():
        if value and name not in known:
            raise NotTranslatedError(name.strip("_").upper())


def check_distinct(distinct: exp.Expr | None, chosen: Sequence[Named]) -> None:
    """Go on where equal rows are the same rows for both engines."""
    if distinct is not None:
        only(distinct, set())
        for each in chosen:
            grouped(each.value)


def aliases(chosen: Sequence[Named]) -> dict[str, Value]:
    """The select list's own names, those that it has once."""
    names = [each.name.lower() for each in chosen if each.name]
    return {each.name.lower(): each.value for each in chosen if each.name and names.count(each.name.lower()) == 1}


def grouping(node: exp.Select, scope: Scope, chosen: Sequence[Named]) -> str:
    """GROUP BY; empty where there is none.

    Args:
        node: the query.
        scope: the names that hold in it.
        chosen: its select list.

    Raises:
        NotTranslatedError: with the part that only Spark can answer.
    """
    group = node.args.get("group")
    if group is None:
        return ""
    starred = any(each.is_star for each in node.expressions)  # to Spark, its columns have no places
    made = (
        _without_aggregates(node, group, chosen)
        if group.args.get("all")
        else _keys(group, scope, chosen, starred=starred)
    )
    return f" GROUP BY {', '.join(grouped(each).sql for each in made)}" if made else ""


def _without_aggregates(node: exp.Select, group: exp.Expr, chosen: Sequence[Named]) -> list[Value]:
    """What GROUP BY ALL groups by: all of the select list that has no aggregate in it."""
    only(group, {"all"})
    if len(chosen) != len(node.expressions) or any(each.find(exp.Window, exp.Query) for each in node.expressions):
        raise NotTranslatedError("GROUP BY ALL with *, windows or subqueries")
    pairs = zip(chosen, node.expressions, strict=True)
    return [named.value for named, each in pairs if not any(map(is_aggregate, each.walk()))]


def _keys(group: exp.Expr, scope: Scope, chosen: Sequence[Named], *, starred: bool) -> list[Value]:
    """What GROUP BY names: columns, expressions, names and places of the select list."""
    only(group, {"expressions"})
    # A name that the tables have means their column, whatever the select list calls so.
    input_first = {name: value for name, value in aliases(chosen).items() if name not in scope.names()}
    scope = replace(scope, aliases=input_first)
    made = []
    for each in (one.unnest() for one in group.expressions):
        if _is_constant(each):
            if starred or not _is_whole(each) or not 1 <= int(each.name) <= len(chosen):
                raise NotTranslatedError(f"GROUP BY {each.sql('spark')}")
            made.append(chosen[int(each.name) - 1].value)
        else:
            made.append(translated(each, scope))
    return made


def ordering(node: exp.Expr, scope: Scope, values: Sequence[Value], chosen: Sequence[Named]) -> str:
    """ORDER BY, LIMIT and OFFSET.

    Args:
        node: the query.
        scope: the names that hold in its order.
        values: what else it may order by; none: columns of the result alone.
        chosen: its select list.

    Raises:
        NotTranslatedError: with the part that only Spark can answer.
    """
    sql = ""
    if (order := node.args.get("order")) is not None:
        only(order, {"expressions"})
        sql += f" ORDER BY {', '.join(_ordered(each, scope, values, chosen) for each in order.expressions)}"
    for name in ("limit", "offset"):
        if (clause := node.args.get(name)) is not None:
            number = clause.args.get("expression")
            if not isinstance(clause, exp.Limit | exp.Offset) or not _is_whole(number) or int(number.name) >= 2**31:
                raise NotTranslatedError(clause.sql("spark"))
            sql += f" {name.upper()} {int(number.name)}"
    return sql


def _ordered(each: exp.Expr, scope: Scope, values: Sequence[Value], chosen: Sequence[Named]) -> str:
    key = each.this.unnest()  # to Spark, a number in parentheses is one, too
    place = _place(key, chosen)
    if place is None and _is_constant(key):
        raise NotTranslatedError(f"ORDER BY {key.sql('spark')}")
    if place is not None:
        if not 0 <= place < len(chosen):
            raise NotTranslatedError(f"ORDER BY {key.name}")
        # By its place in DuckDB too: the expression might not be deterministic, or be one over groups.
        return ordered(each, replace(chosen[place].value, sql=str(place + 1)))
    if not values or isinstance(key, exp.Var):
        raise NotTranslatedError(f"ORDER BY {key.sql('spark')}")
    return ordered(each, translated(key, scope))


def _place(key: exp.Expr, chosen: Sequence[Named]) -> int | None:
    """Which column of the select list is meant, from 0, by its number or its name; None: none, or it cannot be told."""
    if _is_whole(key):
        return int(key.name) - 1
    if not isinstance(key, exp.Column) or key.table:
        return None
    same = [n for n, column in enumerate(chosen) if (column.name or "").lower() == key.name.lower()]
    return same[0] if len(same) == 1 else None


def _is_whole(node: object) -> bool:
    return is_number(node) and node.name.isdigit()


def _is_constant(node: exp.Expr) -> bool:
    """Whether it is a number, with a sign or without: in an order or a grouping it names a place, or is refused."""
    return is_number(node.this.unnest() if isinstance(node, exp.Neg) else node)
