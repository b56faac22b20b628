"""What a stream says of code that has changed since it loaded it: it goes on with the code that it has."""

from __future__ import annotations

import time
from collections.abc import Iterable

from lakehouse.commands.console import say
from lakehouse.contracts import Table
from lakehouse.texts import program

EVERY = 30.0  # seconds: the files of each table are read for it


class CodeOnDisk:
    """Tells once of each table whose code on disk is another one than this process has loaded.

    A stream runs for weeks. Whoever changes a rule beside it and builds all days by it would have those that the stream
    touches built by the older rule again, and only `lakehouse status` would tell.
    """

    def __init__(self) -> None:
        self._tables: dict[str, Table] = {}
        self._told: dict[str, list[str]] = {}
        self._next = 0.0

    def look(self, built: Iterable[Table]) -> None:
        """Take in which tables were built, and look at their files where the time has come."""
        self._tables |= {each.id: each for each in built}
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY
        for name, table in self._tables.items():
            changed = table.changed_on_disk()
            if changed and changed != self._told.get(name):
                say(
                    f"{name}: {', '.join(changed)} changed on disk since this stream loaded the code; what it builds "
                    f"is of the loaded code, {table.code_version}. Start the stream again, then run: "
                    f"{program()} backfill --older-code"
                )
            self._told[name] = changed
