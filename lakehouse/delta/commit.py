"""Commits: the only code that makes staged files visible, and what it refuses.

Spark never commits. Each log entry is written with put-if-absent, so no acknowledged commit can be overwritten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from typing import Any

from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from lakehouse import store
from lakehouse.delta.attempts import PATIENCE, committed
from lakehouse.delta.conflicts import already_committed, conflict, paths_of, transactions_at, transactions_hold
from lakehouse.delta.evolve import evolve, same_columns
from lakehouse.delta.gate import add_action, as_action, check_on_disk
from lakehouse.delta.layout import entry_path
from lakehouse.delta.log_writer import checkpoint_when_due, put_entry
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import DataFile, Snapshot
from lakehouse.delta.staged import StagedFile, delta_statistics
from lakehouse.delta.target import Commit, Target

_CONFIGURATION = {"delta.checkpointInterval": "20", "delta.logRetentionDuration": "interval 90 days"}


def ensure_table(target: Target) -> Snapshot:
    """The table's snapshot, after creating the table where it does not exist, or adding its contract's new columns."""
    snapshot = open_snapshot(target.path)
    if snapshot.version >= 0:
        return evolve(target.path, target.schema, target.partition_by, target.required, snapshot)
    there = store.existing_above(target.path)
    store.make_folder(target.path)
    try:
        DeltaTable.create(
            str(target.path),
            schema=Schema.from_json(target.schema.json()),
            partition_by=list(target.partition_by),
            # Two runs may be the first of a table at once: whoever is second finds it made.
            mode="ignore",
            description=target.description.split("\n")[0],
            configuration=_CONFIGURATION,
        )
    except (CommitFailedError, DeltaError):
        if open_snapshot(target.path).version < 0:  # nobody else created it either: the error is real
            raise
    # The folders above too, as far as they are new: else a power cut takes the table, and all commits to come.
    store.fsync([entry_path(target.path, 0)], there)
    return open_snapshot(target.path)


def replace_days(
    target: Target,
    base: Snapshot,
    files: Sequence[StagedFile],
    days: Sequence[date],
    commit: Commit,
    *,
    added: bool = False,
    read_whole: bool = False,
    patience: float = PATIENCE,
) -> int:
    """Replace whole days by staged files in one atomic commit; returns its version, the newest or one before.

    Args:
        target: the table.
        base: the snapshot the files were computed on.
        files: staged files, all inside `days`.
        days: every day replaced; one without files becomes empty.
        commit: transactions and facts recorded in the same log entry.
        added: the files come beside those of the days, which stay; nothing is replaced.
        read_whole: the files were computed from the whole table, so that a change of any day is a conflict.
        patience: seconds to try for while others commit.

    Raises:
        PublishConflictError: where another commit changed one of these days since `base`; DecidedMeanwhileError where
            somebody restored or swapped the table.
        StagedFileError, SchemaMismatchError: where a file is not what may be committed.
    """
    texts = sorted(day.isoformat() for day in days)
    check_on_disk(files)
    # The gate: each file is looked at once, before the first try, and refused by name.
    actions = [add_action(target, file, set(texts)) for file in files]

    def write(current: Snapshot, named: Commit) -> None:
        _write(target, current, files, actions, () if added else _of_days(target, current, days), named)

    # Before the entry that names them: it must never name a file that a power cut can take.
    store.fsync([file.path for file in files], target.path)
    # Commits of other days may come in between: the entry is then written onto their version.
    watched = None if read_whole else days
    return _commit_if_unchanged(target, base, watched, texts, commit, write, same_rows=True, patience=patience)


def append_batch(target: Target, base: Snapshot, files: Sequence[StagedFile], commit: Commit) -> int:
    """Add the files of a batch that goes on where `base` ends; returns the version that holds them.

    Args:
        target: the table.
        base: the snapshot that the batch was computed on.
        files: staged files of any days.
        commit: transactions, one of which numbers the batch, and facts for the history.

    Raises:
        PublishConflictError: where the batch's transactions are not what they are at `base` any more: another batch was
            added, or the table was restored.
        StagedFileError, SchemaMismatchError: where a file is not what may be committed.
    """
    check_on_disk(files)
    actions = [add_action(target, file, None) for file in files]

    def write(current: Snapshot, named: Commit) -> None:
        _write(target, current, files, actions, (), named)

    texts = sorted({str(file.partition[target.day_column]) for file in files})
    store.fsync([file.path for file in files], target.path)
    # No day is watched, since batches add to days; the transactions that number the batch are what must not have moved.
    return _commit_if_unchanged(target, base, [], texts, commit, write)


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
    """Put files in the place of others in one atomic commit; returns its version, the newest or one before.

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
    check_on_disk(added)
    actions = _checked_actions(target, added)
    position = base.partition_by.index(target.day_column)
    # For the message of a conflict: the days that somebody will look at.
    touched = {file.partition[position] for file in removed} | {file.partition[target.day_column] for file in added}
    texts = sorted(day for day in touched if day is not None)

    def write(current: Snapshot, named: Commit) -> None:
        _write(target, current, added, actions, removed, named, schema, strict=False)

    store.fsync([file.path for file in added], target.path)
    return _commit_if_unchanged(target, base, days, texts, commit, write)


def _checked_actions(target: Target, files: Sequence[StagedFile], *, data_change: bool = True) -> list[AddAction]:
    """The log entries of files whose rows have been through the gate before: of an older version, or merged ones."""
    names, pii = [f.name for f in target.schema.fields], tuple(target.pii)
    return [
        as_action(
            file,
            file.path.relative_to(target.path).as_posix(),
            delta_statistics(file, names, pii),
            data_change=data_change,
        )
        for file in files
    ]


