"""Who is told what runs do: the commands show it on a terminal, programs keep quiet."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext


class Listener:
    """Told what happens while runs are on; this one keeps quiet.

    Attributes:
        verbose: Dagster and the engine print their logs, instead of writing what they print to a file.
    """

    verbose = False

    def here(self, days: Mapping[str, int]) -> AbstractContextManager[object]:
        """Held while runs are executed in this process, on an engine that prints to its standard error.

        Args:
            days: by table, how many days the runs are over.
        """
        del days
        return nullcontext()

    def elsewhere(self, days: Mapping[str, int]) -> AbstractContextManager[object]:
        """Held while runs are executed by other processes.

        Args:
            days: by table, how many days the runs are over.
        """
        del days
        return nullcontext()

    def step(self, table: str, state: str, days: int) -> None:
        """A table's step came into a state, or published days.

        Args:
            table: by `layer.name`.
            state: `start`, `day`, `retry`, `failed` or `end`.
            days: how many more days of it are done.
        """

    def say(self, text: str) -> None:
        """Something people should know."""


QUIET = Listener()
