"""Which tables read which: the graph that their inputs draw."""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse.contracts.table import Table
from lakehouse.errors import ContractError


def all_upstream(tables: Mapping[str, Table], table: Table) -> set[str]:
    """All that a table reads, directly or not, of those that are there, by `layer.name`.

    Args:
        tables: by `layer.name`; of a lake of some tables an input may be missing.
        table: which reads.
    """
    found, left = set[str](), [table]
    while left:
        new = {each.table for each in left.pop().upstream.values() if each.table in tables} - found
        found |= new
        left += map(tables.__getitem__, new)
    return found


def with_upstream(tables: Mapping[str, Table], table: Table) -> list[Table]:
    """A table, and all that it reads, directly or not, of those that are there.

    Args:
        tables: as of `all_upstream`.
        table: which reads.
    """
    return [table, *(tables[name] for name in all_upstream(tables, table))]


def all_downstream(tables: Mapping[str, Table], name: str) -> list[str]:
    """All that reads a table, directly or not, by `layer.name`; in the order of `tables`.

    Args:
        tables: by `layer.name`.
        name: the table.
    """
    # Asked of each table anew: there are some dozens, and a second graph would have to be kept in step with this one.
    return [each for each, table in tables.items() if name in all_upstream(tables, table)]


def upstream_first(tables: Mapping[str, Table]) -> dict[str, Table]:
    """The same tables, each behind all that it reads.

    Args:
        tables: by `layer.name`, with all that they read.

    Raises:
        ContractError: where tables feed each other in a circle.
    """
    ordered: dict[str, Table] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise ContractError(f"Tables feed each other in a circle: {' → '.join((*path, name))}.")
        if name not in ordered:
            for each in tables[name].upstream.values():
                visit(each.table, (*path, name))
            ordered[name] = tables[name]

    for name in tables:
        visit(name, ())
    return ordered
