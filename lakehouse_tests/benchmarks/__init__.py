"""Benchmarks, and what they measure with."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self


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


def usage() -> Usage:
    """Return what this process and its living descendants hold and have used so far; zeros without /proc."""
    page, tick = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
    found = {process: (parent, pages, ticks) for process, parent, pages, ticks in _processes()}
    pages = ticks = 0
    for process in found:
        ancestor = process
        while ancestor != os.getpid() and ancestor in found:
            ancestor = found[ancestor][0]
        if ancestor == os.getpid():
            pages += found[process][1]
            ticks += found[process][2]
    return Usage(pages * page / 1e6, ticks / tick)


def _processes() -> Iterator[tuple[int, int, int, int]]:
    """Yield process, parent, resident pages and CPU ticks of all processes."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The second field, a name in brackets, may hold spaces; counting starts after it.
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        yield int(stat.parent.name), int(fields[1]), int(fields[21]), int(fields[11]) + int(fields[12])
