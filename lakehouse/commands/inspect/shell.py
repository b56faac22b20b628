"""The shell of `lakehouse sql`: one query after another, with history and completion of names.

Python's own `readline` is enough for it: no library more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from lakehouse.commands.console import console, say, table
from lakehouse.commands.inspect.rows import Format, write_rows
from lakehouse.commands.inspect.run_query import Engine, ask
from lakehouse.delta.layout import table_path
from lakehouse.delta.opening import open_snapshot
from lakehouse.errors import LakehouseError
from lakehouse.query.names import built_names
from lakehouse.query.sql_text import QueryError, plain_parts
from lakehouse.settings import Settings
from lakehouse.texts import counted, near, program

HELP = r"""A query ends with ; and may have many lines. Tables are called by layer and name: silver.orders.
\d         list the tables        \d TABLE   list a table's columns
\?         this help              \q         end (so does Ctrl-D); Ctrl-C drops what is typed or running"""
_WORDS = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "ORDER",
    "HAVING",
    "LIMIT",
    "JOIN",
    "LEFT",
    "INNER",
    "USING",
    "DISTINCT",
    "COUNT",
    "SUM",
    "AVG",
    "MIN",
    "MAX",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "BETWEEN",
    "LIKE",
    "UNION",
    "WITH",
    "OVER",
    "PARTITION",
    "CAST",
    "DATE",
    "VERSION",
]
_MOST_LINES = 10_000  # of the history


def run_shell(settings: Settings, engine: Engine, as_of: list[str], limit: int) -> None:
    """Ask for queries and answer them until the user ends it.

    Args:
        settings: where the lakehouse is; the queries that were typed are kept under its root.
        engine: what answers.
        as_of: as `pinned` takes it, for every query.
        limit: most rows that are shown of an answer.
    """
    shell = Shell(settings, engine, as_of, limit)
    say(f"Tables of {settings.root}, read-only. \\? tells what can be typed.")
    with _history(settings.root / "sql_history"), _completed(shell.words):
        shell.run(input)


class Shell:
    """What was typed so far, and what is done with it."""

    def __init__(self, settings: Settings, engine: Engine, as_of: list[str], limit: int) -> None:
        self.settings, self.engine, self.as_of, self.limit = settings, engine, as_of, limit
        self.typed = ""
        self._columns = lru_cache(maxsize=None)(self._columns_of)

    def run(self, ask_line: Callable[[str], str]) -> None:
        r"""Take lines until they end or one is `\q`."""
        while True:
            try:
                line = ask_line("   ...> " if self.typed else "lake> ")
                if not self.take(line):
                    return
            except EOFError:
                say()
                return
            except KeyboardInterrupt:
                self.typed = ""
                say()
            except LakehouseError as error:
                say(f"Error: {error}")
            except Exception as error:  # noqa: BLE001  # one query's trouble does not end the shell
                say(f"Error: this should not have happened ({type(error).__name__}: {error}).")

    def take(self, line: str) -> bool:
        r"""One line: a command, or a part of a query. False after `\q`."""
        if not self.typed and (word := line.strip()).startswith("\\"):
            return self._command(*word.rstrip(";").split())
        self.typed += line + "\n"
        if not self.typed.strip():
            self.typed = ""
        elif _is_whole(self.typed):
            statement, self.typed = self.typed, ""
            self._show(statement)
        return True

    def _command(self, name: str, *arguments: str) -> bool:
        if name == "\\q":
            return False
        if name == "\\d" and len(arguments) <= 1:
            self._describe(*arguments)
        else:
            say(HELP if name == "\\?" else f"There is no command {' '.join((name, *arguments))}.\n{HELP}")
        return True

    def _show(self, statement: str) -> None:
        found = ask(
            self.settings, statement, pa.RecordBatchReader.read_all, as_of=self.as_of, limit=self.limit + 1,
            engine=self.engine,
        )  # fmt: skip
        rows = found.slice(0, self.limit)
        write_rows(rows, Format.TABLE)
        more = found.num_rows > self.limit
        say(f"Only the first {counted(self.limit, 'row')}." if more else f"{counted(rows.num_rows, 'row')}.")

    def _describe(self, name: str = "") -> None:
        known = built_names(self.settings)
        if not name:
            snapshots = {each: open_snapshot(table_path(self.settings.root, each)) for each in known}
            listed = [(each, found.version, found.live.rows) for each, found in snapshots.items()]
            console().print(table(("table", "version", "rows"), listed, right=("version", "rows")))
            return
        if name not in known:
            say(f"There is no table {name}.{near(name, known)} \\d lists the tables.")
            return
        snapshot = open_snapshot(table_path(self.settings.root, name))
        cells = [
            (column, kind, "partition" if column in snapshot.partition_by else "")
            for column, kind in self._columns(name)
        ]
        console().print(table(("column", "type", ""), cells))
        say(f"What they mean: {program()} describe {name.removesuffix('_quarantine')}")

    def _columns_of(self, name: str) -> list[tuple[str, str]]:
        from lakehouse.query.kinds import columns_of

        schema = open_snapshot(table_path(self.settings.root, name)).schema
        return [(column, str(kind)) for column, kind in columns_of(schema.to_json())] if schema else []

    def words(self, start: str, line: str) -> Iterator[str]:
        """What may stand for a word that was begun: tables, columns of those the query names (or of all), SQL."""
        known = built_names(self.settings)
        named = [each for each in known if each.lower() in (self.typed + line).lower()]
        columns = dict.fromkeys(column for each in named or known for column, _ in self._columns(each))
        low = start.lower()
        yield from (each for each in (*known, *columns) if each.lower().startswith(low))
        yield from (
            each if start.isupper() else each.lower() for each in _WORDS if low and each.lower().startswith(low)
        )


def _is_whole(text: str) -> bool:
    """Whether a query ends here: with a semicolon that is in no text, name or comment."""
    try:
        return "".join(plain_parts(text)).rstrip().endswith(";")
    except QueryError:
        return False


@contextlib.contextmanager
def _history(file: Path) -> Iterator[None]:
    """Earlier lines at hand. They may name people: the file is its owner's alone, and searched when one is erased."""
    import readline

    with contextlib.suppress(OSError):
        file.touch(mode=0o600)
        readline.read_history_file(file)
    readline.set_history_length(_MOST_LINES)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            readline.write_history_file(file)
            file.chmod(0o600)


@contextlib.contextmanager
def _completed(words: Callable[[str, str], Iterator[str]]) -> Iterator[None]:
    """The tab key completes a word."""
    import readline

    found: list[str] = []

    def complete(start: str, number: int) -> str | None:
        if number == 0:
            try:
                found[:] = words(start, readline.get_line_buffer())
            except (LakehouseError, OSError):
                found.clear()
        return found[number] if number < len(found) else None

    before, delimiters = readline.get_completer(), readline.get_completer_delims()
    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n,()<>=*/+-;'\"")
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(before)
        readline.set_completer_delims(delimiters)
