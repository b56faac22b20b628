"""A checked query in DuckDB's SQL: every name, type, order and column's name as Spark has it, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import count

from sqlglot import exp

from lakehouse.query.clauses import aliases, check_distinct, grouping, only, ordering
from lakehouse.query.expressions import condition, kept, translated
from lakehouse.query.kinds import Kind, quoted, wider
from lakehouse.query.scope import Named, Relation, Scope
from lakehouse.query.sql_text import NotTranslatedError
from lakehouse.query.values import Value, brought, compared
from lakehouse.query.windows import groups

Columns = tuple[tuple[str, Kind], ...]
_SELECT = {
    "expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "distinct", "with_",
    "windows",
}  # fmt: skip
_WORDS = {exp.Union: "UNION", exp.Except: "EXCEPT", exp.Intersect: "INTERSECT"}
_PARTS = {"this", "expression"}
# What is read of each kind of node, where that is not the two above. A query with anything else would lose its meaning.
_READ: dict[type[exp.Expr], set[str]] = {
    exp.Select: _SELECT, exp.From: {"this"}, exp.Join: {"this", "side", "kind", "on", "using"}, exp.Where: {"this"},
    exp.Group: {"expressions", "all"}, exp.Having: {"this"}, exp.Order: {"expressions"}, exp.Limit: {"expression"},
    exp.Ordered: {"this", "desc", "nulls_first"}, exp.Offset: {"expression"}, exp.With: {"expressions", "recursive"},
    exp.CTE: {"this", "alias"}, exp.Subquery: {"this", "alias"}, exp.Distinct: {"expressions"},
    **{each: {"this", "expression", "distinct", "with_", "order", "limit", "offset"} for each in _WORDS},
    exp.Window: {"this", "partition_by", "order", "spec", "alias", "over"},
    exp.WindowSpec: {"kind", "start", "start_side", "end", "end_side"},
    exp.Table: {"this", "alias"}, exp.TableAlias: {"this", "columns"}, exp.Identifier: {"this", "quoted"},
    exp.Column: {"this", "table", "db", "catalog"}, exp.Star: {"except_"}, exp.Alias: {"this", "alias"},
    exp.Literal: {"this", "is_string"}, exp.Boolean: {"this"}, exp.Null: set(), exp.Paren: {"this"}, exp.Var: {"this"},
    exp.Interval: {"this", "unit"}, exp.DataType: {"this", "expressions"}, exp.DataTypeParam: {"this"},
    exp.Bracket: {"this", "expressions"}, exp.Between: {"this", "low", "high"},
    exp.In: {"this", "expressions", "query"},
    exp.Like: {"this", "expression", "negate"}, exp.Not: {"this"}, exp.Neg: {"this"}, exp.Exists: {"this"},
    # `safe` and `typed` say how other dialects would have it.
    exp.Div: {"this", "expression", "safe", "typed"}, exp.DPipe: {"this", "expression", "safe"},
    exp.Case: {"this", "ifs", "default"}, exp.If: {"this", "true", "false"},
    exp.Cast: {"this", "to", "safe"}, exp.TryCast: {"this", "to", "safe"},
    exp.Anonymous: {"this", "expressions"}, exp.Substring: {"this", "start", "length"}, exp.Trim: {"this"},
    exp.CurrentDate: set(),
}  # fmt: skip
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
    for node in tree.walk():
        said = {name for name, value in node.args.items() if value is not None and value is not False and value != []}
        if unread := said - _READ.get(type(node), _PARTS):
            raise NotTranslatedError(f"{', '.join(sorted(unread)).strip('_').upper()} of {type(node).__name__.upper()}")
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
        """A query.

        Args:
            node: the query.
            ctes: what WITH has named so far, by lower-case name.
            outer: names of columns of the queries around it, in lower case.

        Raises:
            NotTranslatedError: with the part that only Spark can answer.
        """
        if isinstance(node, exp.Subquery):
            only(node, {"this", "alias"})
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
        only(node, {"this", "expression", "distinct", "with_", "order", "limit", "offset"})
        sides = [self.query(each, ctes, outer) for each in (node.this, node.expression)]
        columns = _columns_of_both(*sides)
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
        return Relation(sql + ordering(node, scope, [each.value for each in output], output), columns)

    # One SELECT

    def _select(self, node: exp.Select, ctes: Mapping[str, Relation], outer: frozenset[str]) -> Relation:
        only(node, _SELECT)
        windows = {each.name: each for each in node.args.get("windows") or ()}
        scope = Scope(lambda inner: self.query(inner, ctes, outer), self._today, outer=outer, windows=windows)
        tables, scope = self._from(node, ctes, scope)
        around = scope.names()
        scope = replace(scope, query=lambda inner: self.query(inner, ctes, around))
        chosen = _chosen(node, scope)
        listed = ", ".join(f"{each.value.sql} AS c{number}" for number, each in enumerate(chosen))
        distinct = node.args.get("distinct")
        check_distinct(distinct, chosen)
        sql = f"SELECT {'DISTINCT ' if distinct else ''}{listed}{tables}"
        if (where := node.args.get("where")) is not None:
            sql += f" WHERE {kept(where.this, scope)}"
        aliased = replace(scope, aliases=aliases(chosen))
        sql += grouping(node, scope, chosen)
        if (having := node.args.get("having")) is not None:
            sql += f" HAVING {condition(having.this, aliased)}"
        values = [] if distinct else [each.value for each in chosen]
        sql += ordering(node, aliased, values, chosen)
        return Relation(sql, tuple((each.name, each.value.kind) for each in chosen))

    def _alias(self) -> str:
        return f"t{next(self._numbers)}"

    def _from(self, node: exp.Select, ctes: Mapping[str, Relation], scope: Scope) -> tuple[str, Scope]:
        """FROM and its joins, and the scope with their columns."""
        source = node.args.get("from_")
        if source is None:
            return "", scope
        sql, scope = self._source(source.this, ctes, scope)
        made = f" FROM {sql}"
        for join in node.args.get("joins") or ():
            sql, scope = self._join(join, ctes, scope)
            made += f" {sql}"
        return made, scope

    def _source(self, node: exp.Expr, ctes: Mapping[str, Relation], scope: Scope) -> tuple[str, Scope]:
        """A table of a FROM, and the scope with its columns."""
        alias, given = self._alias(), node.args.get("alias")
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            only(node, {"this", "alias"})
            name = node.alias_or_name.lower()
            made = ctes.get(node.name.lower()) or self._view(node.name)
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

    def _view(self, name: str) -> Relation:
        columns = self._tables[name]
        listed = ", ".join(f"{quoted(each)} AS c{n}" for n, (each, _) in enumerate(columns))
        return Relation(f"SELECT {listed} FROM {quoted(name)}", columns)

    def _join(self, node: exp.Join, ctes: Mapping[str, Relation], scope: Scope) -> tuple[str, Scope]:
        only(node, {"this", "side", "kind", "on", "using"})
        side, kind = _word(node, "side"), _word(node, "kind")
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
        side, keys, matches = _word(node, "side"), [], []
        for each in node.args["using"]:
            one, other = before.column([each.name]), right.column([each.name])
            a, b = compared(one, other)
            if one.kind != other.kind:
                raise NotTranslatedError(f"USING ({each.name}) of different types")
            matches.append(f"{a.sql} = {b.sql}")
            sql = {"RIGHT": other.sql, "FULL": f"coalesce({one.sql}, {other.sql})"}.get(side, one.sql)
            name = _own_name(right if side == "RIGHT" else before, each.name)
            keys.append(Named("", name, Value(sql, one.kind, name)))
        merged = {each.name.lower() for each in keys if each.name}
        rest = [each for each in both.columns if (each.name or "").lower() not in merged]
        scope = replace(both, columns=[*keys, *rest], sources={**both.sources, "": ()})
        return f"{word} {table} ON {' AND '.join(matches)}", scope


def _own_name(scope: Scope, name: str) -> str | None:
    """A column's name as its table has it: to `*`, a key is called so, however USING writes it."""
    return next(each.name for each in scope.columns if (each.name or "").lower() == name.lower())


