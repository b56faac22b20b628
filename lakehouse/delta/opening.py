"""Open a table at its newest version: carried on from the last one that was read, by the few entries since."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from lakehouse import store
from lakehouse.delta.files import DataFile, file_of
from lakehouse.delta.layout import entry_path
from lakehouse.delta.snapshot import Snapshot, fresh_snapshot

_MOST_KEPT = 3  # versions of a table
# Partition values of other types may be written in several ways, so that a text does not say which is meant.
_PLAIN = {"string", "date", "integer", "long"}


def open_snapshot(path: Path, version: int | None = None) -> Snapshot:
    """A table as its log says; the newest version is carried on from the last one that was read, by what came since.

    A run looks at every log many times, and each look at a long one takes longer. The few versions read before it are
    kept too: a stream asks what its last batch was built from. What is returned is shared, and never changes.

    Args:
        path: folder of the table.
        version: the version to read; None for the newest.

    Raises:
        UnsupportedTableError: where the table uses a feature this project must not write to.
        DamagedLogError: where a checkpoint of the newest version is broken; it says what fixes it.
    """
    kept, state = _kept(path), _state(path)
    newest_first = kept.newest_first
    if version is not None:
        known = next((each for each in newest_first if each.identity and each.snapshot.version == version), None)
        return known.snapshot if known and known.identity == _identity(path, version) else fresh_snapshot(path, version)
    if state is None:
        return fresh_snapshot(path)
    last = newest_first[0] if newest_first else None
    if last and _still_newest(path, last, state):
        return last.snapshot
    # From what is known, by the few entries that came since; from scratch where the folder is another one.
    found = _carried_on(path, last) if last and last.state[0] == state[0] else None
    if found is None:
        found = fresh_snapshot(path)
        if found.exists and found.known_transactions is not None:
            found.__dict__.pop("delta", None)  # as large as all the rest, and hardly anybody asks for it
    if found.exists:
        older = (each for each in newest_first if each.snapshot.version < found.version)
        kept.newest_first = (_Read(found, state, _identity(path, found.version)), *older)[:_MOST_KEPT]
    else:
        kept.newest_first = ()
    return found


class _Read(NamedTuple):
    """A snapshot of a table, the state of the log's folder before it was read, and which its newest entry is."""

    snapshot: Snapshot
    state: tuple[int, int]
    identity: tuple[int, int, int] | None


@dataclass
class _Kept:
    """What is kept of a table: exchanged as a whole, since several threads may do so."""

    newest_first: Sequence[_Read] = ()


@lru_cache(maxsize=64)
def _kept(_path: Path) -> _Kept:
    return _Kept()


def _state(path: Path) -> tuple[int, int] | None:
    log = store.stat(path / "_delta_log")
    return (log.inode, log.modified_ns) if log else None


def _identity(path: Path, version: int) -> tuple[int, int, int] | None:
    """What tells an entry from another one of that number, as in a table that was made anew; None: it is not there."""
    found = store.stat(entry_path(path, version))
    return found.identity if found else None


def _still_newest(path: Path, last: _Read, state: tuple[int, int]) -> bool:
    """Whether what was read is what there is: asked of the log's folder, in a few calls however long the log is."""
    # Two commits may bear one time, by a clock that ticks every few milliseconds: so the next entry is looked for too.
    # And the folder does not tell where another copy of the table was written into its files: the newest entry does.
    version = last.snapshot.version
    next_one = entry_path(path, version + 1)
    return last.state == state and last.identity == _identity(path, version) and not store.exists(next_one)


def _carried_on(path: Path, last: _Read) -> Snapshot | None:
    """The newest version from the last one by the entries since; None where the log has to be read as a whole.

    That is where the last version's entry is not the one that was read, and for whatever is not plain files that come
    and go: new columns, features, or an entry that cannot be understood.
    """
    snapshot = last.snapshot
    if last.identity is None or _identity(path, snapshot.version) != last.identity or not _plain(snapshot):
        return None
    while True:
        try:
            text = store.read_text(entry_path(path, snapshot.version + 1))
        except FileNotFoundError:
            return snapshot
        except (OSError, ValueError):
            return None
        try:
            after = _after(snapshot, text)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        if after is None:
            return None
        snapshot = after


def _plain(snapshot: Snapshot) -> bool:
    if snapshot.schema is None:
        return False
    types = {each.name: getattr(each.type, "type", None) for each in snapshot.schema.fields}
    return all(types.get(name) in _PLAIN for name in snapshot.partition_by)


def _actions(entry: str) -> Iterator[tuple[str, Any]]:
    """The actions of a log entry by kind: one a line."""
    for line in entry.splitlines():
        if line:
            yield from json.loads(line).items()


def _with_nulls(action: Mapping[str, Any]) -> set[str]:
    counts = json.loads(action.get("stats") or "{}").get("nullCount") or {}
    return {name for name, number in counts.items() if number}


def _removed(action: Mapping[str, Any], snapshot: Snapshot) -> DataFile:
    file = file_of(action, snapshot.partition_by, snapshot.uri)
    if snapshot.partition_by and not action.get("partitionValues"):  # other writers need not repeat them
        file = file._replace(partition=snapshot.live.partition_of(file.path) or file.partition)
    return file


def _after(snapshot: Snapshot, entry: str) -> Snapshot | None:
    """The next version; None where its entry has more to say than files, transactions and facts."""
    added: list[DataFile] = []
    removed: list[DataFile] = []
    transactions: dict[str, int] = {}
    nulls: set[str] = set()
    for kind, action in _actions(entry):
        match kind:
            case "add" if not action.get("deletionVector"):
                added.append(file_of(action, snapshot.partition_by, snapshot.uri))
                nulls |= _with_nulls(action)
            case "remove":
                removed.append(_removed(action, snapshot))
            case "txn":
                transactions[action["appId"]] = int(action["version"])
            case "commitInfo":
                pass
            case _:
                return None
    if {file.path for file in added} & {file.path for file in removed}:
        return None
    made = replace(
        snapshot,
        version=snapshot.version + 1,
        live=snapshot.live.changed(added, removed) if added or removed else snapshot.live,
        null_columns=snapshot.null_columns | nulls,
    )
    known = snapshot.known_transactions
    made.__dict__["known_transactions"] = (
        None if known is None else {**known, **transactions} if transactions else known
    )
    return made
