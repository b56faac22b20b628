"""Names of tables that queries may use, by what is on the disk, and names of columns that differ."""

from __future__ import annotations

import importlib.util
import pkgutil
from collections.abc import Iterator, Sequence
from importlib.machinery import FileFinder

from lakehouse import store
from lakehouse.delta.layout import table_path
from lakehouse.settings import LAYERS, Settings

OPS = "ops"


def built_names(settings: Settings) -> list[str]:
    """Every table that has been built and still has a file, its quarantine, and the tables about the lakehouse.

    No table file is imported, which takes seconds.
    """
    # Only the table file knows whether it has rules, and so a quarantine: both are looked for.
    declared = [each for name in _declared(settings.tables) for each in (name, f"{name}_quarantine")]
    found = [name for name in declared if _is_table(settings, name)]
    return found + [
        f"{OPS}.{folder.name}"
        for folder in store.listed(settings.root / "tables" / OPS)
        if _is_table(settings, f"{OPS}.{folder.name}")
    ]


def _is_table(settings: Settings, name: str) -> bool:
    return store.exists(table_path(settings.root, name) / "_delta_log")


def _declared(home: str) -> Iterator[str]:
    """`layer.name` of every table file; the catalog says what is wrong with a package that is not there."""
    for layer in LAYERS:
        try:
            package = importlib.util.find_spec(f"{home}.{layer}")
        except ModuleNotFoundError:
            continue
        for module in pkgutil.iter_modules(package.submodule_search_locations if package else ()):
            if not module.name.startswith("_") and isinstance(module.module_finder, FileFinder):
                yield f"{layer}.{module.name}"


def distinct_names(names: Sequence[str]) -> list[str]:
    """Column names that differ, as JSON objects need them: the second `day` becomes `day_2`."""
    given: list[str] = []
    for name in names:
        number, candidate = 1, name
        while candidate in given:
            number += 1
            candidate = f"{name}_{number}"
        given.append(candidate)
    return given
