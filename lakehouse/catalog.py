"""All tables, found by their files: a new file in a layer's folder is a new table."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Mapping
from functools import lru_cache

from lakehouse import store
from lakehouse.contracts import Table
from lakehouse.contracts.slices import check_slices
from lakehouse.contracts.table import LAYERS
from lakehouse.errors import ContractError, UnknownTableError
from lakehouse.read.lake import table_path
from lakehouse.settings import get_settings


@lru_cache(maxsize=1)
def tables() -> dict[str, Table]:
    """Every table in use by `layer.name`, upstream tables first.

    A table that is taken from a database, and what only follows from it, is in use where the database's address is set
    or rows were taken before: who has no such database has no empty tables either.

    Raises:
        ContractError: for a file without its table, an unknown input, or a circle of inputs.
    """
    settings = get_settings()
    used: dict[str, Table] = {}
    for name, table in declared().items():
        extract = table.extract
        if (
            extract
            and settings.source_url(extract.source) is None
            and not store.exists(table_path(settings.root, name))
        ):
            continue
        if all(each.table in used for each in table.upstream.values()):
            used[name] = table
    return used


@lru_cache(maxsize=1)
def declared() -> dict[str, Table]:
    """Every table that has a file by `layer.name`, upstream tables first.

    Raises:
        ContractError: for a file without its table, an unknown input, a circle of inputs, or slices by a column that an
            input does not have.
    """
    found: dict[str, Table] = {}
    for layer in LAYERS:
        package = importlib.import_module(f"lakehouse.{layer}")
        for module in pkgutil.iter_modules(package.__path__):
            if module.name.startswith("_"):
                continue
            table = getattr(importlib.import_module(f"{package.__name__}.{module.name}"), module.name, None)
            if not isinstance(table, Table):
                raise ContractError(f"lakehouse/{layer}/{module.name}.py declares no @table named {module.name}.")
            found[table.id] = table
    return {table.id: table for table in _upstream_first(found)}


def get_table(name: str) -> Table:
    """The table of that name.

    Raises:
        UnknownTableError: with the nearest names.
    """
    known = tables()
    if name in known:
        return known[name]
    if name in declared():
        roots = _roots(declared()[name])
        addresses = " and ".join(f"LAKEHOUSE_{source.upper()}_URL" for source in sorted(roots))
        raise UnknownTableError(f"{name} is not in use: set {addresses}, the address of the database it is taken from.")
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise UnknownTableError(f"There is no table {name!r}.{hint} Tables: {', '.join(known)}.")


def above(known: Mapping[str, Table], name: str) -> set[str]:
    """Everything that a table reads, directly or not, by `layer.name`."""
    parents = {each.table for each in known[name].upstream.values()}
    return parents.union(*(above(known, each) for each in parents))


def below(known: Mapping[str, Table], name: str) -> list[str]:
    """Everything that reads a table, directly or not, by `layer.name`; in the order of `known`."""
    return [each for each in known if name in above(known, each)]


def _roots(table: Table) -> set[str]:
    """The databases that a table, or what it reads, is taken from."""
    own = {table.extract.source} if table.extract else set()
    return own.union(*(_roots(declared()[each.table]) for each in table.upstream.values()))


def _upstream_first(found: dict[str, Table]) -> list[Table]:
    ordered: list[Table] = []
    state: dict[str, str] = {}

    def visit(table: Table, path: tuple[str, ...]) -> None:
        if state.get(table.id) == "done":
            return
        if state.get(table.id) == "open":
            raise ContractError(f"Tables feed each other in a circle: {' → '.join((*path, table.id))}.")
        state[table.id] = "open"
        for each in table.upstream.values():
            if each.table not in found:
                near = difflib.get_close_matches(each.table, found, n=1)
                hint = f" Did you mean {near[0]}?" if near else ""
                raise ContractError(f"{table.id} reads {each.table!r}, which is no table.{hint}")
            visit(found[each.table], (*path, table.id))
        check_slices(table, found)
        state[table.id] = "done"
        ordered.append(table)

    for table in found.values():
        visit(table, ())
    return ordered
