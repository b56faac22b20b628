"""The progress bar of a run: a line a table, on the terminal only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

_STATES = {"start": "running", "retry": "trying again", "failed": "[red]failed[/red]", "end": "done"}


class NoBars:
    """Where standard error is no terminal: nothing is shown."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def step(self, table: str, state: str, days: int) -> None:
        """Do nothing."""


class Bars(NoBars):
    """A bar a table: days done of days asked for, and the table's elapsed time."""

    def __init__(self, console: Console, totals: Mapping[str, int]) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[table]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("days"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[state]}"),
            console=console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {
            name: self._progress.add_task("", total=total, start=False, table=name, state="waiting")
            for name, total in totals.items()
        }

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def step(self, table: str, state: str, days: int) -> None:
        """A table's step started, published days, is tried again, failed or ended."""
        task = self._tasks.get(table)
        if task is None:
            return
        if state == "start":
            self._progress.start_task(task)
        if state in _STATES:
            self._progress.update(task, state=_STATES[state])
        if state in ("failed", "end"):
            self._progress.stop_task(task)
        if days:
            self._progress.advance(task, days)
