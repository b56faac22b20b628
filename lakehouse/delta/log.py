"""A Delta table's log, entry by entry: what each commit did, and whether the version it made can still be read."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from deltalake.exceptions import DeltaError

from lakehouse import store
from lakehouse.delta.files import DataFile, file_of
from lakehouse.delta.layout import entry_path
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import Snapshot, table_name
from lakehouse.errors import HistoryGoneError

_OF_FILES = ('{"add":', '{"remove":')


@dataclass(frozen=True)
class LogEntry:
    """One commit.

    Attributes:
        version: the version it made.
        time: when, by the clock of whoever committed.
        facts: its commit information: operation, run, code version and the like.
        added, removed: files, by path; the rows of a removed one are not said.
        changes_rows: False where files were only merged, or nothing but the table's description changed.
        transactions: application ids and the versions set for them.
    """

    version: int
    time: datetime
    facts: Mapping[str, Any]
    added: Mapping[str, DataFile]
    removed: Mapping[str, DataFile]
    changes_rows: bool
    transactions: Mapping[str, int]

    @property
    def operation(self) -> str:
        """What the commit was for, in a word."""
        if "lakehouse.operation" in self.facts:
            return str(self.facts["lakehouse.operation"])
        if "lakehouse.run_id" in self.facts:
            return "publish"
        if "lakehouse.compaction" in self.facts:
            return "compact"
        return str(self.facts.get("operation", "unknown")).lower()

    @property
    def figures(self) -> Mapping[str, Mapping[str, Any]]:
        """What the commit says of each day it published, by day as text."""
        found = self.facts.get("lakehouse.metrics", {})
        loaded = json.loads(found) if isinstance(found, str) else found
        return loaded if isinstance(loaded, dict) else {}


@dataclass(frozen=True)
class TableVersion:
    """A version and what its commit changed; `gone` counts those of its files that are not there any more.

    Rows are None where files without statistics, which alone could say, are gone.
    """

    entry: LogEntry
    days: Collection[date]
    rows_before: int | None
    rows: int | None
    gone: int

    @property
    def readable(self) -> bool:
        """Whether every file of the version is still there."""
        return self.gone == 0


def oldest_entry(path: Path) -> int:
    """The first version whose log entry is still there; -1 without any."""
    names = [each.stem for each in store.listed(path / "_delta_log", "*.json") if each.stem.isdigit()]
    return int(min(names)) if names else -1


def first_entry(path: Path, wanted: int) -> int:
    """A version, or the first one after it whose log entry is still there: those before may have been cleaned up."""
    # Asked at each turn of a stream, whose log is long: all names are read only where that one is not there.
    return wanted if store.exists(entry_path(path, wanted)) else max(wanted, oldest_entry(path))


def read_entry(path: Path, version: int, partition_by: Collection[str] | None = None) -> LogEntry:
    """One log entry.

    Args:
        path: folder of the table.
        version: which entry.
        partition_by: the table's partition columns; where they are none, files have no partition values. None: of its
            files nothing is read, of which a commit may have thousands.

    Raises:
        HistoryGoneError: where it is not there.
    """
    log = entry_path(path, version)
    try:
        lines = store.read_text(log).splitlines()
    except FileNotFoundError:
        raise HistoryGoneError(
            f"{table_name(path)}: the log entry of version {version} is gone ({log.name}); the oldest one "
            f"is that of version {oldest_entry(path)}."
        ) from None
    facts: dict[str, Any] = {}
    added: dict[str, DataFile] = {}
    removed: dict[str, DataFile] = {}
    transactions: dict[str, int] = {}
    changes_rows = False
    for line in lines:
        if partition_by is None and line.startswith(_OF_FILES):
            continue
        for kind, action in json.loads(line).items() if line else ():
            match kind:
                case "commitInfo":
                    facts = action
                case "txn":
                    transactions[action["appId"]] = action["version"]
                case "add":
                    file = file_of(action, partition_by or (), str(path))
                    added[file.path] = file
                    changes_rows |= action["dataChange"]
                case "remove":
                    file = file_of(action, partition_by or (), str(path))
                    removed[file.path] = file
                    changes_rows |= action["dataChange"]
    # Milliseconds; a writer that says none leaves the file's own time, which a copy of the table does not keep.
    moment = datetime.fromtimestamp(facts["timestamp"] / 1000 if "timestamp" in facts else _modified(log), UTC)
    return LogEntry(version, moment, facts, added, removed, changes_rows, transactions)


def entries(path: Path, first: int, last: int, partition_by: Collection[str] | None = None) -> Iterator[LogEntry]:
    """The log entries of some versions, in order.

    Args:
        path: folder of the table.
        first: version to begin with.
        last: version to end with, inclusive.
        partition_by: as for `read_entry`.

    Raises:
        HistoryGoneError: where one of them is not there.
    """
    return (read_entry(path, version, partition_by) for version in range(first, last + 1))


def version_before(path: Path, moment: datetime, newest: int | None = None) -> int | None:
    """The newest version (up to one) committed at that time or earlier; None where the table did not exist then."""
    first, last = max(oldest_entry(path), 0), open_snapshot(path).version if newest is None else newest
    for version in range(last, first - 1, -1):
        if read_entry(path, version).time <= moment:
            return version
    return None


def snapshot_at(path: Path, version: int) -> Snapshot:
    """The table at a version whose log is still there; whether its files are is `gone_files`' to say.

    Raises:
        HistoryGoneError: where the table has no such version, or not any more.
    """
    name = table_name(path)
    newest = open_snapshot(path).version
    if not 0 <= version <= newest:
        raise HistoryGoneError(f"{name} has no version {version}; its versions are 0 to {newest}.")
    try:
        found = open_snapshot(path, version)
    except DeltaError as error:
        raise HistoryGoneError(
            f"{name}: the log entries that version {version} needs are gone ({error}). `lakehouse history {name}` "
            "lists what can be read."
        ) from error
    if found.version != version:  # delta-rs says "no table" where the oldest entries are gone
        raise HistoryGoneError(
            f"{name}: the log entries that version {version} needs are gone; the oldest one is that of version "
            f"{oldest_entry(path)}. `lakehouse history {name}` lists what can be read."
        )
    return found


def gone_files(path: Path, files: Collection[DataFile]) -> list[DataFile]:
    """Those of some files that are not there as the log says: removed by a vacuum, or cut short."""
    return [file for file in files if _size(path / file.path) != file.size]


def readable_at(path: Path, version: int) -> Snapshot:
    """The table at a version that can be read.

    Raises:
        HistoryGoneError: where it has no such version, or files of it were removed.
    """
    snapshot = snapshot_at(path, version)
    if gone := gone_files(path, snapshot.files):
        name = table_name(path)
        raise HistoryGoneError(
            f"{name} version {version} cannot be read any more: a vacuum or `lakehouse forget` has removed "
            f"{len(gone)} of its {len(snapshot.files)} files. `lakehouse history {name}` lists the versions that can "
            "be read."
        )
    return snapshot


def _size(path: Path) -> int:
    found = store.stat(path)
    return found.size if found else -1


def _modified(path: Path) -> float:
    found = store.stat(path)
    return found.modified if found else 0.0


def versions(path: Path, limit: int | None = None) -> list[TableVersion]:
    """The newest versions of a table, newest first, with what each changed and whether it can still be read.

    Args:
        path: folder of the table; no versions where it was never built.
        limit: most versions; None: all whose log entries are there.
    """
    newest = open_snapshot(path)
    if newest.version < 0:
        return []
    first = max(oldest_entry(path), 0 if limit is None else newest.version - limit + 1)
    first, before = _files_before(path, first, newest)
    live = {file.path: file for file in before}
    looked_at: dict[str, bool] = {}  # most files are of many versions: each is looked for once
    # Forwards from the first by what each entry adds and removes: to open a version costs what the table has of files.
    found: list[TableVersion] = []
    for entry in entries(path, first, newest.version, newest.partition_by):
        rows_before = _rows(live.values())
        # A version that only adds facts touches no day.
        touched = [live[name] for name in entry.removed if name in live] + list(entry.added.values())
        live = {name: file for name, file in live.items() if name not in entry.removed}
        live.update(entry.added)
        after = _rows(live.values())
        found.append(TableVersion(entry, days_of(touched), rows_before, after, _gone(path, live.values(), looked_at)))
    return found[::-1]


def _files_before(path: Path, first: int, newest: Snapshot) -> tuple[int, Collection[DataFile]]:
    """The first version from one on that is known, and the files of the one before it."""
    before = _opened(path, first - 1)
    if not first or before:
        return first, before.files if before else ()
    # The log begins here. Entries without the checkpoint that their versions need, as a clean-up that was killed leaves
    # them, say nothing: the next version that is known is that of a checkpoint.
    names = [each.name[:20] for each in store.listed(path / "_delta_log", "*.checkpoint*.parquet")]
    later = [int(each) for each in sorted(set(names)) if each.isdigit() and int(each) > first]
    known = next(filter(None, (_opened(path, each) for each in (first, *later))), newest)
    entry = read_entry(path, known.version, newest.partition_by)
    return known.version, [*(f for f in known.files if f.path not in entry.added), *entry.removed.values()]


def _opened(path: Path, version: int) -> Snapshot | None:
    """A version; None where the log does not say any more what it is."""
    try:
        found = open_snapshot(path, version) if version >= 0 else None
    except DeltaError:
        return None
    return found if found and found.exists else None  # of one older than the log, delta-rs says that there is no table


def _gone(path: Path, files: Collection[DataFile], looked_at: dict[str, bool]) -> int:
    """How many files are not there any more, or are not what was committed; what is found is added to `looked_at`."""
    for file in files:
        if file.path not in looked_at:
            looked_at[file.path] = _size(path / file.path) == file.size
    return sum(not looked_at[file.path] for file in files)


def _rows(files: Collection[DataFile]) -> int | None:
    try:
        return sum(file.rows for file in files)
    except HistoryGoneError:
        return None


def days_of(files: Collection[DataFile]) -> set[date]:
    """The daily partitions of some files."""
    days = set()
    for file in files:
        try:
            days.add(date.fromisoformat(file.partition[0] or ""))
        except (ValueError, IndexError):
            continue
    return days


def figures_in_log(snapshot: Snapshot, column: str, days: Collection[date]) -> dict[str, dict[str, Any]]:
    """What the commits up to a snapshot say of some days, by day as text, each with the code version that made the day.

    Of a day that they do not speak of, its rows are given. A commit that brings the days back repeats all of it, so
    that the history of metrics says what readers see.

    Args:
        snapshot: the newest version that counts.
        column: the table's day column.
        days: whose figures.
    """
    path, rows = Path(snapshot.uri), snapshot.rows_by_day(column)
    found: dict[str, dict[str, Any]] = {
        str(day): {"rows": rows.get(day, 0), "code_version": ""} for day in sorted(days)
    }
    # Backwards from the newest, until every day has been spoken of: what a newer commit says holds.
    wanted = set(found)  # of an empty day too: why it is empty may be what its checks warn of
    for number in range(snapshot.version, max(oldest_entry(path), 0) - 1, -1):
        if not wanted:
            break
        entry = read_entry(path, number)
        code = entry.facts.get("lakehouse.code_version", "")
        for day in wanted & entry.figures.keys():
            found[day] = {"code_version": code, **entry.figures[day]}
        # Newest first: the first entry that speaks of a day is the one that holds.
        wanted -= entry.figures.keys()
    return found
