"""A checked query: a text becomes a tree, the tree is checked against lists, and only what is made from it is run.

Nothing of the text itself reaches an engine. So it does not matter whether an engine would read the text as the parser
here does: what it gets is plain, generated SQL without comments or hints, in which every name is quoted.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakehouse.query.lake_sql import LakeSql
from lakehouse.query.sql_allowed import FUNCTIONS, NODES, TABLE_FUNCTIONS
from lakehouse.query.sql_text import CALLS, QueryError, plain_parts
from lakehouse.texts import near

READS_ONLY = (
    "This command only reads: the statement must be one query (SELECT, WITH, FROM, VALUES). Tables are changed by "
    "their transforms and a backfill alone, so that every row has passed its audit. `lakehouse describe` tells columns."
)
_LONGEST = 100_000  # characters; no query of a person is longer, and the parser is recursive


_UNITS = {
    *("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFYEAR", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")
}
_WITH_UNIT = {"date_add", "dateadd", "date_diff", "datediff", "timestampadd", "timestampdiff"}

_WORD = re.compile(r"[A-Za-z0-9_ ]*\Z")  # of digits alone: hexadecimal
_NUMBER = re.compile(r"[0-9.]+([eE][+-]?[0-9]+)?\Z")


@dataclass(frozen=True)
class TableUse:
    """A table as a query uses it: its name, the version or time it is read at, and the view that stands for it."""

    table: str
    option: str | None
    value: str | None

    @property
    def view(self) -> str:
        """A name no table has."""
        suffix = re.sub(r"\W", "_", f"_{self.option}_{self.value}") if self.option else ""
        return "lake__" + self.table.replace(".", "__") + suffix.lower()


@dataclass(frozen=True)
class CheckedQuery:
    """A query that has passed: its tree, in which views stand for the tables, and the tables it reads."""

    tree: exp.Query
    uses: tuple[TableUse, ...]

    def spark_sql(self) -> str:
        """The query as Spark is given it."""
        # In no other place than a text literal can `${` stand now; Spark would put a variable of its machine there.
        return _generated(self.tree).replace("${", "\\u0024{")


def check_query(text: str, known: Collection[str], layers: Collection[str]) -> CheckedQuery:
    """Read a query and check everything in it.

    Args:
        text: one query, in Spark's SQL; `silver.orders VERSION AS OF 3` reads an older version.
        known: names of tables, `layer.name`.
        layers: first parts that a table's name has.

    Raises:
        QueryError: it is not one query, names a table that does not exist, or calls a function that is not on the list.
    """
    try:
        tree = _parsed(text)
        _only_allowed(tree)
        uses = _resolved(tree, known, layers)
        made = _written(tree, {use.view for use in uses}, known)
    except RecursionError:
        raise QueryError("The query is nested too deeply.") from None
    return CheckedQuery(made, uses)


def _written(tree: exp.Query, views: Collection[str], known: Collection[str]) -> exp.Query:
    """The tree of the very text that will run, checked as well: no fault of the generator may bring in anything."""
    text = _generated(tree)
    for _ in range(3):  # names of functions, and what has two ways to be written, settle in the first rounds
        made = _one(text)
        _only_allowed(made)
        for node in made.find_all(exp.Table):
            if isinstance(node.this, exp.Identifier) and not (len(node.parts) == 1 and node.name in views):
                _own(node, known)
        if (again := _generated(made)) == text:
            return made
        text = again
    raise QueryError("The query cannot be written again as it was read; please write it more plainly.")


def _generated(tree: exp.Expr) -> str:
    return tree.sql(dialect=LakeSql, identify=True, comments=False, normalize_functions=False)


def _parsed(text: str) -> exp.Query:
    if len(text) > _LONGEST:
        raise QueryError(f"The query has {len(text):,} characters, more than the {_LONGEST:,} that are read.")
    plain = "".join(plain_parts(text)).strip().rstrip(";").strip()
    if not plain:
        raise QueryError("There is no statement. For example: SELECT * FROM gold.daily_revenue")
    return _one(plain)


def _one(plain: str) -> exp.Query:
    # It warns of what it keeps as a mere command; that is refused below.
    logging.getLogger("sqlglot").disabled = True
    try:
        found = sqlglot.parse(plain, dialect=LakeSql)
    except SqlglotError as error:
        first = (getattr(error, "errors", None) or [{}])[0]
        where = f" at {first['highlight']!r}" if first.get("highlight") else ""
        said = str(first.get("description") or "the text is cut short").split("<Token")[0].rstrip(". ")
        raise QueryError(f"The query cannot be read{where}: {said}. {READS_ONLY}") from None
    if len(found) != 1:
        raise QueryError("Give one statement at a time.")
    (tree,) = found
    if isinstance(tree, exp.Values):
        tree = exp.select("*").from_(tree)
    if not isinstance(tree, exp.Query):
        raise QueryError(READS_ONLY)
    for pivot in tree.find_all(exp.Pivot):
        pivot.set("columns", None)  # the parser's idea of its names, empty ones among them; nothing is written of it
    return tree


def _only_allowed(tree: exp.Query) -> None:
    for node in tree.walk():
        if type(node) not in NODES:
            raise QueryError(f"{_said(node)} is not allowed in a query here. {READS_ONLY}")
        _check_words(node)
        if isinstance(node, exp.Anonymous):
            _check_call(node)
        elif isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
            raise QueryError(f"{_generated(node)}: a function is called by its name alone.")
        elif isinstance(node, exp.DataType) and node.args.get("kind") is not None:
            raise QueryError(f"{_generated(node)} is no type.")


def _check_words(node: exp.Expr) -> None:
    """What the generator writes as it is must be plain words and numbers."""
    if isinstance(node, exp.Identifier):
        if "${" in node.name or not node.name:
            raise QueryError("A name cannot be empty or have ${ in it.")
    elif isinstance(node, exp.Literal):
        if not node.is_string and not _NUMBER.match(node.name):
            raise QueryError(f"{node.name!r} is no number.")
    else:
        _check_settings(node)


def _check_settings(node: exp.Expr) -> None:
    """Whatever a node holds as a text beside its name, such as the side of a join or the unit of a frame."""
    if isinstance(node, exp.Lateral) and not _WORD.match(node.alias or "_"):
        raise QueryError(f"{node.alias!r}: the name of a LATERAL VIEW must be a plain word.")
    for key, value in node.args.items():
        if isinstance(value, str) and key != "comments" and not _WORD.match(value):
            raise QueryError(f"{value!r} is not allowed in a query here.")


def _said(node: exp.Expr) -> str:
    try:
        text = _generated(node)
    except (SqlglotError, ValueError):
        text = ""
    return text if 0 < len(text) <= 80 else type(node).__name__.upper()  # noqa: PLR2004


def _check_call(node: exp.Anonymous) -> None:
    called = node.this.name if isinstance(node.this, exp.Identifier) else str(node.this)
    name = called.lower()
    if isinstance(node.parent, exp.Table):
        if name not in TABLE_FUNCTIONS:
            listed = ", ".join(sorted(TABLE_FUNCTIONS))
            raise QueryError(f"{called}() cannot stand for a table.{near(name, TABLE_FUNCTIONS)} These can: {listed}.")
    elif not called.isascii() or name not in FUNCTIONS | _WITH_UNIT:
        raise QueryError(
            f"The function {called} is not on the list of those that queries may call.{near(name, FUNCTIONS)} "
            "Allowed are Spark's own that only compute (lakehouse/query/sql_allowed.py)."
        )
    node.set("this", exp.to_identifier(name, quoted=True) if name in CALLS else name)
    if name in _WITH_UNIT and len(node.expressions) == 3:  # noqa: PLR2004
        _put_unit(node.expressions[0])


def _put_unit(first: exp.Expr) -> None:
    """`DAY` in `date_add(DAY, 1, day)` is a word; quoted, as all names are, it would be a column."""
    if isinstance(first, exp.Column) and not first.table and first.name.upper() in _UNITS:
        first.replace(exp.Var(this=first.name.upper()))


def _resolved(tree: exp.Query, known: Collection[str], layers: Collection[str]) -> tuple[TableUse, ...]:
    """Put views in the place of tables; whatever else stands where a table is expected must be of this query."""
    by_lower = {name.lower(): name for name in known}
    found: list[tuple[exp.Table, TableUse]] = []
    for node in list(tree.find_all(exp.Table)):
        parts = [part.name for part in node.parts]
        if isinstance(node.this, exp.Func):
            if len(parts) > 1 or node.args.get("db"):
                raise QueryError(f"{_generated(node)}: a function is called by its name alone.")
        elif len(parts) == 1:
            _own(node, known)
        else:
            name = by_lower.get(".".join(parts).lower())
            if name is None:
                raise QueryError(_unknown(".".join(parts), known, layers))
            found.append((node, _use(node, name)))
    _substitute(tree, found)
    return tuple(dict.fromkeys(use for _, use in found))


def _unknown(name: str, known: Collection[str], layers: Collection[str] = ()) -> str:
    short = {each.split(".")[1].lower(): each for each in known}
    hint = f" Did you mean {short[name.lower()]}?" if name.lower() in short else near(name.lower(), [*known, *short])
    listed = ", ".join(each for each in known if not each.endswith("_quarantine"))
    if name.partition(".")[0].lower() in layers:
        return f"There is no table {name}.{hint} Tables: {listed}."
    return f"There is no table {name}.{hint} Tables are called by layer and name: {listed}."


def _own(node: exp.Table, known: Collection[str]) -> None:
    if len(node.parts) != 1 or not isinstance(node.this, exp.Identifier) or not _is_own(node, node.name):
        raise QueryError(_unknown(".".join(part.name for part in node.parts), known))
    if node.args.get("version"):
        raise QueryError(f"{node.name} is named by this query and has no versions.")


def _is_own(node: exp.Table, name: str) -> bool:
    """Whether a `WITH` that holds here has named it."""
    return name.lower() in {each.alias.lower() for each in _in_sight(node)}


def _in_sight(node: exp.Table) -> Iterator[exp.Expr]:
    """The parts of a `WITH` that hold here: those before it in its list, itself if recursive, and those further out."""
    below: exp.Expr = node
    above = node.parent
    while above is not None:
        if isinstance(above, exp.With):
            place = next(i for i, cte in enumerate(above.expressions) if cte is below)
            yield from above.expressions[: place + 1 if above.args.get("recursive") else place]
            above = above.parent or above  # past the query of this list, whose later parts are not in sight
        elif (held := above.args.get("with_")) is not None:
            yield from held.expressions
        below, above = above, above.parent


def _use(node: exp.Table, name: str) -> TableUse:
    version = node.args.get("version")
    if version is None:
        return TableUse(name, None, None)
    at = version.args.get("expression")
    kind = str(version.this).lower()
    if kind not in ("version", "timestamp") or str(version.args.get("kind")).upper() != "AS OF":
        raise QueryError(f"{name}: expected VERSION AS OF 3 or TIMESTAMP AS OF '2026-11-20T10:00'.")
    if not isinstance(at, exp.Literal):
        raise QueryError(f"{name} {kind.upper()} AS OF: expected a number or a time in quotes, not an expression.")
    return TableUse(name, f"{kind}AsOf", at.name)


def _substitute(tree: exp.Query, found: list[tuple[exp.Table, TableUse]]) -> None:
    """Views instead of tables, called as the tables were; `silver.orders.amount` becomes `orders.amount`."""
    called = _short_names([use for node, use in found if not node.alias])
    for node, use in found:
        _put_view(node, use, called)
    for column in tree.find_all(exp.Column):
        _shorten(column, called)


def _short_names(uses: Collection[TableUse]) -> dict[str, str]:
    """By table, its name without the layer; where two tables have that name, the view's, which is nobody else's."""
    tables: dict[str, set[str]] = defaultdict(set)
    for use in uses:
        tables[use.table.split(".")[1].lower()].add(use.table)
    called: dict[str, str] = {}
    for use in uses:
        short = use.table.split(".")[1]
        called[use.table.lower()] = short if len(tables[short.lower()]) == 1 else use.view
    return called


def _put_view(node: exp.Table, use: TableUse, called: Mapping[str, str]) -> None:
    alias = node.args.get("alias")
    if not node.alias:
        name = exp.to_identifier(called.get(use.table.lower(), use.view), quoted=True)
        if isinstance(alias, exp.TableAlias):  # of columns alone
            alias.set("this", name)
        else:
            node.set("alias", exp.TableAlias(this=name))
    node.set("this", exp.to_identifier(use.view, quoted=True))
    node.set("db", None)
    node.set("version", None)


def _shorten(column: exp.Column, called: Mapping[str, str]) -> None:
    if not column.args.get("catalog"):
        name = called.get(f"{column.db}.{column.table}".lower())
        if name is not None:
            column.set("table", exp.to_identifier(name, quoted=True))
            column.set("db", None)
        return
    name = called.get(f"{column.catalog}.{column.db}".lower())
    if name is not None:  # a field of a struct
        inner = exp.Column(this=column.args["table"].copy(), table=exp.to_identifier(name, quoted=True))
        column.replace(exp.Dot(this=inner, expression=column.this.copy()))
