"""After a person was taken out of a table's log, the table can be read and written, and no byte of it names them."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pandera.pyspark as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import types as T

from lakehouse.contracts import Input, Landing
from lakehouse.delta.failpoints import FORGET_POINTS
from lakehouse.delta.log import readable_at
from lakehouse.delta.maintenance import Compactable, compact
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import fresh_snapshot
from lakehouse.errors import HistoryGoneError
from lakehouse.privacy import erase
from lakehouse.privacy.erase import LOG, erase_rows, purge
from lakehouse.privacy.traces import files_under, names_person
from lakehouse.read.lake import Lake
from lakehouse.records.ledger import DISCARD, LEDGER, LedgerEntry, entries, write
from lakehouse.sources.people import Person
from lakehouse.versions.restore import plan_restore, restore
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import having, model, put, rows_of, spark_rows, table
from lakehouse_tests.fixtures.tally import tally

MONDAY = date(2026, 3, 2)
ANN = "ann-17841"
PERSON = Person(ANN)
TEXT = T.StringType()
COLUMNS = {
    "user_id": (TEXT, pa.Field(nullable=True)),
    "day": (T.DateType(), pa.Field()),
    "n": (T.LongType(), pa.Field()),
}
SALES = table(
    "silver.sales", model("Sales", **COLUMNS), lambda x: x, {"x": Input("bronze.x")}, pii=("user_id",),
    person=("user_id",),
)  # fmt: skip
LANDED = table(
    "bronze.x", model("Landed", day=COLUMNS["day"]), lambda files: files, {"files": Landing("x", "jsonl", ("n",))}
)
BEFORE = having(SALES, pii=(), person=())  # its commits keep bounds of the ids
POINTS = ("before-erase-commit", "after-erase-commit", "before-purge", "after-clean-entry", "after-clean-checkpoint",
          "after-log-removal", "after-purge")  # fmt: skip


def sale(user: str, n: int = 1) -> dict[str, object]:
    return {"user_id": user, "n": n}


def forget(path: Path, number: int = 1) -> None:
    """What `lakehouse forget` does to one table."""
    erase_rows(path.parents[2], path, SALES, PERSON, f"e{number}")
    purge(path, PERSON, time.time() + 1)


def name_in_newest(path: Path) -> None:
    """Let the newest log entry name the person, as facts of older code did."""
    newest = path / LOG / f"{open_snapshot(path).version:020}.json"
    text = newest.read_text()
    newest.write_text(text.replace('"commitInfo":{', f'"commitInfo":{{"note":"for {ANN}",', 1))
    assert ANN in newest.read_text()


def remove_in_newest(path: Path) -> None:
    """Let the newest log entry keep the bounds of a file that it removes, as other writers do."""
    stats = json.dumps({"minValues": {"user_id": ANN}, "maxValues": {"user_id": ANN}})
    gone = {"path": "gone.parquet", "dataChange": True, "size": 1, "partitionValues": {}, "stats": stats}
    with (path / LOG / f"{open_snapshot(path).version:020}.json").open("a") as newest:
        newest.write("\n" + json.dumps({"remove": {**gone, "deletionTimestamp": int(time.time() * 1000)}}))


def live(path: Path) -> list[tuple[str, int]]:
    return sorted((row["user_id"], row["n"]) for row in rows_of(path))


def check(lake: Lake, path: Path, expected: list[tuple[str, int]]) -> None:
    """Nothing names the person, the rows are as expected, and the table can be written on."""
    for each in files_under(path):
        assert not names_person(each, PERSON), each
        assert ANN.encode() not in each.read_bytes(), each
    assert live(path) == sorted(expected)
    before = fresh_snapshot(path).version
    assert put(lake, SALES, MONDAY + timedelta(days=90), [sale("last", before)]) == before + 1
    assert DeltaTable(str(path)).version() == before + 1
    assert live(path) == sorted([*(each for each in expected if each[0] != "last"), ("last", before)])


@pytest.fixture
def sales(lake: LakeFactory) -> Lake:
    return lake(LANDED, SALES)


@pytest.mark.parametrize("others", [0, 1, 30])
def test_the_newest_entry_may_name_the_person(sales: Lake, others: int) -> None:
    """Without it, the erasure would remove the newest entry, and nothing could be committed any more."""
    path = sales.path(SALES.id)
    for n in range(others):
        put(sales, SALES, MONDAY + timedelta(days=n + 1), [sale("bo", n)])
    put(sales, BEFORE, MONDAY, [sale(ANN), sale("cy")])
    put(sales, SALES, MONDAY, [sale("cy")])
    name_in_newest(path)
    purge(path, PERSON, time.time() + 1)
    check(sales, path, [("cy", 1), *[("bo", n) for n in range(others)]])


def lived(lake: Lake, *, erased: bool = False) -> Path:
    """A table whose rows, oldest and newest entries and checkpoint name the person; or, of those, the entries alone."""
    path = lake.path(SALES.id)
    put(lake, BEFORE, MONDAY, [sale(ANN), sale("cy")])
    fresh_snapshot(path).delta.create_checkpoint()  # type: ignore[union-attr]
    put(lake, SALES, MONDAY + timedelta(days=1), [sale("bo")])
    put(lake, BEFORE, MONDAY + timedelta(days=2), [sale(ANN, 7)])
    if erased:
        erase_rows(path.parents[2], path, SALES, PERSON, "e0")
    name_in_newest(path)
    remove_in_newest(path)
    return path


def test_both_readers_go_on_and_older_versions_say_that_they_are_gone(sales: Lake) -> None:
    """Without it, Spark could need an entry that is gone, or time travel end in an error of the library."""
    path = lived(sales)
    newest = open_snapshot(path).version
    forget(path)
    check(sales, path, [("cy", 1), ("bo", 1)])
    assert sorted((row["user_id"], row["n"]) for row in spark_rows(sales, path)) == live(path)
    for version in range(newest + 1):
        with pytest.raises(HistoryGoneError, match=r"silver\.sales.*(gone|oldest)"):
            readable_at(path, version)
    version = open_snapshot(path).version
    forget(path, 2)
    assert fresh_snapshot(path).version == version, "nothing was left to do"


def test_a_table_of_one_commit_and_a_draft_of_a_killed_writer(sales: Lake) -> None:
    """Without it, the only entry would go, or a file that no reader looks at keep the person for ever."""
    path = sales.path(SALES.id)
    put(sales, SALES, MONDAY, [sale("cy")])
    newest = path / LOG / f"{1:020}.json"
    shutil.copy(newest, path / LOG / f"{0:020}.json.keep")
    lines = (path / LOG / f"{0:020}.json").read_text() + newest.read_text()
    (path / LOG / f"{0:020}.json").write_text(lines)
    newest.unlink()
    (path / LOG / f"{0:020}.json.keep").unlink()
    name_in_newest(path)
    assert fresh_snapshot(path).version == 0
    for draft in (f"{1:020}.json#1", f"{9:020}.json#1", "_commit_1.json.tmp"):
        (path / LOG / draft).write_text(f'{{"commitInfo":{{"note":"{ANN}"}}}}')
    (path / LOG / f".{0:020}.json.crc").write_text(ANN)
    purge(path, PERSON, time.time() + 1)
    check(sales, path, [("cy", 1)])


def test_the_ledger_is_edited_too(sales: Lake) -> None:
    """Without it, who decided what could neither be read nor be written any more."""
    root = sales.settings.root
    at, path = datetime(2026, 3, 2, tzinfo=UTC), sales.path(LEDGER)
    for n in range(3):
        write(root, LedgerEntry(SALES.id, DISCARD, "me", at, {MONDAY: {("r",): [n]}}, reason=f"asked for by {ANN}"))
    name_in_newest(path)
    assert erase_rows(root, path, None, PERSON, "e1") == 3
    purge(path, PERSON, time.time() + 1)
    assert not [file for file in files_under(path) if names_person(file, PERSON)]
    write(root, LedgerEntry(SALES.id, DISCARD, "me", at, {MONDAY: {("r",): [9]}}))
    assert [len(each.chosen) for each in entries(root, SALES.id)] == [1, 1, 1, 1]


# Kills a copy of the table at each point, each in a process of its own that has the imports already.
KILLED = """
import os, sys
from pathlib import Path
from lakehouse_tests.privacy.test_erase_log import SALES, forget
for path, point in zip(sys.argv[1::2], sys.argv[2::2]):
    child = os.fork()
    if not child:
        os.environ["LAKEHOUSE_FAILPOINT"] = f"{SALES.id}:{point}"
        forget(Path(path))
        os._exit(0)
    print(os.waitpid(child, 0)[1])
