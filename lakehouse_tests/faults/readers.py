"""Readers that look at crashing tables all the while, and count what they must never see."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from deltalake import DeltaTable

from lakehouse.read.lake import table_path
from lakehouse.read.rows import files_of
from lakehouse_tests.faults.crashing import COLUMNS, Rows

Reader = Callable[[Path, Sequence[str]], list[tuple[Any, ...]]]
WRONGS = ("lost", "doubled", "violating")


def by_delta_rs(path: Path, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows as anybody's delta-rs reads them."""
    rows = DeltaTable(str(path)).to_pyarrow_table(columns=list(columns)).to_pylist()
    return [tuple(row[c] for c in columns) for row in rows]


def by_snapshot(path: Path, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows as this project reads them without an engine: the files that its snapshot names."""
    return [tuple(row[c] for c in columns) for part in files_of(path, columns) for row in part.to_pylist()]


READERS: tuple[Reader, ...] = (by_delta_rs, by_snapshot)


def look(root: Path, reader: Reader = by_delta_rs) -> dict[str, list[tuple[Any, ...]]]:
    """What one reader sees of each table and quarantine."""
    return {name: reader(table_path(root, name), columns) for name, columns in COLUMNS.items()}


def judge(rows: list[tuple[Any, ...]], allowed: Sequence[Rows]) -> Counter[str]:
    """What is wrong with a table's rows, by rows: they must be one of the whole states that passed an audit."""
    found = frozenset(rows)
    nearest = min(allowed, key=lambda state: len(state ^ found))
    return Counter({"lost": len(nearest - found), "doubled": len(rows) - len(found), "violating": len(found - nearest)})


class Poller(threading.Thread):
    """A reader that looks until it is told to end."""

    def __init__(self, root: Path, allowed: Sequence[Mapping[str, Rows]], reader: Reader) -> None:
        super().__init__(daemon=True)
        self.root, self.allowed, self.reader = root, allowed, reader
        self.wrong: Counter[str] = Counter()
        self.examples: list[tuple[str, list[tuple[Any, ...]]]] = []
        self.error: Exception | None = None
        self.looks = 0
        self._end = threading.Event()

    def run(self) -> None:
        """Look until told to end: at once when an entry is put into a log, and every second."""
        seen, due = list[list[Path]](), 0.0
        try:
            while not self._end.wait(0.05):
                logs = [sorted((table_path(self.root, name) / "_delta_log").iterdir()) for name in COLUMNS]
                if logs == seen and time.monotonic() < due:
                    continue  # between two entries a reader sees the same, whenever it looks
                seen, due = logs, time.monotonic() + 1
                for name, rows in look(self.root, self.reader).items():
                    found = judge(rows, [state[name] for state in self.allowed])
                    self.wrong += found
                    if found.total():
                        self.examples.append((name, rows))
                self.looks += 1
        except Exception as error:  # noqa: BLE001 - a reader must never fail: told by the test, not by the thread
            self.error = error

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join(30)
