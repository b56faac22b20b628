"""The file system fails at every step of a publish: readers see the old day or the new one, and the next run fixes it."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pytest

from lakehouse.build import stage as staging
from lakehouse.delta import commit
from lakehouse.delta.opening import open_snapshot
from lakehouse.errors import DiskFullError, StagedFileError
from lakehouse_tests.faults.publisher import EXPECTED, Door, count, door

__all__ = ["door"]

pytestmark = pytest.mark.crash


class Faulty:
    """Counts the operations of our code on files under a root, and lets one of them fail.

    `mode`: `EIO` and `ENOSPC` fail instead of doing it, `after` does it and then fails, `torn` leaves half a file.
    """

    READS = ("stat", "listdir", "scandir", "footer")
    WRITES = ("mkdir", "replace", "unlink", "rmdir", "fsync", "commit")
    MEANT: ClassVar = {"EIO": READS + WRITES, "ENOSPC": WRITES, "after": WRITES, "torn": ("replace", "footer")}

    def __init__(self, door: Door, patch: pytest.MonkeyPatch) -> None:
        self.door, self.seen, self.fail_at, self.mode = door, 0, -1, ""
        self.root = str(door.lake.settings.root)
        self.armed, self.did = False, ""
        for name in (*self.READS[:-1], *self.WRITES[:-1]):
            patch.setattr(os, name, self._wrapped(name, getattr(os, name)))
        patch.setattr(pq, "read_metadata", self._wrapped("footer", pq.read_metadata))
        patch.setattr(commit, "put_entry", self._wrapped("commit", commit.put_entry))

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **kwargs: Any) -> Any:
            path = Path(f"/proc/self/fd/{args[0]}").readlink() if name == "fsync" else args[0] if args else ""
            of_ours = name == "commit" or str(path).startswith(self.root)
            if not self.armed or self.door.paused or not of_ours or name not in self.MEANT[self.mode]:
                return real(*args, **kwargs)
            self.seen += 1
            if self.seen - 1 != self.fail_at:
                return real(*args, **kwargs)
            self.did = name
            if self.mode == "after":
                made = real(*args, **kwargs)
                if hasattr(made, "close"):
                    made.close()
            if self.mode == "torn":
                return self._torn(name, real, *args, **kwargs)
            code = errno.ENOSPC if self.mode == "ENOSPC" else errno.EIO
            raise OSError(code, os.strerror(code), str(path))

        return operation

    def _torn(self, name: str, real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.armed = False
        try:
            if name == "replace":
                real(*args, **kwargs)
            path = Path(args[1] if name == "replace" else args[0])
            os.truncate(path, path.stat().st_size // 2)
            return None if name == "replace" else real(*args, **kwargs)
        finally:
            self.armed = True

    def run(self, generation: int, fail_at: int, mode: str) -> Exception | None:
        """Publish with the operation of that number failing; returns the error."""
        self.seen, self.fail_at, self.mode, self.did, self.armed = 0, fail_at, mode, "", True
        try:
            self.door.publish(generation)
        except EXPECTED as error:
            return error
        finally:
            self.armed = False
        return None


@pytest.mark.parametrize("mode", ["EIO", "ENOSPC", "after", "torn"])
def test_any_operation_may_fail(door: Door, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Without it, an I/O error at the wrong moment could publish half a day, or block every later run."""
    faulty = Faulty(door, monkeypatch)
    generation, fail_at, failed = 1, 0, 0
    while True:
        generation += 1
        error = faulty.run(generation, fail_at, mode)
        if not faulty.did:
            break  # the build has no operation of that number: all have had their turn
        assert not door.paused
        if error is None:
            door.check(generation)  # said to be done, so it is
        else:
            failed += 1
            door.check(generation - 1, generation)
            if mode == "ENOSPC":
                assert isinstance(error, DiskFullError), (faulty.did, error)
                assert f"no space left on the disk of {door.path} (" in str(error)
            elif mode == "torn" and faulty.did in ("replace", "footer"):
                assert isinstance(error, StagedFileError), error
            door.publish(generation)
            door.check(generation)
        assert door.done(generation)
        count(cases=1)
        fail_at += 1
    assert error is None
    assert fail_at >= len(Faulty.MEANT[mode]), "too few operations to prove anything"
    assert failed


@contextmanager
def largest_file(door: Door, size: int) -> Iterator[None]:
    """What this process writes is torn at a size, but for what the engine stages."""
    free = resource.getrlimit(resource.RLIMIT_FSIZE)
    stage = door._stage

    def stage_freely(*args: Any) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, free)
        stage(*args)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, free[1]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "write_routed", stage_freely)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, free[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, free)


def test_what_is_written_may_be_torn_anywhere(door: Door) -> None:
    """Without it, half a log entry could be read, or the next run find the place of its entry taken."""
    generation, failed = 1, 0
    log = door.path / "_delta_log"
    largest = max(path.stat().st_size for path in log.glob("*.json"))
    for size in [0, 1, *range(50, largest + 300, 300), *[largest + 300] * 20]:
        generation += 1
        error: Exception | None = None
        try:
            with largest_file(door, size):
                door.publish(generation)
        except EXPECTED as caught:
            error = caught
        if error is None:
            door.check(generation)
        else:
            failed += 1
            assert isinstance(error, DiskFullError), error
            door.check(generation - 1, generation)
            door.publish(generation)
            door.check(generation)
        assert door.done(generation)
        count(cases=1)
    assert failed > 3
    due = set(range(19, open_snapshot(door.path).version + 1, 20))
    there = {int(path.name.split(".")[0]) for path in log.glob("*.checkpoint.parquet")}
    assert due - there, "a checkpoint is among what was torn"