"""


@pytest.mark.crash
def test_killed_anywhere_the_table_lives_and_a_second_erasure_ends_it(lake: LakeFactory, tmp_path: Path) -> None:
    """Without it, a kill in the middle would leave a table that nobody can write, or the person."""
    assert set(POINTS) < set(FORGET_POINTS)
    lakes = {point: lake(LANDED, SALES, root=tmp_path / point) for point in POINTS}
    paths = {point: lived(each, erased=point == "after-clean-entry") for point, each in lakes.items()}
    arguments = [str(each) for point in POINTS for each in (paths[point], point)]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments], env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == [str(int(signal.SIGKILL))] * len(POINTS), done.stderr[-2000:]
    for point, made in lakes.items():
        path = paths[point]
        version = fresh_snapshot(path).version
        assert {("cy", 1), ("bo", 1)} <= set(live(path)), point
        assert put(made, SALES, MONDAY + timedelta(days=90), [sale("last", version)]) == version + 1, point
        forget(path)
        check(made, path, [("cy", 1), ("bo", 1), ("last", version)])


@pytest.mark.parametrize("point", POINTS[2:])
def test_a_publish_meanwhile_is_kept(sales: Lake, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, what a run has published while somebody is forgotten would be lost with the log."""
    path = lived(sales, erased=point == "after-clean-entry")
    published: list[int] = []

    def publish(_: str, name: str) -> None:
        if name == point and not published:
            published.append(put(sales, SALES, MONDAY + timedelta(days=30), [sale("dee")]))

    monkeypatch.setattr(erase, "failpoint", publish)
    forget(path)
    assert published
    check(sales, path, [("cy", 1), ("bo", 1), ("dee", 1)])


