"""All files under the root: edited where they are no table's and no landed file, and searched for a person."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from lakehouse import store
from lakehouse.contracts import Table
from lakehouse.privacy.online import of_others
from lakehouse.privacy.traces import files_under, names_person, without_person
from lakehouse.sources.landing import landing_files
from lakehouse.sources.people import Person
from lakehouse.sources.people_in_lines import Lines


def clean_rest(root: Path, tables: Mapping[str, Table], person: Person) -> int:
    """Edit logs, Dagster's events and whatever else is no table and no landed file; returns how many files.

    Args:
        root: of the lakehouse.
        tables: contracts by name; they say which landed files there are.
        person: who.

    Raises:
        TraceError: an event store is in use.
    """
    landed = _landed(root, tables)
    edited = 0
    for path in files_under(root):
        top = path.relative_to(root).parts[0]
        # The files of a broker or of Redis are its own: changed under it, they would be damaged. The scan names them.
        if top in ("tables", "keys", "kafka", "redis") or path in landed or not _is_file(path):
            continue
        if _is_configuration(root, path):  # struck out of it, a word would change how the lakehouse runs
            continue
        if top == "landing":
            # A killed landing leaves its draft; any other file there is not ours, and the scan names it.
            if path.name.startswith(".") and path.suffix == ".tmp" and names_person(path, person):
                store.delete(path)
                edited += 1
        else:
            edited += without_person(path, person)
    return edited


def scan(root: Path, tables: Mapping[str, Table], person: Person) -> tuple[int, list[str]]:
    """Decode and search every file under the root; returns how many there are, and those that name the person.

    Args:
        root: of the lakehouse.
        tables: contracts by name; they say how landed lines are read.
        person: who.

    Raises:
        OSError: a folder cannot be listed, or a file not be read: nothing is taken for clean unseen.
    """
    landed = _landed(root, tables)
    paths = [path for path in files_under(root) if _is_file(path)]
    others, without_id = of_others(tables, person), replace(person, user=None)

    def names(path: Path) -> bool:
        who = without_id if _is_configuration(root, path) else person
        return names_person(path, who, landed.get(path), others if path.relative_to(root).parts[0] == "redis" else None)

    with ThreadPoolExecutor(max_workers=4) as pool:
        found = pool.map(names, paths)
        return len(paths), [str(p.relative_to(root)) for p, hit in zip(paths, found, strict=True) if hit]


def _is_configuration(root: Path, path: Path) -> bool:
    """Whether a file says how something runs: its words are about nobody, though an address in it may be somebody's."""
    of_redis = path.suffix == ".manifest" and path.relative_to(root).parts[0] == "redis"
    return of_redis or path.name in ("dagster.yaml", "lake.env")


def _is_file(path: Path) -> bool:
    found = store.stat(path)
    return found is not None and found.is_file


def _landed(root: Path, tables: Mapping[str, Table]) -> dict[Path, Lines]:
    """Each landed file with how its lines are read."""
    return {
        file.path: lines
        for table in tables.values()
        if table.landing is not None
        for lines in [Lines(table.landing, table.privacy.person)]
        for file in landing_files(root, table.landing)
    }