def merge_files(
    target: Target, base: Snapshot, merged: Sequence[tuple[StagedFile, Sequence[DataFile]]], commit: Commit
) -> tuple[int, list[Sequence[DataFile]]]:
    """Put merged files in the place of those whose rows they hold; returns the version, and those that went.

    A file that went meanwhile is not brought back: what it was merged into is left out. No row changes, so whoever
    follows the table sees nothing new, and of two who merge the same files only one does.

    Args:
        target: the table.
        base: the snapshot that the files are of.
        merged: each new file, in the table's folder, and the live files it stands for.
        commit: facts recorded in the same log entry.

    Raises:
        PublishConflictError: where other writers won every attempt.
        StagedFileError: where a file is not there any more.
    """
    store.fsync([file.path for file, _ in merged], target.path)
    # Shared by the two functions below, for `write` must commit exactly what `begin` has found to be there still.
    left = list(merged)

    def begin(current: Snapshot) -> Commit | None:
        # Asked at each try: a group that lost a file to another commit is left out, or its rows would come back.
        live = {file.path for file in current.files}
        left[:] = [(file, old) for file, old in merged if all(each.path in live for each in old)]
        return commit if left else None

    def write(current: Snapshot, named: Commit) -> None:
        files, old = [file for file, _ in left], [each for _, old in left for each in old]
        added = _checked_actions(target, files, data_change=False)
        _write(target, current, files, added, old, named, strict=False, data_change=False)

    return committed(target.path, base, begin, write), [old for _, old in left]


def append(
    target: Target,
    files: Sequence[StagedFile],
    commit: Commit | Callable[[Snapshot], Commit],
    *,
    patience: float = PATIENCE,
) -> int:
    """Add staged files without replacing anything; returns the version that holds them, the newest or one before.

    The versions of an application number its batches: one that is not above the last is a repeat, and a no-op.

    Args:
        target: the table.
        files: staged files; none where only transactions are set.
        commit: transactions and facts; where they follow from what the table holds, a function of its snapshot, which
            is asked anew at each try.
        patience: seconds to try for while others commit.

    Raises:
        ValueError: without a transaction, since nothing else could tell a repeat.
        PublishConflictError: where other writers won every attempt.
        StagedFileError, SchemaMismatchError: where a file is not what may be committed.
    """
    base, actions = ensure_table(target), list[AddAction]()

    def begin(current: Snapshot) -> Commit | None:
        made = commit if isinstance(commit, Commit) else commit(current)
        if not made.transactions:
            raise ValueError(f"{target.path.name}: an append needs a transaction, or a repeat would double its rows.")
        # The batch is in the log already: by an attempt whose answer was lost, or by another process.
        if already_committed(current, made.transactions):
            return None
        if files and not actions:  # a repeat may come after its files were cleared away
            check_on_disk(files)
            actions.extend(add_action(target, file, None) for file in files)
            store.fsync([file.path for file in files], target.path)
        return Commit(made.transactions, {**made.metadata, "isBlindAppend": True})

    def write(current: Snapshot, named: Commit) -> None:
        _write(target, current, files, actions, (), named)

    return committed(target.path, base, begin, write, patience=patience)


def _commit_if_unchanged(
    target: Target,
    base: Snapshot,
    watched: Sequence[date] | None,
    texts: Sequence[str],
    commit: Commit,
    write: Callable[[Snapshot, Commit], None],
    *,
    same_rows: bool = False,
    patience: float = PATIENCE,
) -> int:
    """Commit on `base`, or on what came after it as long as the watched days (None: all) are as they were there.

    Where `same_rows`, another commit of the same transactions is as good as this one.
    """
    before = paths_of(base, target.day_column, watched)
    held = transactions_at(base, commit.transactions)

    def begin(current: Snapshot) -> Commit | None:
        if current.version == base.version:
            return commit
        # Others have committed since. Theirs and ours can both stand only if none touched what ours was made from.
        if same_rows and transactions_hold(current, commit.transactions) and held != commit.transactions:
            return None  # another run's, from the same inputs and code
        # Of a day that is empty before and after, the transactions alone tell that somebody published it.
        moved = any(current.transaction(name) != version for name, version in held.items())
        if moved or paths_of(current, target.day_column, watched) != before:
            raise conflict(base, current, texts)
        return commit

    return committed(target.path, base, begin, write, patience=patience)


def _write(  # noqa: PLR0913 - all that an entry says
    target: Target,
    current: Snapshot,
    files: Sequence[StagedFile],
    actions: Sequence[AddAction],
    removed: Iterable[DataFile],
    commit: Commit,
    schema: Schema | None = None,
    *,
    strict: bool = True,
    data_change: bool = True,
) -> None:
    """Write one log entry, whose files are on the disk.

    Only files that are older than the contract (`strict` is False) may be put into a table of other columns, or bring
    theirs with them (`schema`).
    """
    if strict:
        same_columns(target.path, target.schema, target.partition_by, current)
    check_on_disk(files)
    facts = {k: v if isinstance(v, bool) else _text(v) for k, v in commit.metadata.items()}
    # Put-if-absent is the one moment at which the commit happens; what fails after it changes nothing any more.
    version = put_entry(current, actions, removed, commit.transactions, facts, schema, data_change=data_change)
    checkpoint_when_due(current, version)


def _of_days(target: Target, current: Snapshot, days: Sequence[date]) -> list[DataFile]:
    by_day = current.by_day(target.day_column)
    return [file for day in sorted(set(days)) for file in by_day.get(day, ())]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), default=str)