class History:
    """A table to which one thing after another is done, and the rows that it must hold."""

    def __init__(self, lake: Lake, rng: random.Random) -> None:
        self.lake, self.rng, self.path = lake, rng, lake.path(SALES.id)
        self.held: dict[date, list[tuple[str, int]]] = {}
        self.steps = self.erasures = 0
        self.others = (
            self.forget, self.compact, self.restore, self.checkpoint,
            lambda: name_in_newest(self.path), lambda: remove_in_newest(self.path),
        )  # fmt: skip

    def step(self) -> None:
        self.steps += 1
        self.rng.choice((self.put, self.put, *(self.others if self.steps > 1 else ())))()
        assert live(self.path) == self.rows()

    def rows(self) -> list[tuple[str, int]]:
        return sorted(row for rows in self.held.values() for row in rows)

    def put(self) -> None:
        day, users = MONDAY + timedelta(days=self.rng.randrange(4)), self.rng.choices(["bo", "cy", ANN], k=3)
        users = users[: self.rng.randint(0, 3)]
        put(self.lake, self.rng.choice([BEFORE, SALES]), day, [sale(user, self.steps) for user in users])
        self.held[day] = [(user, self.steps) for user in users]

    def forget(self) -> None:
        forget(self.path, self.steps)
        self.held = {day: [each for each in rows if each[0] != ANN] for day, rows in self.held.items()}
        self.erasures += 1

    def compact(self) -> None:
        compact(Compactable(self.path, SALES.schema, self.rng.choice([SALES.pii, ()])))

    def checkpoint(self) -> None:
        fresh_snapshot(self.path).delta.create_checkpoint()  # type: ignore[union-attr]

    def restore(self) -> None:
        try:
            plan = plan_restore(self.lake, SALES, self.rng.randint(0, open_snapshot(self.path).version))
            restore(self.lake, plan, by="me")
        except HistoryGoneError:
            return
        self.held = {}
        for row in rows_of(self.path):
            self.held.setdefault(row["day"], []).append((row["user_id"], row["n"]))


def test_random_histories(lake: LakeFactory, tmp_path: Path, seed: int, cases: Callable[[int], int]) -> None:
    """Without it, an order of commits, checkpoints and erasures that nobody thought of could end a table."""
    done = steps = 0
    for case in range(cases(8)):
        rng = random.Random(f"{seed}-{case}")
        history = History(lake(LANDED, SALES, root=tmp_path / f"root{case}"), rng)
        try:
            for _ in range(rng.randint(1, 14)):
                history.step()
            history.forget()
            check(history.lake, history.path, history.rows())
        except BaseException as error:
            error.add_note(f"--seed {seed}, case {case}, step {history.steps}")
            raise
        done, steps = done + history.erasures, steps + history.steps
    tally("erasures of a table", "{done} in {steps} steps", done=done, steps=steps)
