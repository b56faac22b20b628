"""How long each phase of a build takes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

ENGINE = "engine"  # its start: once a process, whatever is built in it


@dataclass(frozen=True)
class Laps:
    """The seconds that each phase has taken up to the last lap.

    Attributes:
        seconds: by phase, in the order in which the phases ended.
        since: when the running phase began, on the process's own clock.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    since: float = field(default_factory=time.perf_counter)

    def lap(self, phase: str, engine: float = 0.0) -> Laps:
        """The time since the last lap belongs to this phase, but for the seconds that the engine took to start."""
        now = time.perf_counter()  # a phase may come twice: its seconds add up
        seconds = {**self.seconds, phase: self.seconds.get(phase, 0.0) + now - self.since - engine}
        if engine:
            seconds[ENGINE] = seconds.get(ENGINE, 0.0) + engine
        return Laps(seconds, now)

    @property
    def work(self) -> float:
        """Seconds of all phases, to the millisecond, but without the engine's start: estimates must not multiply it."""
        return round(sum(each for phase, each in self.seconds.items() if phase != ENGINE), 3)
