"""Benchmarks, and what they measure with."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

_PAGE = os.sysconf("SC_PAGE_SIZE")


class PeakMemory:
    """Resident memory of this process and all below it (the JVM among them), watched while the `with` block runs.

    `peak_mb` is the largest sum seen, in MB of 10⁶ bytes; pages shared between processes count in each. It needs Linux's
    /proc and stays 0 elsewhere.
    """

    def __init__(self, every_seconds: float = 0.2) -> None:
        self.peak_mb = 0
        self._every_seconds = every_seconds
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="peak-memory", daemon=True)

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._watcher.join()

    def _watch(self) -> None:
        while True:
            self.peak_mb = max(self.peak_mb, round(tree_bytes(os.getpid()) / 1e6))
            if self._stop.wait(self._every_seconds):
                return


def tree_bytes(root: int) -> int:
    """Resident bytes of a process and its descendants, now."""
    parents: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for process, parent, pages in _processes():
        parents[process], sizes[process] = parent, pages * _PAGE
    total = 0
    for process in parents:
        ancestor = process
        while ancestor != root and ancestor in parents:
            ancestor = parents[ancestor]
        total += sizes[process] if ancestor == root else 0
    return total


def _processes() -> Iterator[tuple[int, int, int]]:
    """Yield process, parent and resident pages, from /proc/PID/stat's 4th and 24th field."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The second field, a name in brackets, may hold spaces.
            after_name = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        yield int(stat.parent.name), int(after_name[1]), int(after_name[21])
