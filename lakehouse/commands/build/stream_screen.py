"""What people see of a stream: its last turns."""

from __future__ import annotations

import sys
import time
from collections import deque

from rich.console import Group
from rich.live import Live
from rich.table import Table as Shown
from rich.text import Text

from lakehouse.commands.console import console
from lakehouse.runs.stream import Turn
from lakehouse.texts import days_text

SHOWN_TURNS = 10
_COLUMNS = ("turn", "messages", "s", "messages/s", "waiting", "lag s", "dead", "late", "watermark", "days built")


class Screen:
    """What people see: on a terminal the last turns, redrawn; elsewhere a line for each turn that took something."""

    def __init__(self, *, live: bool) -> None:
        self._turns: deque[Turn] = deque(maxlen=SHOWN_TURNS)
        self._total, self._since = 0, time.monotonic()
        self._live = Live(console=console(), transient=False) if live else None

    def __enter__(self) -> None:
        if self._live:
            self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, turn: Turn) -> None:
        """Add a turn."""
        self._total += turn.messages
        if self._live is None:
            if turn.messages or turn.failed:
                sys.stdout.write(self._line(turn) + "\n")
                sys.stdout.flush()
            return
        if turn.messages or turn.failed or not self._turns:
            self._turns.append(turn)
        self._live.update(self._drawn(turn))

    def _line(self, turn: Turn) -> str:
        facts = next(iter(turn.taken.values())).facts
        days = "; ".join(f"{name} {days_text(each.with_status('published'))}" for name, each in turn.built.items())
        failed = "".join(f"; NOT PUBLISHED {name}: {why}" for name, why in turn.failed.items())
        return (
            f"turn {turn.number}: {turn.messages:,} messages in {turn.seconds:.1f} s, {turn.left:,} waiting, "
            f"watermark {facts.get('batch/watermark')}{'; built ' + days if days else ''}{failed}"
        )

    def _drawn(self, turn: Turn) -> Group:
        table = Shown(*_COLUMNS)
        for each in self._turns:
            facts = next(iter(each.taken.values())).facts
            built = {day for made in each.built.values() for day in made.with_status("published")}
            table.add_row(
                str(each.number), f"{each.messages:,}", f"{each.seconds:.1f}", f"{each.messages / each.seconds:,.0f}",
                f"{each.left:,}", str(facts.get("batch/lag_seconds", "")), str(facts.get("batch/dead", "")),
                str(facts.get("batch/late_rows", "")), str(facts.get("batch/watermark", "")),
                days_text(sorted(built)) if built else "none",
            )  # fmt: skip
        rate = self._total / max(1e-9, time.monotonic() - self._since)
        failed = [Text(f"Not published: {name}: {why}", style="red") for name, why in turn.failed.items()]
        return Group(
            table,
            *failed,
            Text(f"{self._total:,} messages, {rate:,.0f} a second. Ctrl-C ends after the turn.", style="dim"),
        )
