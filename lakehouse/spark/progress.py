"""How far the running queries of this process are, as a Spark Connect server tells it: numbers alone, no plan or value.

A server tells every two seconds of a query that is on, so of a short one nothing. An engine in the process itself tells
nothing: what it knows is behind `SparkContext`, which the lakehouse does without.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

LONG = 30.0  # seconds until a run's log tells of a query, and at least until it tells again
_GROWS = 10  # and until a tenth of the run's time has passed: 70 lines in a day


@dataclass(frozen=True)
class Progress:
    """How far one query is.

    Attributes:
        stages: that it has so far; more may follow, as its plan is decided while it runs.
        stages_done: of these.
        tasks: of these stages.
        tasks_done: of these.
        bytes_read: by all of them.
        seconds: since the server first told of it.
    """

    stages: int
    stages_done: int
    tasks: int
    tasks_done: int
    bytes_read: int
    seconds: float

    def __str__(self) -> str:
        """For people: `stage 2 of 3, 120 of 200 tasks, 1.2 GB read`."""
        read = f", {_size(self.bytes_read)} read" if self.bytes_read else ""
        return f"stage {self._stage} of {self.stages}, {self.tasks_done:,} of {self.tasks:,} tasks{read}"

    @property
    def brief(self) -> str:
        """For a narrow place: `stage 2/3, task 120/200`."""
        return f"stage {self._stage}/{self.stages}, task {self.tasks_done}/{self.tasks}"

    @property
    def _stage(self) -> int:
        return min(self.stages_done + 1, self.stages)


Watcher = Callable[[Progress | None], None]
"""Is told how far a query is, and None as soon as it is over."""


class Queries:
    """The queries of a process that are on, and who is told of them.

    Args:
        clock: seconds, which never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: dict[str, float] = {}
        self._watchers: list[Watcher] = []
        self._lock = threading.Lock()

    @contextmanager
    def watched(self, watcher: Watcher) -> Iterator[None]:
        """Tell somebody of every query, for as long as this is held; what they raise is left aside."""
        with self._lock:
            self._watchers.append(watcher)
        try:
            yield
        finally:
            with self._lock:
                self._watchers.remove(watcher)

    def handle(
        self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:  # as pyspark calls it
        """Take what pyspark tells: it calls this within the query, which must not fail by it.

        Args:
            stages: of the query so far.
            inflight_tasks: that run now.
            operation_id: of the query.
            done: it is over.
        """
        del inflight_tasks
        with suppress(Exception):
            found = None if done else self._seen(operation_id or "", list(stages or ()))
            if done and self._began.pop(operation_id or "", None) is None:
                return  # it was short: nobody was told
            for watcher in [*self._watchers]:
                with suppress(Exception):
                    watcher(found)

    def _seen(self, operation: str, stages: list[Any]) -> Progress:
        now = self._clock()
        return Progress(
            stages=len(stages),
            stages_done=sum(1 for each in stages if each.done),
            tasks=sum(each.num_tasks for each in stages),
            tasks_done=sum(each.num_completed_tasks for each in stages),
            bytes_read=sum(each.num_bytes_read for each in stages),
            seconds=now - self._began.setdefault(operation, now),
        )


class Seldom:
    """Tells of long queries in a log: after half a minute, and then ever more seldom.

    Args:
        tell: takes a line.
        clock: seconds, which never go back.
    """

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._clock = tell, clock
        self._began = self._told = clock()

    def __call__(self, progress: Progress | None) -> None:
        """Tell how far a query is, if it is time to."""
        now = self._clock()
        wait = max(LONG, (now - self._began) / _GROWS)
        if progress is not None and progress.seconds >= LONG - 2 and now - self._told >= wait:
            self._told = now
            self._tell(f"A query has run for {progress.seconds:.0f} s: {progress}.")


QUERIES = Queries()
"""Those of this process."""


def _size(number: int) -> str:
    size = float(number)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:  # noqa: PLR2004
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
