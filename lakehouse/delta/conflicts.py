"""What others have done to a table since a writer began, and what the writer is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from deltalake.exceptions import DeltaError

from lakehouse.delta.log import read_entry
from lakehouse.delta.snapshot import Snapshot, table_name
from lakehouse.delta.transactions import day_transaction
from lakehouse.errors import DecidedMeanwhileError, HistoryGoneError, PublishConflictError

_DECISIONS = {"restore": "restore", "swap": "candidate swap"}
"""Operations that are somebody's decision, and the command that makes each."""


def entries_since(base: Snapshot, current: Snapshot) -> list[dict[str, Any]]:
    """What the log says of each commit after `base`, the newest first; nothing where the table was made anew."""
    path, found = Path(current.uri), list[dict[str, Any]]()
    # Newest first: the last decision is the one to tell of.
    for version in range(current.version, base.version, -1):
        try:
            found.append(dict(read_entry(path, version).facts))
        except HistoryGoneError:  # cleaned up meanwhile; what is newer was told
            break
    return found


def conflict(base: Snapshot, current: Snapshot, days: Sequence[str]) -> PublishConflictError:
    """The error for a commit that began on `base` and is not to be made on `current`.

    A run that lost to another run may compute again from what is there now. One that lost to somebody's decision must
    not undo it a few seconds later, so that is an error of its own.

    Args:
        base: the table when the writer began.
        current: the table now.
        days: the days that it was to change, as text.
    """
    name = table_name(Path(base.uri))
    named = f"{days[0]} … {days[-1]}" if len(days) > 1 else "".join(days) or "a day"
    since = f"while this run was computing (version {base.version} → {current.version})"
    for entry in entries_since(base, current):
        # The newest decision counts, whatever runs came after it.
        if (operation := entry.get("lakehouse.operation")) in _DECISIONS:
            return DecidedMeanwhileError(
                f"{name}: {entry.get('lakehouse.by') or 'somebody'} ran `lakehouse {_DECISIONS[operation]}` {since}. "
                f"That stands, and this run published nothing over it. To publish {named} over it, run it again."
            )
    return PublishConflictError(
        f"{name}: another run published {named} (or a part of it) {since}. "
        "Its data stands whole, and this run published nothing over it. "
        "Run it again if this run's input is the newer one."
    )


def paths_of(snapshot: Snapshot, column: str, days: Sequence[date] | None) -> set[str]:
    """Live files of some days, or of the whole table.

    Args:
        snapshot: whose files.
        column: the partition column that says the day.
        days: which days; None: all, and files of no day too.
    """
    if days is None:
        # By paths and not by versions: a compaction moves no row, but it moves files, and these rows were computed from
        # the old ones.
        return {file.path for file in snapshot.files}
    by_day = snapshot.by_day(column)
    return {file.path for day in days for file in by_day.get(day, [])}


def moved_days(base: Snapshot, current: Snapshot, column: str, days: Sequence[date]) -> set[date]:
    """Those of some days that others have changed since: their files, or what they were published from.

    Args:
        base: the table when the writer began.
        current: the table now.
        column: the partition column that says the day.
        days: which days.

    Raises:
        DecidedMeanwhileError: where somebody restored or swapped the table.
        PublishConflictError: where the log of `base` has been cleaned up.
    """
    if current.version == base.version:
        return set()
    held = transactions_at(base, map(day_transaction, days))
    moved = {
        day
        for day in days
        if paths_of(base, column, [day]) != paths_of(current, column, [day])
        or current.transaction(day_transaction(day)) != held[day_transaction(day)]
    }
    error = conflict(base, current, sorted(day.isoformat() for day in moved)) if moved else None
    if isinstance(error, DecidedMeanwhileError):
        raise error
    return moved


def transactions_at(base: Snapshot, names: Iterable[str]) -> dict[str, int | None]:
    """Transactions at `base`, whose part of the log may be cleaned up before a commit that began on it is done.

    Raises:
        PublishConflictError: where it has been.
    """
    try:
        return {name: base.transaction(name) for name in names}
    except DeltaError as error:
        raise PublishConflictError(
            f"{table_name(Path(base.uri))}: the log of version {base.version}, on which this run "
            "began, has been cleaned up meanwhile. Nothing of this run was published. Run it again."
        ) from error


def transactions_hold(current: Snapshot, transactions: Mapping[str, int]) -> bool:
    """Whether these very transactions are the table's; without any, they are not."""
    # Without any transaction nothing says that the commits are one and the same.
    return bool(transactions) and all(current.transaction(k) == v for k, v in transactions.items())


def already_committed(current: Snapshot, transactions: Mapping[str, int]) -> bool:
    """Whether the table holds these transactions, or later ones of each application."""
    return all((current.transaction(k) or 0) >= v for k, v in transactions.items())
