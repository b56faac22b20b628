"""How long each phase of a build takes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Laps:
    """The seconds that each phase has taken up to the last lap.

    Attributes:
        seconds: by phase, in the order in which the phases ended.
        since: when the running phase began, on the process's own clock.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    since: float = field(default_factory=time.perf_counter)

    def lap(self, phase: str) -> Laps:
        """The time since the last lap belongs to this phase."""
        now = time.perf_counter()  # a phase may come twice: its seconds add up
        return Laps({**self.seconds, phase: self.seconds.get(phase, 0.0) + now - self.since}, now)

    @property
    def total(self) -> float:
        """Seconds of all phases, to the millisecond."""
        return round(sum(self.seconds.values()), 3)
