"""Which features are asked for, and what their columns are called in a training set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from lakehouse.contracts import Features, Table
from lakehouse.contracts.features import feature_tables
from lakehouse.errors import UnknownTableError, UsageError
from lakehouse.texts import near

AGE, MISSING = "age_seconds", "missing"


@dataclass(frozen=True)
class Wanted:
    """Features of one table.

    Attributes:
        table: its contract.
        columns: the features, in the order they were asked for.
        ttl: how long a row may be used; None: as long as the table says.
    """

    table: Table
    columns: tuple[str, ...]
    ttl: timedelta | None = None

    @property
    def features(self) -> Features:
        """What the table says of its features, with the ttl that is asked for."""
        if self.table.features is None:
            raise AssertionError(f"{self.table.id} was asked for and holds no features")
        return self.table.features if self.ttl is None else replace(self.table.features, ttl=self.ttl)

    def called(self, column: str) -> str:
        """What a column of this table is called in a training set: other tables may have one of its name."""
        return f"{self.table.name}__{column}"

    @property
    def made(self) -> tuple[str, ...]:
        """All columns that it adds to the labels."""
        return tuple(self.called(each) for each in (*self.columns, AGE, MISSING))

    @property
    def texts(self) -> list[str]:
        """The same as `parse_features` reads it."""
        return [f"{self.table.id}:{each}" for each in self.columns]


def parse_features(texts: Sequence[str], tables: Mapping[str, Table]) -> tuple[Wanted, ...]:
    """What is asked for, by table in the order they are first named.

    Args:
        texts: `layer.table` for all features of a table, `layer.table:column` for one; with commas several.
        tables: all there are by `layer.name`.

    Raises:
        UsageError: for what is no feature, or tables of different entities.
        UnknownTableError: for what is no table.
    """
    found: dict[str, list[str]] = {}
    for item in (part.strip() for text in texts for part in text.split(",")):
        name, colon, column = item.partition(":")
        table = _feature_table(name, tables)
        known = table.features.columns(table) if table.features else ()
        if colon and column not in known:
            raise UsageError(
                f"{item}: {name} has no feature {column!r}.{near(column, known)} Its features: {', '.join(known)}."
            )
        found.setdefault(name, []).extend([column] if colon else known)
    wanted = tuple(Wanted(tables[name], tuple(dict.fromkeys(columns))) for name, columns in found.items())
    if not wanted:
        raise UsageError(f"No features are asked for. Name some with --features. {_choice(tables)}")
    entities = {each.features.entity: each.table.id for each in wanted}
    if len(entities) > 1:
        listed = ", ".join(f"{table} of {entity}" for entity, table in entities.items())
        raise UsageError(f"A training set is of one entity; asked for are {listed}. Make one file for each.")
    names = [each.table.name for each in wanted]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(
            f"Two tables are called {twice[0]}: their columns would have one name. Make one file for each."
        )
    return wanted


def _feature_table(name: str, tables: Mapping[str, Table]) -> Table:
    if name not in tables:
        raise UnknownTableError(f"There is no table {name!r}.{near(name, tables, alike=0.4)} {_choice(tables)}")
    if tables[name].features is None:
        raise UsageError(f"{name} says nothing of features (`features=` in its file). {_choice(tables)}")
    return tables[name]


def _choice(tables: Mapping[str, Table]) -> str:
    return f"Tables of features: {', '.join(each.id for each in feature_tables(tables.values())) or 'none'}."
