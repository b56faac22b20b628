"""One entry of a Delta log, written whole and only where there is none of that number yet.

Delta-rs writes entries in the same way, but reads the state of all files after each: 0.4 s of a table with 100,000
files, whatever the commit says and with every hook switched off. What it writes and what is written here exclude each
other, for both put the entry in its place by a hard link, which fails where something is there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from lakehouse import store
from lakehouse.delta.files import DataFile
from lakehouse.delta.layout import entry_path
from lakehouse.delta.snapshot import Snapshot

CHECKPOINT_EVERY = 20
MANY_FILES = 10_000  # a checkpoint says all files again: above this number it is written for every CHECKPOINT_RARELY
CHECKPOINT_RARELY = 100
_AS_DELTA_RS = "!$&'()+,/:;=@~"  # what it leaves as it is in paths: a file is removed by the letters it was added by


def put_entry(
    current: Snapshot,
    added: Sequence[AddAction],
    removed: Iterable[DataFile],
    transactions: Mapping[str, int],
    facts: Mapping[str, Any],
    schema: Schema | None = None,
    *,
    data_change: bool = True,
) -> int:
    """Write the entry after `current`; it is on the disk when this returns. Returns its version.

    Args:
        current: the table as the caller knows it.
        added: files that become live.
        removed: live files that go.
        transactions: by application id.
        facts: what the history says of the commit.
        schema: the table's columns from then on; None: as they are.
        data_change: False where the added files hold the rows of the removed ones.

    Raises:
        CommitFailedError: there is such an entry already: another writer was first.
        OSError: the disk did not take it; nothing was committed.
    """
    now = int(time.time() * 1000)  # milliseconds, as the protocol has them
    gone = list(removed)
    actions: list[dict[str, Any]] = [{"commitInfo": _commit_info(current, now, bool(gone), facts)}]
    if schema is not None and schema != current.schema:
        actions.append({"metaData": _metadata(current, schema)})
    actions += [{"add": _add(each)} for each in added]
    actions += [{"remove": _remove(each, current.partition_by, now, data_change=data_change)} for each in gone]
    actions += [{"txn": {"appId": name, "version": value}} for name, value in transactions.items()]
    version = current.version + 1  # the place that makes two writers of one snapshot exclude each other
    text = "\n".join(json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in actions)
    _put(entry_path(Path(current.uri), version), text.encode())
    return version


def _put(entry: Path, text: bytes) -> None:
    try:
        # The one moment of a commit: before it readers see the old version, after it the new one, and nothing in
        # between.
        store.put_if_absent(entry, text)
    except FileExistsError:
        raise CommitFailedError(f"{entry.name} is there already: another writer was first.") from None


def _commit_info(current: Snapshot, now: int, replaces: bool, facts: Mapping[str, Any]) -> dict[str, Any]:
    mode = "Overwrite" if replaces else "Append"
    return {
        "timestamp": now,
        "operation": "WRITE",
        "operationParameters": {"mode": mode, "partitionBy": json.dumps(list(current.partition_by))},
        "engineInfo": "lakehouse",
        **facts,
    }


def _metadata(current: Snapshot, schema: Schema) -> dict[str, Any]:
    assert current.metadata is not None
    known = current.metadata
    return {
        "id": str(known.id),
        "name": known.name,
        "description": known.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema.to_json(),
        "partitionColumns": list(current.partition_by),
        "createdTime": known.created_time,
        "configuration": known.configuration,
    }


def _add(action: AddAction) -> dict[str, Any]:
    return {
        "path": quote(action.path, safe=_AS_DELTA_RS),
        "partitionValues": dict(action.partition_values),
        "size": action.size,
        "modificationTime": action.modification_time,
        "dataChange": action.data_change,
        "stats": action.stats,
    }


def _remove(file: DataFile, partition_by: Sequence[str], now: int, *, data_change: bool) -> dict[str, Any]:
    return {
        "path": file.logged_path or file.path,
        "dataChange": data_change,
        "deletionTimestamp": now,
        "extendedFileMetadata": True,
        "partitionValues": dict(zip(partition_by, file.partition, strict=True)),
        "size": file.size,
    }


def checkpoint_when_due(before: Snapshot, version: int) -> None:
    """Sum up the log in a checkpoint after some number of entries; what fails is left to the next one."""
    # It holds all live files again: of many files, one for every 20 entries would write more than the entries do.
    every = CHECKPOINT_EVERY if before.live.number < MANY_FILES else CHECKPOINT_RARELY
    if version % every == 0:
        with suppress(DeltaError, OSError):
            DeltaTable(before.uri, version=version).create_checkpoint()


def fsync_entries(table: Path, versions: Iterable[int]) -> None:
    """Wait until the log entries of some versions of a table, and checkpoints of them, are on the disk.

    What a commit needs is on the disk before it, and the commit before anybody is told: both outlive a power cut. Where
    the power is cut in between, the entry may be there, or a part of it, or nothing; nobody was told then.

    An entry never changes, so a process asks for each once: many writers would ask for each other's again and again.
    """
    log = table / "_delta_log"
    found = {each: store.stat(each) for each in (entry_path(table, version) for version in versions)}
    entries = {each: facts.identity for each, facts in found.items() if facts is not None}
    new = [each for each, identity in entries.items() if _FLUSHED.get(each) != identity]
    checkpoints = [each for entry in new if store.exists(each := entry.with_suffix(".checkpoint.parquet"))]
    store.fsync([*new, *checkpoints, *([log / "_last_checkpoint"] if checkpoints else [])], log)
    if len(_FLUSHED) > _MOST_FLUSHED:
        _FLUSHED.clear()
    _FLUSHED.update((each, entries[each]) for each in new)


_FLUSHED: dict[Path, tuple[int, int, int]] = {}
_MOST_FLUSHED = 10_000
