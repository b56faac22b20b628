"""What the automation remembers from look to look, as Dagster keeps it: a text."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date

from lakehouse.days import contiguous

MOST_SPANS = 5  # of days, named in one sentence
Days = dict[str, dict[date, int]]
"""By table and day, a number over the fingerprint that the day would be published with, and what may refuse it."""


@dataclass(frozen=True)
class Cursor:
    """What the sensor remembers.

    Attributes:
        count: number of looks that asked for runs; a part of run keys.
        seen: the state of the lake in which nothing was due; empty: look again.
        asked: what was asked for and is still not published.
        ended: what waits because somebody ended its run, or restored it.
    """

    count: int
    seen: str = ""
    asked: Days = field(default_factory=dict)
    ended: Days = field(default_factory=dict)

    @staticmethod
    def of(text: str | None, now: float) -> Cursor:
        """From its text. Without one, counting starts at the clock, so that no run key of before comes again."""
        if not text:
            return Cursor(int(now))
        read = json.loads(text)
        asked, ended = (
            {
                name: {date.fromisoformat(day): int(state) for day, state in days.items()}
                for name, days in read.get(kept, {}).items()
            }
            for kept in ("asked", "ended")
        )
        return Cursor(int(read["count"]), str(read["seen"]), asked, ended)

    @property
    def waiting(self) -> str:
        """Which days wait because somebody decided so; empty where none do."""
        told = []
        for name, days in self.ended.items():
            spans = [str(a) if a == b else f"{a} … {b}" for a, b in contiguous(days)]
            told.append(f"{name} {', '.join(spans[:MOST_SPANS])}{', …' if len(spans) > MOST_SPANS else ''}")
        if not told:
            return ""
        waits = "these wait until their input changes or they are launched"
        return f" Somebody ended the run of {'; '.join(told)}, or restored them: {waits}."

    def text(self) -> str:
        """As Dagster stores it."""
        asked, ended = (
            {name: {day.isoformat(): state for day, state in sorted(days.items())} for name, days in kept.items()}
            for kept in (self.asked, self.ended)
        )
        return json.dumps({"count": self.count, "seen": self.seen, "asked": asked, "ended": ended})
