"""How long each phase of a build takes."""

from __future__ import annotations

import time
from collections.abc import Mapping

ENGINE = "engine"  # its start: once a process, whatever is built in it


class Clock:
    """Adds seconds by phase to a mapping."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self._last = time.perf_counter()

    def lap(self, phase: str, engine: float = 0.0) -> None:
        """The time since the last lap belongs to this phase, but for the seconds that the engine took to start."""
        now = time.perf_counter()
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now - self._last - engine
        if engine:
            self._seconds[ENGINE] = self._seconds.get(ENGINE, 0.0) + engine
        self._last = now


def work(seconds: Mapping[str, float]) -> float:
    """What a build took by itself, in seconds: without the engine's start, which estimates must not multiply."""
    return sum(each for phase, each in seconds.items() if phase != ENGINE)
