"""kill -9 at every point of a build: readers see the old days or the new ones, and the next run ends the work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from deltalake import DeltaTable

from lakehouse.tables.failpoints import POINTS
from lakehouse.tables.lake import table_path
from lakehouse.tables.snapshot import open_snapshot
from lakehouse_tests.tables.crashing import COLUMNS, DAYS, Rows, expected, land, tables

pytestmark = [pytest.mark.spark, pytest.mark.slow]
KILLED = signal.SIGKILL
# Every point of the table with duplicates, rules and conservation; of the other kinds, those between two commits.
PLACES = [f"silver.readings:{point}" for point in POINTS]
PLACES += ["bronze.readings:after-quarantine-commit"]
PLACES += ["silver.totals:after-quarantine-commit", "silver.totals:after-commit"]


class Laboratory:
    """The process that is killed again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._errors = (folder / "stderr").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lakehouse_tests.tables.crashing", str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            start_new_session=True,
        )  # fmt: skip
        self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (self.folder / "stderr").read_text()[-2000:]
        return line

    def order(self, root: Path, failpoint: str) -> None:
        """Tell it what to do."""
        assert self.process.stdin is not None
        answer = str(self.folder / "answer.json")
        self.process.stdin.write(json.dumps({"root": str(root), "failpoint": failpoint, "answer": answer}) + "\n")
        self.process.stdin.flush()

    def run(self, root: Path, failpoint: str = "") -> dict[str, list[str]]:
        """Build; returns the statuses of the days, or nothing where it was killed, which it must be at a failpoint."""
        self.order(root, failpoint)
        end = json.loads(self._line())
        assert end == {"signal": KILLED if failpoint else 0, "code": 0}, (self.folder / "stderr").read_text()[-2000:]
        found: dict[str, list[str]] = {} if failpoint else json.loads((self.folder / "answer.json").read_text())
        return found

    def kill(self) -> None:
        """Kill it and its engine, as a power cut would."""
        with self.process, self._errors:  # which close the pipes
            os.killpg(self.process.pid, KILLED)


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """One process with one engine for all crashes."""
    made = Laboratory(tmp_path_factory.mktemp("laboratory"))
    yield made
    if made.process.poll() is None:
        made.kill()


def seen(root: Path) -> dict[str, Rows]:
    """What readers see of each table and quarantine; a row that is there twice shows as such."""
    found = {}
    for name, columns in COLUMNS.items():
        rows = DeltaTable(str(table_path(root, name))).to_pyarrow_table(columns=list(columns)).to_pylist()
        values = [tuple(row[c] for c in columns) for row in rows]
        assert len(set(values)) == len(values), f"{name} holds a row twice"
        found[name] = frozenset(values)
    return found


class Poller(threading.Thread):
    """A reader that looks all the while, and keeps what is neither the one whole state nor the other."""

    def __init__(self, root: Path, allowed: list[dict[str, Rows]]) -> None:
        super().__init__(daemon=True)
        self.root, self.allowed = root, allowed
        self.wrong: list[Any] = []
        self.looks = 0
        self._end = threading.Event()

    def run(self) -> None:
        """Look until told to end."""
        while not self._end.is_set():
            for name, rows in seen(self.root).items():
                if all(rows != state[name] for state in self.allowed):
                    self.wrong.append((name, rows))
            self.looks += 1

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join(30)


@pytest.fixture(scope="module")
def root(laboratory: Laboratory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake at generation 1, which each crash moves on by one."""
    made = tmp_path_factory.mktemp("crashed")
    land(made, 1)
    assert laboratory.run(made) == {name: ["published"] * len(DAYS) for name in tables()}
    assert seen(made) == expected(1)
    return made


def _files_on_disk(root: Path, name: str) -> set[str]:
    folder = table_path(root, name)
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts}


def _swept(root: Path) -> None:
    """Vacuum leaves exactly the live files, and they can all be read."""
    before = seen(root)
    for name in [*tables(), *(each for each in COLUMNS if each.endswith("_quarantine"))]:
        delta = DeltaTable(str(table_path(root, name)))
        delta.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
        live = {file.path for file in open_snapshot(table_path(root, name)).files}
        assert _files_on_disk(root, name) == live, name
    assert seen(root) == before


@pytest.mark.parametrize("generation", range(2, len(PLACES) + 2), ids=lambda n: PLACES[n - 2])
def test_a_killed_build_shows_nothing_by_halves_and_is_made_good(
    laboratory: Laboratory, root: Path, generation: int
) -> None:
    """Without it, a power cut could leave half a day live, quarantine rows twice, or block the next run."""
    place = PLACES[generation - 2]
    old, new = expected(generation - 1), expected(generation)
    land(root, generation)
    with Poller(root, [old, new]) as poller:
        laboratory.run(root, place)
        after = seen(root)
        name, point = place.split(":")
        quarantined = point in ("after-quarantine-commit", "before-commit", "after-commit")
        assert after[f"{name}_quarantine"] == (new if quarantined else old)[f"{name}_quarantine"]
        if name in after:
            assert after[name] == (new if point == "after-commit" else old)[name]
        again = laboratory.run(root)
    assert not poller.wrong
    assert poller.looks > 3
    assert seen(root) == new
    assert again[name] == (["unchanged"] if point == "after-commit" else ["published"]) * len(DAYS)
    assert laboratory.run(root) == {each: ["unchanged"] * len(DAYS) for each in tables()}
    _swept(root)


def test_a_process_killed_with_its_engine_while_it_writes(laboratory: Laboratory, root: Path, tmp_path: Path) -> None:
    """Without it, files that the engine had only half written could be taken for staged ones."""
    last = len(PLACES) + 1
    old, generation = expected(last), last + 1
    land(root, generation, extra=50_000)
    with Poller(root, [old]) as poller:
        laboratory.order(root, "whole")
        staged = table_path(root, "bronze.readings") / "staged"
        deadline = time.monotonic() + 60
        while not any(staged.rglob("*.parquet")):
            assert time.monotonic() < deadline, "it never began to write"
            time.sleep(0.002)
        laboratory.kill()
    assert not poller.wrong
    assert seen(root) == old
    land(root, generation)
    fresh = Laboratory(tmp_path)
    try:
        fresh.run(root)
    finally:
        fresh.kill()
    assert seen(root) == expected(generation)
    _swept(root)
