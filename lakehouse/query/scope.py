"""What the names in a query stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import NamedTuple

from sqlglot import exp

from lakehouse.query.kinds import Kind, quoted
from lakehouse.query.sql_text import NotTranslatedError, QueryError
from lakehouse.query.values import Value
from lakehouse.texts import near


class Relation(NamedTuple):
    """A query in DuckDB's SQL, whose columns are c0, c1 …; their names in Spark (None: not known) and types."""

    sql: str
    columns: tuple[tuple[str | None, Kind], ...]


class Named(NamedTuple):
    """A column that `*` has, in its order."""

    source: str
    name: str | None
    value: Value


@dataclass(frozen=True)
class Scope:
    """The names that hold at one place of a query.

    Attributes:
        query: translates a query that stands inside.
        today: the day of `current_date`.
        sources: of each table the columns that its name leads to.
        columns: what is called without a table's name.
        aliases: columns of the select list by their lower-case names, where such count too.
        outer: names of the queries around, which may be meant.
        windows: definitions of the WINDOW clause by name, in which case counts.
    """

    query: Callable[[exp.Expr], Relation]
    today: date
    sources: Mapping[str, Sequence[Named]] = field(default_factory=dict)
    columns: Sequence[Named] = ()
    aliases: Mapping[str, Value] = field(default_factory=dict)
    outer: frozenset[str] = frozenset()
    windows: Mapping[str, exp.Expr] = field(default_factory=dict)

    def names(self) -> frozenset[str]:
        """Every name of a column or table here, in lower case."""
        return self.outer | {each.name.lower() for each in self.columns if each.name} | set(self.sources)

    def column(self, parts: Sequence[str]) -> Value:
        """What a dotted name stands for.

        Raises:
            QueryError: nothing here has the name.
            NotTranslatedError: it may stand for several things.
        """
        source = self.sources.get(parts[0].lower()) if len(parts) > 1 else None
        made, rest = (self._bare(parts), parts[1:]) if source is None else (self._of_source(source, parts), parts[2:])
        made = replace(made, name=parts[-len(rest) - 1], digits=None, literal=None)
        for each in rest:
            made = self.field(made, each)
        return made

    def _of_source(self, source: Sequence[Named], parts: Sequence[str]) -> Value:
        """`table.column`, unless the first word may as well be a column, of which a field is meant."""
        found = _called(source, parts[1])
        if len(found) != 1 or _called(self.columns, parts[0]):
            raise NotTranslatedError(f"what {'.'.join(parts)} stands for")
        return found[0].value

    def _bare(self, parts: Sequence[str]) -> Value:
        """A column, or a name of the select list, by its name alone."""
        found = _called(self.columns, parts[0])
        if len(found) > 1:
            raise NotTranslatedError(f"{parts[0]}, which several tables have")
        alias = self.aliases.get(parts[0].lower())
        made = found[0].value if found else alias
        if made is None:
            raise self._unknown(parts)
        if alias is not None and made.sql != alias.sql:
            raise NotTranslatedError(f"{parts[0]}, which is a column and a name given to another")
        return made

    def _unknown(self, parts: Sequence[str]) -> Exception:
        name = ".".join(parts)
        # Spark may find it further out or in the file: whether there is such a column is then for it to say.
        if parts[0].lower() in self.outer or parts[0].lower().startswith("_metadata"):
            return NotTranslatedError(f"{name}, which is of the query around or of a file")
        known = [each.name for each in self.columns if each.name]
        # The name that Spark gives such a column is not known here, and may be this one.
        if any(each.name is None for each in self.columns):
            return NotTranslatedError(f"{name}, which may be a column without a name")
        listed = f" Columns: {', '.join(known)}." if known else ""
        return QueryError(f"There is no column {name}.{near(parts[-1].lower(), known)}{listed}")

    def field(self, inner: Value, name: str) -> Value:
        """A field of a struct."""
        found = [(each, kind) for each, kind in inner.kind.parts if each.lower() == name.lower()]
        if inner.kind.name != "struct" or len(found) != 1:
            raise NotTranslatedError(f".{name} of {inner.kind}")
        ((own, kind),) = found
        return Value(f"({inner.sql}).{quoted(own)}", kind, None if inner.name is None else f"{inner.name}.{name}")


def _called(columns: Sequence[Named], name: str) -> list[Named]:
    return [each for each in columns if each.name is not None and each.name.lower() == name.lower()]
