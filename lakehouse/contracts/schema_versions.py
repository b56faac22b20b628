"""Versions of a table's columns, kept in a lock file, and what a contract may change from one to the next.

`schema_version` of `@table` numbers the columns: names, types and nullability. The columns of every version are kept in
`schemas.json` beside the layers, so that a change is seen where it is made and not by the readers of the table.

A *reader* is code with a contract, *data* are rows written under one. The table's `compatibility` says who must get
along with whom, as in schema registries:

* `backward` (default): new readers read old data. Columns may be added if they may be null, and may be left out; a
  column may become nullable. History stays readable by the newest code.
* `forward`: old readers read new data. Columns may be added, and left out if they may be null; a column may become
  required. Consumers may lag behind.
* `full`: both. Columns may be added and left out if they may be null; nullability stays.
* `none`: anything goes, and the table is built anew.

Another type is never compatible: files would hold what the contract does not say. A table holds rows of many versions,
so a new version is compared with each one since the last that was declared `none`, not with its predecessor alone.

This is about what contracts promise. What the stored table can follow by itself is less: it takes new nullable columns;
one that lost a column has to be built anew (`lakehouse.delta.evolve`).
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lakehouse.contracts.shipped import write_shipped
from lakehouse.contracts.table import COMPATIBILITY, Table
from lakehouse.errors import ContractError, SettingsError
from lakehouse.settings import get_settings

NEVER_NULL = " not null"
NONE = "none"


@dataclass(frozen=True)
class Version:
    """The columns of one version of a table: name → type, ` not null` behind it where it is never null."""

    number: int
    compatibility: str
    columns: Mapping[str, str]


@dataclass(frozen=True)
class Change:
    """One difference between two versions of a column; `breaks` names the directions it is incompatible in."""

    column: str
    what: str
    breaks: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.column} {self.what}"


Lock = Mapping[str, Sequence[Version]]


def version_of(table: Table) -> Version:
    """The version that a contract declares."""
    columns = {
        f.name: f.dataType.simpleString() + (NEVER_NULL if f.name in table.required else "")
        for f in table.schema.fields
    }
    return Version(table.schema_version, table.compatibility, columns)


def changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[Change]:
    """What differs from one version's columns to another's, in the order of the columns."""
    found: list[Change] = []
    for name in [*old, *(name for name in new if name not in old)]:
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        # Backward: this code reads rows of then. Forward: code of then reads rows of now.
        if before is None and after is not None:
            found.append(Change(name, f"is new ({after})", _if_required(after, "backward")))
        elif after is None or before is None:
            found.append(Change(name, f"is gone (was {before})", _if_required(before or "", "forward")))
        # Not even from int to long: the files keep the type they were written with, and their readers stop at another.
        elif before.removesuffix(NEVER_NULL) != after.removesuffix(NEVER_NULL):
            found.append(Change(name, f"was {before}, is {after}", frozenset({"backward", "forward"})))
        elif after.endswith(NEVER_NULL):
            found.append(Change(name, "may no longer be null", frozenset({"backward"})))
        else:
            found.append(Change(name, "may now be null", frozenset({"forward"})))
    return found


def _if_required(column: str, direction: str) -> frozenset[str]:
    """A column without nulls that is on one side alone breaks reading in one direction; one with nulls in none."""
    return frozenset({direction} if column.endswith(NEVER_NULL) else ())


def problems(table: Table, versions: Sequence[Version]) -> list[str]:
    """Why a contract does not follow from its locked versions, each with what to do; empty where it does."""
    now = version_of(table)
    if not versions:
        return []
    last = versions[-1]
    if now.number == last.number:
        return [
            f"{table.id}: column {change}, but schema_version is still {now.number}. Give @table "
            f"schema_version={now.number + 1} and run `lakehouse schema lock`, or undo the change."
            for change in changes(last.columns, now.columns)
        ]
    # Counted without gaps, so that two branches that both change a table collide in the lock file and not in the data.
    if now.number != last.number + 1:
        told = f"{table.id}: schema_version is {now.number}, but the last locked one is {last.number}"
        return [f"{told}; the next is {last.number + 1}. Code and lock file belong to one commit: take both from it."]
    return [
        f"{table.id}: column {change} since version {old.number}, which is not {now.compatibility} compatible: "
        f"{_why(change, now.compatibility)}. Undo it, add a new nullable column instead, or declare "
        f'compatibility="none" for this version and build the table anew.'
        for old in reversed(_readable(versions))
        for change in changes(old.columns, now.columns)
        if change.breaks & _directions(now.compatibility)
    ]


def unlocked(tables: Iterable[Table], lock: Lock) -> list[str]:
    """Tables whose version is not in the lock yet, and locked tables that are no more, each with what to do."""
    known = {table.id: table for table in tables}
    missing = [
        f"{name}: version {table.schema_version} is not locked. Run `lakehouse schema lock` and commit the file."
        for name, table in known.items()
        if table.schema_version > (lock[name][-1].number if lock.get(name) else 0)
    ]
    gone = [name for name in lock if name not in known]
    return missing + [f"{name}: is locked, but no table. Run `lakehouse schema lock` to take it out." for name in gone]


def locked(tables: Iterable[Table], lock: Lock) -> dict[str, list[Version]]:
    """The lock with the tables' present versions; versions before them stay as they are.

    Raises:
        ContractError: with every contract that does not follow from its locked versions.
    """
    made: dict[str, list[Version]] = {}
    wrong: list[str] = []
    for table in tables:
        versions = list(lock.get(table.id, ()))
        wrong += problems(table, versions)
        if not versions or versions[-1].number != table.schema_version:
            versions.append(version_of(table))
        made[table.id] = versions
    if wrong:
        raise ContractError("\n".join(["Nothing was locked.", *wrong]))
    return made


def added_later(table: Table, versions: Sequence[Version]) -> tuple[str, ...] | None:
    """Columns that some version of the table did not have; None where nobody knows, since they are not locked."""
    if table.schema_version == 1:
        return ()
    earlier = [version for version in versions if version.number < table.schema_version]
    # One version that nobody locked may have lacked any column.
    if len(earlier) < table.schema_version - 1:
        return None
    return tuple(c for c in table.columns if any(c not in version.columns for version in earlier))


def lock_file() -> Path:
    """Where the versions of the tables in use are kept: in the package of LAKEHOUSE_TABLES.

    Raises:
        SettingsError: where there is no such package.
    """
    home = get_settings().tables
    try:
        found = importlib.util.find_spec(home)
    except ModuleNotFoundError:
        found = None
    if found is None or not found.submodule_search_locations:
        raise SettingsError(f"LAKEHOUSE_TABLES={home}: expected a package, found none; install it, or name another.")
    return Path(found.submodule_search_locations[0]) / "schemas.json"


def read_lock(path: Path | None = None) -> Lock:
    """The locked versions by table, oldest first; none where there is no file.

    Raises:
        ContractError: for a file that is not what `write_lock` writes.
    """
    return _read(path or lock_file())


@lru_cache(maxsize=4)
def _read(path: Path) -> Lock:
    if not path.exists():
        return {}
    try:
        held: dict[str, list[dict[str, Any]]] = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: tuple(Version(each["version"], each["compatibility"], each["columns"]) for each in versions)
            for name, versions in held.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ContractError(
            f"{path} cannot be read ({type(error).__name__}: {error}). It is written by `lakehouse schema lock`; take "
            "it from the last commit, or solve the merge conflict in it."
        ) from error


def write_lock(lock: Lock, path: Path | None = None) -> None:
    """Write the lock whole or not at all, a column a line, so that a review shows what changed."""
    held = {
        name: [{"version": v.number, "compatibility": v.compatibility, "columns": dict(v.columns)} for v in versions]
        for name, versions in sorted(lock.items())
    }
    write_shipped(path or lock_file(), json.dumps(held, indent=2) + "\n")
    _read.cache_clear()


def _readable(versions: Sequence[Version]) -> Sequence[Version]:
    """The versions whose rows the table may hold: since it was last built anew."""
    # `none` says that the table is built anew with that version: rows of versions before it are in no file any more.
    anew = max((i for i, version in enumerate(versions) if version.compatibility == NONE), default=0)
    return versions[anew:]


def _directions(compatibility: str) -> set[str]:
    assert compatibility in COMPATIBILITY
    return {"backward", "forward"} if compatibility == "full" else {compatibility} - {NONE}


def _why(change: Change, compatibility: str) -> str:
    reasons = {
        "backward": "this code could not read the rows that are there",
        "forward": "code of that version could not read new rows",
    }
    return " and ".join(reasons[each] for each in sorted(change.breaks & _directions(compatibility)))
