"""One commit among other writers: tried until it is in the log, must not be made any more, or the time is over.

A log entry is written only where none is yet, so of writers that try at once one wins and the others look again.
They wait between tries, each as long as chance says, and no try makes a later one wait longer than `LONGEST_WAIT`: so
the chance of a writer that came first is never smaller than that of one that has just come. Writers of one machine try
one after the other, which wastes no try; nothing depends on it, and where files cannot be locked nobody does.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake.exceptions import CommitFailedError, DeltaError
from filelock import FileLock, Timeout

from lakehouse import store
from lakehouse.delta.layout import entry_path
from lakehouse.delta.log_writer import fsync_entries
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import Snapshot, table_name
from lakehouse.errors import PublishConflictError

if TYPE_CHECKING:
    from lakehouse.delta.target import Commit

PATIENCE = 600.0
"""Seconds: some hundred writers of one table at once take less than a minute."""
FIRST_WAIT, LONGEST_WAIT = 0.02, 2.0  # seconds, at most
_COMMIT_ID = "lakehouse.commit"  # tells a commit whose answer was lost from another run's
_TURN = 30.0  # seconds: a writer that holds its turn for longer hangs
_REFUSALS = 5  # in a row without any other commit: then it was no race that was lost


def tries(patience: float) -> Iterator[int]:
    """Numbers of tries from 1, with a random wait before each but the first; they end after `patience` seconds."""
    ends = time.monotonic() + patience
    for number in count(1):
        yield number
        # By chance over the whole span, which doubles up to its limit: writers that failed together do not come back
        # together.
        pause = random.uniform(0, min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(number, 16)))  # noqa: S311 - no secret
        if time.monotonic() + pause > ends:
            return
        time.sleep(pause)


def committed(
    path: Path,
    base: Snapshot,
    begin: Callable[[Snapshot], Commit | None],
    write: Callable[[Snapshot, Commit], None],
    *,
    patience: float = PATIENCE,
) -> int:
    """Make one commit; returns the version that it is, which others may have followed already.

    Args:
        path: folder of the table.
        base: the snapshot that the commit was decided on.
        begin: what to commit on a snapshot, the newest at each try: so whatever is derived from what the table holds is
            derived here. None where the table holds it already; it raises where it must not be committed any more.
        write: writes the commit's entry after that snapshot, without tries of its own.
        patience: seconds.

    Raises:
        PublishConflictError: where other writers won for so long.
    """
    commit_id, refusals = uuid.uuid4().hex, 0
    for _ in tries(patience):
        # A lock spares lost races on one machine and promises nothing: who else writes, the entry's name decides.
        with _turn(path):
            current = open_snapshot(path)
            # Asked of the newest version at each try: what was true of the last one may not be of this.
            commit, own = begin(current), entry_path(path, current.version + 1)
            try:
                if commit is not None:
                    write(current, replace(commit, metadata={**commit.metadata, _COMMIT_ID: commit_id}))
            except (CommitFailedError, DeltaError, OSError) as error:
                # The commit may have failed, or its answer may have been lost: only the log can tell.
                is_ours = _has(own, commit_id)
                # Refused without a rival: the disk or the log is at fault, and to go on trying would only hide it.
                refusals = refusals + 1 if is_ours is None else 0
                if is_ours is None and (refusals == _REFUSALS or not isinstance(error, CommitFailedError)):
                    raise
                if not is_ours:  # the race is lost, and the next try begins on what somebody else committed
                    continue
        version = current.version + (commit is not None)
        # Once a power cut cannot take it, or one it stands on, away any more.
        fsync_entries(path, range(base.version + 1, version + 1))
        return version
    raise PublishConflictError(
        f"{table_name(path)}: other writers won every commit for {patience:g} s, and nothing of this run was "
        "published. Run it again when fewer runs are on."
    )


def _has(entry: Path, commit_id: str) -> bool | None:
    """Whether an entry of the log is this commit; None where there is no such entry.

    One look: between two of them a rival could write the entry, and would pass for this commit.
    """
    try:
        return commit_id.encode() in store.read(entry)
    except FileNotFoundError:
        return None


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    """Wait until no other writer of this machine is trying, as far as that can be known."""
    lock, waits = _lock(path), True
    try:
        # The interval differs by chance, so that waiting writers do not all look at the same moment.
        lock.acquire(timeout=_TURN, poll_interval=random.uniform(0.02, 0.08))  # noqa: S311 - no secret
    except (Timeout, OSError, NotImplementedError):  # it hangs, or such files cannot be locked here
        waits = False
    try:
        yield
    finally:
        if waits:
            lock.release()


@lru_cache(maxsize=64)
def _lock(path: Path) -> FileLock:
    """One lock a table and process, which a thread may take again."""
    return FileLock(path / ".commit.lock")
