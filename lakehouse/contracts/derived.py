"""Lineage that was derived from transforms, kept in `lineage.json` beside the layers: pages and commands read it there.

`lakehouse schema lock` writes it (`lakehouse.lineage.derive`). It names the code it was derived from, so that whoever
shows it can tell whether that is the code that runs.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from lakehouse.contracts.shipped import write_shipped
from lakehouse.errors import ContractError, SettingsError

Source = tuple[str, str]  # table (or `landing.<source>`) and column
FILE = "lineage.json"
NOT_GIVEN = "in the columns that it gives"  # ends what is said of a transform that lacks some: it has no …
NOT_WANTED = "among the columns that it gives, and its model has not"  # ends what is said of one that gives more
NO_FRAME = "in place of a frame"  # ends what is said of one that returns something else: it has …


@dataclass(frozen=True)
class Derived:
    """The lineage of a table as its transform has it.

    Attributes:
        code: digest of the code that it was derived from.
        columns: by column the input columns that its values are computed from; none where `refused`.
        rows: input columns that decide which rows there are, beside those of the key: filters, joins, groups.
        refused: what is in the transform whose sources are not known for certain; then the table file declares them.
    """

    code: str
    columns: Mapping[str, tuple[Source, ...]] = field(default_factory=dict)
    rows: tuple[Source, ...] = ()
    refused: str = ""


def lineage_file(home: str) -> Path:
    """Where the lineage of a package's tables is kept.

    Raises:
        SettingsError: there is no such package.
    """
    try:
        found = importlib.util.find_spec(home)
    except (ImportError, ValueError):
        found = None
    if found is None or not found.submodule_search_locations:
        raise SettingsError(f"{home}: expected a package with tables, found none; install it, or name another.")
    return Path(found.submodule_search_locations[0]) / FILE


def read_lineage(path: Path) -> Mapping[str, Derived]:
    """The derived lineage by table; none where there is no file.

    Raises:
        ContractError: for a file that is not what `write_lineage` writes.
    """
    return _read(path)


@lru_cache(maxsize=4)
def _read(path: Path) -> Mapping[str, Derived]:
    if not path.exists():
        return {}
    try:
        return {
            name: Derived(
                held["code"],
                {column: _sources(texts) for column, texts in held["columns"].items()},
                _sources(held["rows"]),
                held["refused"],
            )
            for name, held in json.loads(path.read_text(encoding="utf-8")).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ContractError(
            f"{path} cannot be read ({type(error).__name__}: {error}). It is written by `lakehouse schema lock`; take "
            "it from the last commit, or delete it and write it anew."
        ) from error


def _sources(texts: str | list[str]) -> tuple[Source, ...]:
    found = []
    for text in texts if isinstance(texts, list) else texts.split(", ") if texts else ():
        # A column may have dots in its name; a layer and a table may not.
        layer, table, column = text.split(".", 2)
        found.append((f"{layer}.{table}", column))
    return tuple(found)


def write_lineage(found: Mapping[str, Derived], path: Path) -> None:
    """Write the file whole or not at all, a column a line, so that a review shows what changed."""
    held = {
        name: {
            "code": each.code,
            "columns": {column: _text(sources) for column, sources in each.columns.items()},
            "rows": _text(each.rows),
            "refused": each.refused,
        }
        for name, each in sorted(found.items())
    }
    # Killed before it is whole, the old lineage stands, and a test says that it is not of this code.
    write_shipped(path, json.dumps(held, indent=2) + "\n")
    _read.cache_clear()


def _text(sources: tuple[Source, ...]) -> str | list[str]:
    texts = [f"{table}.{column}" for table, column in sources]
    # A landed field may be called `Amount, net`: it is no two.
    return texts if any("," in text for text in texts) else ", ".join(texts)
