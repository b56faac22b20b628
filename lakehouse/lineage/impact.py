"""What depends on a column: columns downstream, and the rules and checks that judge it or them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from lakehouse.checks.audit import check_names
from lakehouse.contracts import Table
from lakehouse.contracts.lineage import Source, grouping, sources

ASKED, VALUE, GROUPS = "asked", "value", "groups"


@dataclass(frozen=True)
class Affected:
    """One column that depends on those asked for.

    Attributes:
        table, column, owner: what and whose it is.
        how: `asked` for itself; `value` where its values are computed from `via`; `groups` where `via` decides which
            rows make a row of the table, and so every column of it.
        via: the columns it depends on, as far as they depend on those asked for.
        rules: row rules that read it.
        checks: table checks whose bounds speak of it.
    """

    table: str
    column: str
    owner: str
    how: str
    via: tuple[Source, ...] = ()
    rules: tuple[str, ...] = ()
    checks: tuple[str, ...] = field(default=())


def impact(tables: Mapping[str, Table], asked: Collection[Source]) -> list[Affected]:
    """Everything that depends on some columns, transitively, upstream tables first.

    Args:
        tables: all tables, upstream first.
        asked: `(table, column)`s; a landed field is `("landing.<source>", field)`.
    """
    reached = set(asked)
    found: list[Affected] = []
    # Upstream first, so one pass is enough: what a table reads has been judged when its turn comes.
    for table in tables.values():
        by_value = sources(table, tables)
        by_group = tuple(each for each in grouping(table, tables) if each in reached)
        for column in table.columns:
            via = tuple(each for each in by_value[column] if each in reached)
            # The strongest reason is told: where its value is made of what was asked, grouping by it says no more.
            how = ASKED if (table.id, column) in asked else VALUE if via else GROUPS if by_group else ""
            if how:
                reached.add((table.id, column))
                rules = tuple(each.name for each in table.rules if column in each.columns)
                checks = checks_of_column(table, column, tables)
                found.append(Affected(table.id, column, table.owner, how, via or by_group, rules, checks))
    return found


def checks_of_column(table: Table, column: str, tables: Mapping[str, Table]) -> tuple[str, ...]:
    """The table checks whose outcome can depend on one column; those of whole rows (counts) are left out.

    A downstream table that must add up to the column names it with its own name: `gold.daily_revenue.reconciliation`.

    Args:
        table: whose checks.
        column: of that table.
        tables: all contracts by name, to find who must add up to it.
    """
    in_a_rule = any(column in each.columns for each in table.rules)
    speaks = {
        "null_rates": column in table.required or column in table.quality.max_null_rate,
        "row_rules": in_a_rule,
        "quarantine_depth": in_a_rule,
        "clocks": table.clock is not None and column == table.clock.column,
        "unique_key": column in table.key,
        "reconciliation": column in table.reconciles,
    }
    if table.quality.anomalies is not None:
        numeric = column in table.quality.profile and _is_numeric(table, column)
        speaks |= {
            "null_drift": column not in table.required,
            "mean_shift": numeric,
            "category_mix": column in table.quality.profile and not numeric,
        }
    named = check_names(table)
    own = tuple(name for name in named if speaks.get(name))
    return own + tuple(
        f"{other.id}.reconciliation" for other in tables.values() if (table.id, column) in other.reconciles.values()
    )


def _is_numeric(table: Table, column: str) -> bool:
    return table.schema[column].dataType.typeName() in {
        "decimal",
        "long",
        "integer",
        "double",
        "float",
        "short",
        "byte",
    }
