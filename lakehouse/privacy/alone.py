"""An erasure is alone: no other one beside it, and nothing that publishes without being a run of Dagster's.

A stream's commits would be conflicts for it; a candidate that read the person before would name them afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from lakehouse import store
from lakehouse.errors import LakehouseError

_LOOK_SECONDS = 1.0  # most that an erasure waits for somebody who only looks whether one is on


class BusyError(LakehouseError):
    """Something else is at work on the lakehouse."""


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """No other erasure, no stream and no build of a candidate, until the end of the block.

    Args:
        root: of the lakehouse.

    Raises:
        BusyError: one is on.
    """
    with _erasing(root, _LOOK_SECONDS):
        for each in store.listed(_streams(root)) if store.is_folder(_streams(root)) else ():
            with (
                suppress(FileNotFoundError),
                _held(each, f"{_who(each.name)} is on. End it (Ctrl-C or SIGTERM), then run it again."),
            ):
                store.delete(each)  # of one that was killed
        yield


@contextmanager
def no_erasure(root: Path, run_id: str) -> Iterator[None]:
    """No erasure until the end of the block. Several streams and builds of candidates may be on.

    Args:
        root: of the lakehouse.
        run_id: of the stream, or of the build of a candidate: that begins with `candidate`.

    Raises:
        BusyError: an erasure is on.
    """
    store.make_folder(_streams(root))  # of all who share the root, as their streams are: it holds locks
    # First its own lock, then a look at the other's, as an erasure does: whichever comes second sees the first.
    own = _streams(root) / run_id
    with _held(own, f"{run_id} is on."):
        try:
            with _erasing(root):
                pass
            yield
        finally:
            store.delete(own)


def erasure_is_on(root: Path) -> bool:
    """Whether an erasure is on: who can begin later waits for its end, and does not keep it from it.

    Args:
        root: of the lakehouse.
    """
    if not store.exists(root / "privacy" / "lock"):
        return False  # there never was one: a look leaves nothing behind
    try:
        with _erasing(root):
            return False
    except BusyError:
        return True


def _who(run_id: str) -> str:
    return "A build of a candidate" if run_id.startswith("candidate") else "A stream"


def _streams(root: Path) -> Path:
    return root / "privacy" / "streams"


@contextmanager
def _erasing(root: Path, patience: float = 0.0) -> Iterator[None]:
    store.make_folder(root / "privacy")
    with _held(root / "privacy" / "lock", "A `lakehouse forget` is on; wait for its end.", patience):
        yield


@contextmanager
def _held(path: Path, refusal: str, patience: float = 0.0) -> Iterator[None]:
    """A lock until the end of the block; it ends with its process, however that ends."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=patience)
    except Timeout:
        raise BusyError(refusal) from None
    try:
        yield
    finally:
        lock.release()