def _word(node: exp.Expr, name: str) -> str:
    return str(node.args.get(name) or "").upper()


def _columns_of_both(one: Relation, other: Relation) -> tuple[tuple[str | None, Kind], ...]:
    """Columns of two queries one below the other: called as in the first, of a type that holds both."""
    if len(one.columns) != len(other.columns):
        raise NotTranslatedError("parts with different numbers of columns")
    pairs = zip(one.columns, other.columns, strict=True)
    return tuple((name, wider(kind, below)) for (name, kind), (_, below) in pairs)


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
        found.append(Named("", each.alias if isinstance(each, exp.Alias) else _name_alone(inner, made), made))
    return found


def _name_alone(node: exp.Expr, made: Value) -> str | None:
    """What Spark calls an expression that is a column by itself; within another, its parts are called otherwise."""
    plain = node.unnest()
    if isinstance(plain, exp.Column | exp.Dot):
        return plain.name  # by its last name, and by all of them within an expression
    held = plain.this.unnest() if isinstance(plain, exp.Cast) and not plain.args.get("safe") else None
    if isinstance(held, exp.Column):  # as before, whatever it is cast to; of a field, that is not known
        return None if held.table else held.name
    return made.name


def _starred(each: exp.Expr, star: exp.Star, scope: Scope) -> list[Named]:
    only(star, {"except_"})
    columns = scope.columns
    if isinstance(each, exp.Column):
        if "" in scope.sources or len(each.parts) != 2 or each.table.lower() not in scope.sources:  # noqa: PLR2004
            raise NotTranslatedError(each.sql("spark"))
        columns = scope.sources[each.table.lower()]
    left_out = [column.name.lower() for column in star.args.get("except_") or ()]
    for name in left_out:
        scope.column([name])
    return [Named("", one.name, one.value) for one in columns if (one.name or "").lower() not in left_out]
