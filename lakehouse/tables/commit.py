"""The one door: the only code that makes staged files visible, and what it refuses.

Spark never commits. Each log entry is written with put-if-absent, so no acknowledged commit can be overwritten.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction
from pyspark.sql import types as T

from lakehouse.errors import PublishConflictError
from lakehouse.tables.conflicts import conflict, entries_since
from lakehouse.tables.durable import settle, settle_entries
from lakehouse.tables.evolve import evolve, same_columns
from lakehouse.tables.gate import add_action, as_action, check_on_disk
from lakehouse.tables.log_writer import checkpoint_when_due, put_entry
from lakehouse.tables.snapshot import DataFile, Snapshot, open_snapshot, table_name
from lakehouse.tables.staged import StagedFile, delta_statistics

MAX_ATTEMPTS = 20
_COMMIT_ID = "lakehouse.commit"  # tells a commit whose answer was lost from another run's
_CONFIGURATION = {"delta.checkpointInterval": "20", "delta.logRetentionDuration": "interval 90 days"}


@dataclass(frozen=True)
class Target:
    """A Delta table as the door sees it."""

    path: Path
    schema: T.StructType
    partition_by: tuple[str, ...]
    required: Collection[str] = ()
    pii: Collection[str] = ()
    extra_columns: Collection[str] = ()  # columns the files may hold beyond the schema
    description: str = ""

    @property
    def day_column(self) -> str:
        """The column whose dates are replaced."""
        return self.partition_by[0]


@dataclass(frozen=True)
class Commit:
    """What one commit says beside its files: transactions by application id, and facts for the history."""

    transactions: Mapping[str, int] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


def ensure_table(target: Target) -> Snapshot:
    """The table's snapshot, after creating the table where it does not exist, or adding its contract's new columns."""
    snapshot = open_snapshot(target.path)
    if snapshot.version >= 0:
        return evolve(target.path, target.schema, target.partition_by, target.required, snapshot)
    there = next(folder for folder in target.path.parents if folder.exists())
    target.path.mkdir(parents=True, exist_ok=True)
    try:
        DeltaTable.create(
            str(target.path),
            schema=Schema.from_json(target.schema.json()),
            partition_by=list(target.partition_by),
            mode="ignore",
            description=target.description.split("\n")[0],
            configuration=_CONFIGURATION,
        )
    except (CommitFailedError, DeltaError):
        if open_snapshot(target.path).version < 0:  # nobody else created it either: the error is real
            raise
    settle([target.path / "_delta_log" / f"{0:020}.json"], there)
    return open_snapshot(target.path)


def replace_days(
    target: Target,
    base: Snapshot,
    files: Sequence[StagedFile],
    days: Sequence[date],
    commit: Commit,
    *,
    read_whole: bool = False,
) -> int:
    """Replace whole days by staged files in one atomic commit; returns the new version.

    Args:
        target: the table.
        base: the snapshot the files were computed on.
        files: staged files, all inside `days`.
        days: every day replaced; one without files becomes empty.
        commit: transactions and facts recorded in the same log entry.
        read_whole: the files were computed from the whole table, so that a change of any day is a conflict.

    Raises:
        PublishConflictError: where another commit changed one of these days since `base`; DecidedMeanwhileError where
            somebody restored or swapped the table.
        StagedFileError, SchemaMismatchError: where a file is not what may be committed.
    """
    texts = sorted(day.isoformat() for day in days)
    check_on_disk(files)
    actions = [add_action(target, file, set(texts)) for file in files]
    commit = _named(commit)

    def write(current: Snapshot) -> None:
        _write(target, current, files, actions, _of_days(target, current, days), commit)

    return _land(target, base, None if read_whole else days, texts, commit, write, same_rows=True)


def append_batch(target: Target, base: Snapshot, files: Sequence[StagedFile], commit: Commit) -> int:
    """Add the files of a batch that goes on where `base` ends; returns the version that holds them.

    Raises:
        PublishConflictError: where the batch's transactions are not what they are at `base` any more: another batch was
            added, or the table was restored.
        StagedFileError, SchemaMismatchError: where a file is not what may be committed.
    """
    check_on_disk(files)
    actions = [add_action(target, file, None) for file in files]
    commit = _named(commit)

    def write(current: Snapshot) -> None:
        _write(target, current, files, actions, (), commit)

    texts = sorted({str(file.partition[target.day_column]) for file in files})
    return _land(target, base, [], texts, commit, write)


def exchange_files(
    target: Target,
    base: Snapshot,
    added: Sequence[StagedFile],
    removed: Sequence[DataFile],
    commit: Commit,
    *,
    days: Sequence[date] | None,
    schema: Schema | None = None,
) -> int:
    """Put files in the place of others in one atomic commit; returns the new version.

    For content that has passed the gate already: files of an older version of the table (a restore), or of a table of
    the same contract that was built beside it (a swap).

    Args:
        target: the table.
        base: the snapshot that the exchange was decided on.
        added: files in the table's folder, none of them live.
        removed: live files.
        commit: transactions and facts recorded in the same log entry.
        days: the days it is about, a change of which meanwhile is a conflict; None: the whole table.
        schema: the table's columns from then on; None: as they are.

    Raises:
        PublishConflictError: where another commit changed one of these days since `base`.
        StagedFileError: where a file is not there any more.
    """
    names = [f.name for f in target.schema.fields]
    actions = [
        as_action(file, file.path.relative_to(target.path).as_posix(), delta_statistics(file, names, tuple(target.pii)))
        for file in added
    ]
    commit = _named(commit)
    position = base.partition_by.index(target.day_column)
    touched = {file.partition[position] for file in removed} | {file.partition[target.day_column] for file in added}
    texts = sorted(day for day in touched if day is not None)

    def write(current: Snapshot) -> None:
        _write(target, current, added, actions, removed, commit, schema, strict=False)

    return _land(target, base, days, texts, commit, write)


def _land(
    target: Target,
    base: Snapshot,
    watched: Sequence[date] | None,
    texts: Sequence[str],
    commit: Commit,
    write: Callable[[Snapshot], None],
    *,
    same_rows: bool = False,
) -> int:
    """Commit on `base`, or on what came after it as long as the watched days (None: all) are as they were there.

    Where `same_rows`, another commit of the same transactions is as good as this one.
    """
    before = _paths(base, target.day_column, watched)
    held = _held(target, base, commit)
    current = base
    for _ in range(MAX_ATTEMPTS):
        try:
            write(current)
        except (CommitFailedError, DeltaError, OSError) as error:
            # The commit may have failed, or its answer may have been lost: only the log can tell.
            tried, current = current.version, open_snapshot(target.path)
            same = same_rows and _transactions_hold(current, commit) and held != commit.transactions
            if same or _landed(current, base, commit):  # another run's, from the same inputs and code; or this very one
                return _settled(target, base, current)
            moved = any(current.transaction(name) != version for name, version in held.items())
            if moved or _paths(current, target.day_column, watched) != before:
                raise conflict(base, current, texts) from error
            if not isinstance(error, CommitFailedError) and current.version == tried:
                raise
            continue
        return _settled(target, base, open_snapshot(target.path))
    raise PublishConflictError(
        f"{target.path.name}: {MAX_ATTEMPTS} commits in a row lost the race against other writers. Run it again."
    )


def append(target: Target, files: Sequence[StagedFile], commit: Commit) -> int:
    """Add staged files without replacing anything; returns the version that holds them.

    The versions of an application number its batches: one that is not above the last is a repeat, and a no-op.

    Raises:
        ValueError: without a transaction, since nothing else could tell a repeat.
        PublishConflictError: where other writers won every attempt.
        StagedFileError, SchemaMismatchError: where a file is not what may be committed.
    """
    if not commit.transactions:
        raise ValueError(f"{target.path.name}: an append needs a transaction, or a repeat would double its rows.")
    base = current = ensure_table(target)
    if _passed(current, commit):
        return current.version
    check_on_disk(files)
    actions = [add_action(target, file, None) for file in files]
    commit = _named(Commit(commit.transactions, {**commit.metadata, "isBlindAppend": True}))
    for _ in range(MAX_ATTEMPTS):
        try:
            _write(target, current, files, actions, (), commit)
        except (CommitFailedError, DeltaError, OSError) as error:
            tried, current = current.version, open_snapshot(target.path)
            if _landed(current, base, commit) or _passed(current, commit):
                return _settled(target, base, current)
            if not isinstance(error, CommitFailedError) and current.version == tried:
                raise
            continue
        return _settled(target, base, open_snapshot(target.path))
    raise PublishConflictError(f"{target.path.name}: {MAX_ATTEMPTS} appends in a row lost the race. Run it again.")


def _settled(target: Target, base: Snapshot, current: Snapshot) -> int:
    """The version that holds a commit made since `base`, once a power cut cannot take it away any more."""
    settle_entries(target.path, range(base.version + 1, current.version + 1))
    return current.version


def _named(commit: Commit) -> Commit:
    return Commit(commit.transactions, {**commit.metadata, _COMMIT_ID: uuid.uuid4().hex})


def _write(
    target: Target,
    current: Snapshot,
    files: Sequence[StagedFile],
    actions: Sequence[AddAction],
    removed: Iterable[DataFile],
    commit: Commit,
    schema: Schema | None = None,
    strict: bool = True,
) -> None:
    """Write one log entry, once the files it adds are there to stay.

    Only files that are older than the contract (`strict` is False) may be put into a table of other columns, or bring
    theirs with them (`schema`).
    """
    if strict:
        same_columns(target.path, target.schema, target.partition_by, current)
    check_on_disk(files)
    settle([file.path for file in files], target.path)
    facts = {k: v if isinstance(v, bool) else _text(v) for k, v in commit.metadata.items()}
    version = put_entry(current, actions, removed, commit.transactions, facts, schema)
    checkpoint_when_due(current, version)


def _of_days(target: Target, current: Snapshot, days: Sequence[date]) -> list[DataFile]:
    by_day = current.by_day(target.day_column)
    return [file for day in sorted(set(days)) for file in by_day.get(day, ())]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), default=str)


def _paths(snapshot: Snapshot, column: str, days: Sequence[date] | None) -> set[str]:
    """Live files of some days, or of the whole table."""
    if days is None:
        return {file.path for file in snapshot.files}
    by_day = snapshot.by_day(column)
    return {file.path for day in days for file in by_day.get(day, [])}


def _landed(current: Snapshot, base: Snapshot, commit: Commit) -> bool:
    """Whether this very commit is in the log since `base`, whatever came after it."""
    return any(each.get(_COMMIT_ID) == commit.metadata[_COMMIT_ID] for each in entries_since(base, current))


def _transactions_hold(current: Snapshot, commit: Commit) -> bool:
    return bool(commit.transactions) and all(current.transaction(k) == v for k, v in commit.transactions.items())


def _held(target: Target, base: Snapshot, commit: Commit) -> dict[str, int | None]:
    """The transactions at `base`, whose part of the log may be cleaned up before the commit is done."""
    try:
        return {name: base.transaction(name) for name in commit.transactions}
    except DeltaError as error:
        raise PublishConflictError(
            f"{table_name(target.path)}: the log of version {base.version}, on which this run "
            "began, has been cleaned up meanwhile. Nothing of this run was published. Run it again."
        ) from error


def _passed(current: Snapshot, commit: Commit) -> bool:
    return all((current.transaction(k) or 0) >= v for k, v in commit.transactions.items())
