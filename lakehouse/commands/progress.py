"""What people see while runs are on: a line a table on a terminal, and messages on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

from rich import progress as shown
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from lakehouse.commands.console import engine_output_aside, say
from lakehouse.runs.listener import Listener
from lakehouse.settings import Settings
from lakehouse.spark.progress import QUERIES, Progress

_STATES = {"start": "running", "retry": "trying again", "failed": "[red]failed[/red]", "end": "done"}

_WIDE = 120  # columns of a terminal that leave room for a bar beside all that is told of a query


class NoBars:
    """Where standard error is no terminal: nothing is shown."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def step(self, table: str, state: str, days: int) -> None:
        """Do nothing, where `Bars` moves a bar.

        Args:
            table: by `layer.name`.
            state: as `Bars.step` takes it.
            days: that were published since the last call.
        """

    def query(self, progress: Progress | None) -> None:
        """Do nothing, where `Bars` shows how far a query is.

        Args:
            progress: of a query of this process; None: it is over.
        """


class Bars(NoBars):
    """A bar a table: days done of days asked for, and the table's elapsed time."""

    def __init__(self, console: Console, totals: Mapping[str, int]) -> None:
        self._progress = shown.Progress(
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
        self._wide = console.width >= _WIDE
        self._running = ""  # runs of this process build one table after the other
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
        """A table's step started, published days, is tried again, failed or ended.

        Args:
            table: by `layer.name`.
            state: `start`, `day`, `retry`, `failed` or `end`.
            days: that were published since the last call.
        """
        task = self._tasks.get(table)
        if task is None:
            return
        if state == "start":
            self._progress.start_task(task)
        if state in _STATES:
            self._progress.update(task, state=_STATES[state])
            self._running = table if state == "start" else ""
        if state in ("failed", "end"):
            self._progress.stop_task(task)
        if days:
            self._progress.advance(task, days)

    def query(self, progress: Progress | None) -> None:
        """A query of the running table is on for a while, or over.

        Args:
            progress: how far it is; None: it is over.
        """
        if (task := self._tasks.get(self._running)) is not None:
            text = _STATES["start"] if progress is None else str(progress) if self._wide else progress.brief
            self._progress.update(task, state=text)


class Terminal(Listener):
    """Shows runs on standard error: bars, where it is a terminal.

    Args:
        settings: where the engine's log is.
        verbose: show the log instead of the bars.
    """

    def __init__(self, settings: Settings, *, verbose: bool = False) -> None:
        self.verbose = verbose
        self._settings = settings
        self._bars = NoBars()

    @contextmanager
    def here(self, days: Mapping[str, int]) -> Iterator[None]:
        """Bars, while what the engine prints is led aside."""
        from lakehouse.spark.cluster import who_has_all_cores  # late, as it loads Spark

        if others := who_has_all_cores(self._settings):
            self.say(
                f"This run waits for the end of another: all cores of the cluster belong to {', '.join(others)}. "
                "Several runs share them where it is started with --connect (lakehouse engine cluster start)."
            )
        with (
            engine_output_aside(self._settings, verbose=self.verbose) as terminal,
            self._shown(Bars(terminal.progress, days) if terminal.progress else NoBars()),
            QUERIES.watched(self._bars.query),
        ):
            yield

    @contextmanager
    def elsewhere(self, days: Mapping[str, int]) -> Iterator[None]:
        """Bars alone."""
        shown = sys.stderr.isatty() and not self.verbose
        with self._shown(Bars(Console(file=sys.stderr), days) if shown else NoBars()):
            yield

    @contextmanager
    def _shown(self, bars: NoBars) -> Iterator[None]:
        self._bars = bars
        try:
            with bars:
                yield
        finally:
            self._bars = NoBars()

    def step(self, table: str, state: str, days: int) -> None:
        """Move the table's bar.

        Args:
            table: by `layer.name`.
            state: what its step does now.
            days: that were published since the last call.
        """
        self._bars.step(table, state, days)

    def say(self, text: str) -> None:
        """Say it on standard error."""
        say(text)
