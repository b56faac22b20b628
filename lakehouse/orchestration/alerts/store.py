"""What alerts remember: how far the event log was read, what fails, and what each sink still has to get.

One SQLite file beside Dagster's own state. Reading on, what it means and what is to be sent are one transaction, so a
process that is killed anywhere has either taken in a step whole or not at all.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lakehouse.orchestration.alerts.message import Message
from lakehouse.orchestration.alerts.problems import Key, News, Problem

MOST_KEPT = 10_000  # messages; older ones go once every sink has them

_TABLES = """
CREATE TABLE IF NOT EXISTS position (one INTEGER PRIMARY KEY CHECK (one = 1), event INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS problems (
    table_name TEXT, check_name TEXT, day TEXT, severity TEXT, since REAL, told REAL, seen INTEGER, text TEXT,
    PRIMARY KEY (table_name, check_name, day));
CREATE TABLE IF NOT EXISTS messages (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS deliveries (
    id TEXT, sink TEXT, delivered INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0, error TEXT,
    PRIMARY KEY (id, sink));
"""


@dataclass(frozen=True)
class Pending:
    """A message that a sink has not got yet."""

    message: Message
    sink: str


class Store:
    """The alerts' memory in a file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    @property
    def position(self) -> int | None:
        """Id of the last event taken in; None before the first look."""
        row = self._db.execute("SELECT event FROM position").fetchone()
        return int(row[0]) if row else None

    def problems(self) -> dict[Key, Problem]:
        """What fails."""
        rows = self._db.execute("SELECT table_name, check_name, day, severity, since, told, seen, text FROM problems")
        return {row[:3]: Problem(row[:3], *row[3:]) for row in rows.fetchall()}

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, on disk at the end."""
        # Locked at once, not at the first write: of two looks at one time the second waits before it has read anything.
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def move(self, position: int) -> None:
        """Remember how far the event log was read."""
        self._db.execute("INSERT OR REPLACE INTO position VALUES (1, ?)", (position,))

    def take(self, news: News, sinks: Collection[str]) -> None:
        """Remember what a step changed, and that each sink has to get its messages."""
        for each in news.problems:
            row = (*each.key, each.severity, each.since, each.told, each.seen, each.text)
            self._db.execute("INSERT OR REPLACE INTO problems VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        self._db.executemany("DELETE FROM problems WHERE table_name=? AND check_name=? AND day=?", news.over)
        for message in news.messages:
            body = json.dumps(asdict(message))
            # Its id is made of what it says, so a step that is taken in again after a crash tells nothing twice.
            self._db.execute("INSERT OR IGNORE INTO messages (id, body) VALUES (?, ?)", (message.id, body))
            for sink in sinks:
                self._db.execute("INSERT OR IGNORE INTO deliveries (id, sink) VALUES (?, ?)", (message.id, sink))

    def pending(self) -> list[Pending]:
        """What is still to be sent, oldest first."""
        rows = self._db.execute(
            "SELECT body, sink FROM deliveries JOIN messages USING (id) WHERE NOT delivered ORDER BY number, sink"
        )
        return [Pending(_message(body), sink) for body, sink in rows.fetchall()]

    def delivered(self, each: Pending) -> None:
        """The sink has the message."""
        self._db.execute(
            "UPDATE deliveries SET delivered=1, attempts=attempts+1, error=NULL WHERE id=? AND sink=?",
            (each.message.id, each.sink),
        )

    def not_delivered(self, each: Pending, error: str) -> None:
        """The sink did not take the message; it stays pending."""
        self._db.execute(
            "UPDATE deliveries SET attempts=attempts+1, error=? WHERE id=? AND sink=?",
            (error, each.message.id, each.sink),
        )

    def drop(self, each: Pending) -> None:
        """There is no such sink any more."""
        self._db.execute("DELETE FROM deliveries WHERE id=? AND sink=?", (each.message.id, each.sink))

    def tidy(self, most_kept: int = MOST_KEPT) -> None:
        """Forget messages that every sink has, but the newest."""
        with self.transaction():
            self._db.execute(
                "DELETE FROM messages WHERE number <= (SELECT max(number) FROM messages) - ? "
                "AND id NOT IN (SELECT id FROM deliveries WHERE NOT delivered)",
                (most_kept,),
            )
            self._db.execute("DELETE FROM deliveries WHERE id NOT IN (SELECT id FROM messages)")

    def recent(self, limit: int) -> list[dict[str, Any]]:
        """The newest messages, newest first, with how each sink stands: `sent`, or why not."""
        found = []
        for number, body in self._db.execute(
            "SELECT number, body FROM messages ORDER BY number DESC LIMIT ?", (limit,)
        ).fetchall():
            rows = self._db.execute(
                "SELECT sink, delivered, error FROM deliveries JOIN messages USING (id) WHERE number=? ORDER BY sink",
                (number,),
            )
            sinks = {sink: "sent" if sent else error or "waiting" for sink, sent, error in rows.fetchall()}
            found.append({**_message(body).as_json(), "sinks": sinks})
        return found


@contextmanager
def opened_store(path: Path) -> Iterator[Store]:
    """The memory in a file, made where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # No isolation level: transactions begin and end where `transaction` says, not where the driver guesses.
    with closing(sqlite3.connect(path, timeout=10, isolation_level=None)) as connection:
        connection.executescript(_TABLES)
        yield Store(connection)


def _message(body: str) -> Message:
    values = json.loads(body)
    return Message(**{**values, "days": tuple(values["days"])})
