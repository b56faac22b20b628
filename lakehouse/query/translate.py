"""A checked query in DuckDB's SQL: every name, type, order and column's name as Spark has it, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import count

from sqlglot import exp

from lakehouse.query.expressions import condition, kept, translated
from lakehouse.query.functions import is_aggregate
from lakehouse.query.kinds import Kind, quoted, wider
from lakehouse.query.scope import Named, Relation, Scope
from lakehouse.query.sql_text import NotTranslatedError
from lakehouse.query.values import Value, brought, compared
from lakehouse.query.windows import grouped, groups, ordered

Columns = tuple[tuple[str, Kind], ...]
_SELECT = {
    "expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "distinct", "with_",
    "windows",
}  # fmt: skip
_WORDS = {exp.Union: "UNION", exp.Except: "EXCEPT", exp.Intersect: "INTERSECT"}
_LONGEST = 200_000  # characters; a CTE that is used again and again is written out each time


def translate(tree: exp.Query, tables: Mapping[str, Columns], today: date) -> Relation:
    """A query for DuckDB.

    Args:
        tree: has passed its check; views stand for tables.
        tables: the columns of each view.
        today: the day of `current_date`, UTC.

    Raises:
        NotTranslatedError: with what DuckDB would not answer as Spark does, or has not been shown to.
        QueryError: for a column that is not there.
    """
    made = _Translator(tables, today).query(tree, {}, frozenset())
    if any(name is None for name, _ in made.columns):
        raise NotTranslatedError("a column without a name (AS gives it one)")
    if len(made.sql) > _LONGEST:
        raise NotTranslatedError("a query of this length")
    return made


class _Translator:
    def __init__(self, tables: Mapping[str, Columns], today: date) -> None:
        self._tables, self._today, self._numbers = tables, today, count()

    def query(self, node: exp.Expr, ctes: Mapping[str, Relation], outer: frozenset[str]) -> Relation:
        """A query; `outer` are names of columns of the queries around it."""
        if isinstance(node, exp.Subquery):
            _only(node, {"this", "alias"})
            return self.query(node.this, ctes, outer)
        if (held := node.args.get("with_")) is not None:
            if held.args.get("recursive"):
                raise NotTranslatedError("WITH RECURSIVE")
            known = dict(ctes)
            for cte in held.expressions:
                made = self.query(cte.this, known, outer)
                known[cte.alias.lower()] = _renamed(made, cte.args.get("alias"))
            ctes = known
        if isinstance(node, exp.SetOperation):
            return self._combined(node, ctes, outer)
        if isinstance(node, exp.Select):
            return self._select(node, ctes, outer)
        raise NotTranslatedError(type(node).__name__.upper())

    # Queries that are put together

    def _combined(self, node: exp.SetOperation, ctes: Mapping[str, Relation], outer: frozenset[str]) -> Relation:
        _only(node, {"this", "expression", "distinct", "with_", "order", "limit", "offset"})
        sides = [self.query(each, ctes, outer) for each in (node.this, node.expression)]
        if len(sides[0].columns) != len(sides[1].columns):
            raise NotTranslatedError("parts with different numbers of columns")
        pairs = zip(sides[0].columns, sides[1].columns, strict=True)
        columns = tuple((name, wider(one, other)) for (name, one), (_, other) in pairs)
        plain = isinstance(node, exp.Union) and not node.args.get("distinct")
        if not plain and not groups(kind.name for _, kind in columns):
            raise NotTranslatedError(f"{type(node).__name__.upper()} of these types")
        word = _WORDS[type(node)] + ("" if node.args.get("distinct") else " ALL")
        one, other = (_brought(each, columns) for each in sides)
        table = self._alias()
        output = [
            Named("", name, Value(f"{table}.c{number}", kind, name)) for number, (name, kind) in enumerate(columns)
        ]
        scope = Scope(lambda inner: self.query(inner, ctes, outer), self._today, columns=output)
        sql = f"SELECT * FROM (({one}) {word} ({other})) AS {table}"
        return Relation(sql + _ordering(node, scope, [each.value for each in output], output), columns)

    # One SELECT

    def _select(self, node: exp.Select, ctes: Mapping[str, Relation], outer: frozenset[str]) -> Relation:
        _only(node, _SELECT)
        windows = {each.name.lower(): each for each in node.args.get("windows") or ()}
        scope = Scope(lambda inner: self.query(inner, ctes, outer), self._today, outer=outer, windows=windows)
        tables = ""
        if (source := node.args.get("from_")) is not None:
            sql, scope = self._source(source.this, ctes, scope)
            tables = f" FROM {sql}"
            for join in node.args.get("joins") or ():
                sql, scope = self._join(join, ctes, scope)
                tables += f" {sql}"
        around = scope.names()
        scope = replace(scope, query=lambda inner: self.query(inner, ctes, around))
        chosen = _chosen(node, scope)
        listed = ", ".join(f"{each.value.sql} AS c{number}" for number, each in enumerate(chosen))
        distinct = node.args.get("distinct")
        if distinct is not None:
            _only(distinct, set())
            for each in chosen:
                grouped(each.value)
        sql = f"SELECT {'DISTINCT ' if distinct else ''}{listed}{tables}"
        if (where := node.args.get("where")) is not None:
            sql += f" WHERE {kept(where.this, scope)}"
        aliased = replace(scope, aliases=_aliases(chosen))
        sql += _grouping(node, scope, chosen)
        if (having := node.args.get("having")) is not None:
            sql += f" HAVING {condition(having.this, aliased)}"
        values = [] if distinct else [each.value for each in chosen]
        sql += _ordering(node, aliased, values, chosen)
        return Relation(sql, tuple((each.name, each.value.kind) for each in chosen))

    def _alias(self) -> str:
        return f"t{next(self._numbers)}"

    def _source(self, node: exp.Expr, ctes: Mapping[str, Relation], scope: Scope) -> tuple[str, Scope]:
        """A table of a FROM, and the scope with its columns."""
        alias, given = self._alias(), node.args.get("alias")
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            _only(node, {"this", "alias"})
            name = (given.name if given is not None and given.this else node.name).lower()
            if node.name.lower() in ctes:
                made = ctes[node.name.lower()]
            else:
                columns = self._tables[node.name]
                listed = ", ".join(f"{quoted(each)} AS c{n}" for n, (each, _) in enumerate(columns))
                made = Relation(f"SELECT {listed} FROM {quoted(node.name)}", columns)
        elif isinstance(node, exp.Subquery):
            made, name = self.query(node, ctes, scope.outer), node.alias.lower()
        else:
            raise NotTranslatedError(f"{type(node).__name__.upper()} in FROM")
        made = _renamed(made, given)
        found = [
            Named(name, each, Value(f"{alias}.c{number}", kind, each))
            for number, (each, kind) in enumerate(made.columns)
        ]
        if name and name in scope.sources:
            raise NotTranslatedError(f"two tables called {name}")
        sources = {**scope.sources, name: found} if name else scope.sources
        return f"({made.sql}) AS {alias}", replace(scope, sources=sources, columns=[*scope.columns, *found])

    def _join(self, node: exp.Join, ctes: Mapping[str, Relation], scope: Scope) -> tuple[str, Scope]:
        _only(node, {"this", "side", "kind", "on", "using"})
        side, kind = str(node.args.get("side") or "").upper(), str(node.args.get("kind") or "").upper()
        table, both = self._source(node.this, ctes, scope)
        on, using = node.args.get("on"), node.args.get("using")
        if kind in ("SEMI", "ANTI"):
            word, after = f"{kind} JOIN", scope
            if side not in ("", "LEFT") or on is None:
                raise NotTranslatedError(f"this {kind} JOIN")
        else:
            word, after = f"{side} JOIN".strip(), both
        if using:
            return self._using(node, word, table, scope, both)
        if on is None:
            if side or kind not in ("", "CROSS", "INNER"):
                raise NotTranslatedError(f"{word} without ON")
            return f"CROSS JOIN {table}", after
        if kind == "CROSS":
            raise NotTranslatedError("CROSS JOIN with ON")
        return f"{word} {table} ON {condition(on, both)}", after

    def _using(self, node: exp.Join, word: str, table: str, before: Scope, both: Scope) -> tuple[str, Scope]:
        right = replace(both, columns=both.columns[len(before.columns) :])
        side, keys, matches = str(node.args.get("side") or "").upper(), [], []
        for each in node.args["using"]:
            one, other = before.column([each.name]), right.column([each.name])
            a, b = compared(one, other)
            if one.kind != other.kind:
                raise NotTranslatedError(f"USING ({each.name}) of different types")
            matches.append(f"{a.sql} = {b.sql}")
            sql = {"RIGHT": other.sql, "FULL": f"coalesce({one.sql}, {other.sql})"}.get(side, one.sql)
            keys.append(Named("", one.name, Value(sql, one.kind, one.name)))
        merged = {each.name.lower() for each in keys if each.name}
        rest = [each for each in both.columns if (each.name or "").lower() not in merged]
        scope = replace(both, columns=[*keys, *rest], sources={**both.sources, "": ()})
        return f"{word} {table} ON {' AND '.join(matches)}", scope


def _only(node: exp.Expr, known: set[str]) -> None:
    """Go on where a node has nothing else than what is translated."""
    for name, value in node.args.items():
        if value and name not in known:
            raise NotTranslatedError(name.strip("_").upper())


def _renamed(made: Relation, alias: exp.Expr | None) -> Relation:
    names = [each.name for each in alias.args.get("columns") or ()] if isinstance(alias, exp.TableAlias) else []
    if not names:
        return made
    if len(names) != len(made.columns):
        raise NotTranslatedError("names for some of the columns")
    return Relation(made.sql, tuple((name, kind) for name, (_, kind) in zip(names, made.columns, strict=True)))


def _brought(made: Relation, columns: Sequence[tuple[str | None, Kind]]) -> str:
    pairs = enumerate(zip(made.columns, columns, strict=True))
    listed = [f"{brought(Value(f'u.c{n}', own), wanted).sql} AS c{n}" for n, ((_, own), (_, wanted)) in pairs]
    return f"SELECT {', '.join(listed)} FROM ({made.sql}) AS u"


def _chosen(node: exp.Select, scope: Scope) -> list[Named]:
    """The columns of a select list."""
    found: list[Named] = []
    for each in node.expressions:
        star = each.this if isinstance(each, exp.Column) and isinstance(each.this, exp.Star) else each
        if isinstance(star, exp.Star):
            found += _starred(each, star, scope)
            continue
        inner = each.this if isinstance(each, exp.Alias) else each
        made = translated(inner, replace(scope, outer=scope.outer | {n.name.lower() for n in found if n.name}))
        found.append(Named("", each.alias if isinstance(each, exp.Alias) else made.name, made))
    return found


def _starred(each: exp.Expr, star: exp.Star, scope: Scope) -> list[Named]:
    _only(star, {"except_"})
    columns = scope.columns
    if isinstance(each, exp.Column):
        if "" in scope.sources or len(each.parts) != 2 or each.table.lower() not in scope.sources:  # noqa: PLR2004
            raise NotTranslatedError(each.sql("spark"))
        columns = scope.sources[each.table.lower()]
    left_out = [column.name.lower() for column in star.args.get("except_") or ()]
    for name in left_out:
        scope.column([name])
    return [Named("", one.name, one.value) for one in columns if (one.name or "").lower() not in left_out]


def _aliases(chosen: Sequence[Named]) -> dict[str, Value]:
    names = [each.name.lower() for each in chosen if each.name]
    return {each.name.lower(): each.value for each in chosen if each.name and names.count(each.name.lower()) == 1}


def _grouping(node: exp.Select, scope: Scope, chosen: Sequence[Named]) -> str:
    group = node.args.get("group")
    if group is None:
        return ""
    if group.args.get("all"):
        _only(group, {"all"})
        if len(chosen) != len(node.expressions) or node.find(exp.Window):
            raise NotTranslatedError("GROUP BY ALL with * or windows")
        whole = [not any(map(is_aggregate, each.walk())) for each in node.expressions]
        made = [each.value for each, plain in zip(chosen, whole, strict=True) if plain]
        return f" GROUP BY {', '.join(grouped(each).sql for each in made)}" if made else ""
    _only(group, {"expressions"})
    input_first = {name: value for name, value in _aliases(chosen).items() if name not in scope.names()}
    scope = replace(scope, aliases=input_first)
    made = []
    for each in group.expressions:
        if isinstance(each, exp.Literal) and not each.is_string:
            if not 1 <= int(each.name) <= len(chosen):
                raise NotTranslatedError(f"GROUP BY {each.name}")
            made.append(chosen[int(each.name) - 1].value)
        else:
            made.append(translated(each, scope))
    return f" GROUP BY {', '.join(grouped(each).sql for each in made)}"


def _ordering(node: exp.Expr, scope: Scope, values: Sequence[Value], chosen: Sequence[Named]) -> str:
    """ORDER BY, LIMIT and OFFSET; without `values`, an order by columns of the result alone."""
    sql = ""
    if (order := node.args.get("order")) is not None:
        _only(order, {"expressions"})
        sql += f" ORDER BY {', '.join(_ordered(each, scope, values, chosen) for each in order.expressions)}"
    for name in ("limit", "offset"):
        if (clause := node.args.get(name)) is not None:
            number = clause.args.get("expression")
            if not isinstance(clause, exp.Limit | exp.Offset) or not isinstance(number, exp.Literal):
                raise NotTranslatedError(clause.sql("spark"))
            sql += f" {name.upper()} {int(number.name)}"
    return sql


def _ordered(each: exp.Expr, scope: Scope, values: Sequence[Value], chosen: Sequence[Named]) -> str:
    key = each.this
    place: int | None = None
    if isinstance(key, exp.Literal) and not key.is_string and key.name.isdigit():
        place = int(key.name) - 1
    elif isinstance(key, exp.Column) and not key.table:
        same = [n for n, column in enumerate(chosen) if (column.name or "").lower() == key.name.lower()]
        place = same[0] if len(same) == 1 else None
    if place is not None:
        if not 0 <= place < len(chosen):
            raise NotTranslatedError(f"ORDER BY {key.name}")
        return ordered(each, replace(chosen[place].value, sql=str(place + 1)))
    if not values or isinstance(key, exp.Var):
        raise NotTranslatedError(f"ORDER BY {key.sql('spark')}")
    return ordered(each, translated(key, scope))
