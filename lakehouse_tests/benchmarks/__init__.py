"""Benchmarks, and what they measure with."""

import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

COMPARED = (
    "bronze.online_retail", "bronze.events", "silver.transactions", "silver.orders", "gold.daily_revenue", "gold.user_features",
)  # fmt: skip
"""The tables that the plain script builds too."""


class Usage(NamedTuple):
    """What a process and its living descendants (a JVM among them) hold and have used."""

    resident_mb: float
    cpu_seconds: float


class PeakMemory:
    """Watches the resident memory of this process and its descendants while the `with` block runs.

    `peak_mb` is the largest sum seen, in MB of 10⁶ bytes; pages shared between processes count in each. It needs
    Linux's /proc and stays 0 elsewhere.
    """

    def __init__(self, every_seconds: float = 0.2) -> None:
        self.peak_mb = 0.0
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
            self.peak_mb = max(self.peak_mb, round(usage().resident_mb))
            if self._stop.wait(self._every_seconds):
                return


class _Process(NamedTuple):
    parent: int
    ticks: int
    pages: int
    stack: int


def usage() -> Usage:
    """Return what this process and its living descendants hold and have used so far; zeros without /proc."""
    running = dict(_processes())
    ours = [process for pid, process in running.items() if _is_ours(pid, running)]
    pages = sum(process.pages for process in ours if not _is_copy(process, running))
    ticks = sum(process.ticks for process in ours)
    return Usage(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, ticks / os.sysconf("SC_CLK_TCK"))


def _is_ours(pid: int, running: Mapping[int, _Process]) -> bool:
    while pid != os.getpid() and pid in running:
        pid = running[pid].parent
    return pid == os.getpid()


def _is_copy(process: _Process, running: Mapping[int, _Process]) -> bool:
    """True between fork and exec, while the pages are still the parent's: Hadoop starts a chmod for each file so."""
    parent = running.get(process.parent)
    return parent is not None and process.stack == parent.stack != 0


def _processes() -> Iterator[tuple[int, _Process]]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The second field, a name in brackets, may hold spaces; counting starts after it.
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parent, user, system, pages, stack = (int(fields[number]) for number in (1, 11, 12, 21, 25))
        yield int(stat.parent.name), _Process(parent, user + system, pages, stack)
