"""Builds in the background of a stream: tables whose days are built whole, on an engine's session of their own.

Such a build takes seconds, for which messages would else wait. It is of what was published when it began; what is taken
meanwhile is for the next one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Self

from tenacity import Retrying

from lakehouse.build.followers import Which, each_built
from lakehouse.build.result import BuildResult, merged
from lakehouse.contracts import Table
from lakehouse.read.lake import Lake
from lakehouse.runs.attempts import with_engine

Built = Mapping[str, BuildResult]
"""By table, what was built."""


class BackgroundBuilds:
    """Builds what is touched, from the beginning of a `with` block to its end.

    Args:
        lake: of this thread alone, with a session of its own: how an engine plans is set in the session.
        sources: tables with topics.
        run_id: recorded in the commits.
        every: seconds from one build to the next, at least; a build that takes longer is followed by a pause as long,
            so that half of the engine's time is left to the turns, however large the days become.
        attempts: how an error that may pass is tried again.
        then: is given what was built, in the thread.
    """

    def __init__(
        self,
        lake: Lake,
        sources: Sequence[Table],
        run_id: str,
        every: float,
        attempts: Retrying,
        then: Callable[[Built], object] = lambda _built: None,
    ) -> None:
        self._lake, self._sources, self._run_id = lake, sources, run_id
        self._every, self._attempts, self._then = every, attempts, then
        self._touched, self._ending = threading.Event(), threading.Event()
        self._done: SimpleQueue[Built] = SimpleQueue()
        self._error: BaseException | None = None
        # Whoever ends the process at once waits for no build: what it has not committed is not there.
        self._thread = threading.Thread(target=self._run, name="built whole", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._touched.set()
        self._thread.join()

    def touch(self) -> None:
        """Something was taken, or may have been: look which days are stale, and build them."""
        self._touched.set()

    def built(self) -> Built:
        """What was built and not told yet, by builds that failed afterwards, too."""
        found: Built = {}
        with suppress(Empty):
            while True:
                found = merged(found, self._done.get_nowait())
        return found

    def check(self) -> None:
        """Look whether builds go on.

        Raises:
            Exception: whatever a build has ended with; there are no more of them.
        """
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while self._touched.wait() and not self._ending.is_set():
                self._touched.clear()  # first: what is taken from here on may come too late for this build
                begun = time.monotonic()
                for attempt in self._attempts.copy():
                    built: Built = {}
                    with attempt, with_engine(self._lake):
                        for each in self._each_built():
                            built = merged(built, {each.table.id: each})
                    if built:  # by a try that failed, too: the next one finds these days as they are to be
                        self._done.put(built)
                        self._then(built)
                self._ending.wait(max(self._every, time.monotonic() - begun))
        except BaseException as error:  # noqa: BLE001  # told by the thread of the turns
            self._error = error

    def _each_built(self) -> Iterator[BuildResult]:
        for source in self._sources:
            yield from each_built(self._lake, source, self._run_id, Which.WHOLE)
