"""Snapshots that are carried on say what delta-rs says, after any history; and entries of both exclude each other."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import types as T

from lakehouse.delta import opening as module
from lakehouse.delta.commit import ensure_table, exchange_files, replace_days
from lakehouse.delta.layout import entry_path
from lakehouse.delta.log_writer import put_entry
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import WITHDRAWN, Snapshot, fresh_snapshot
from lakehouse.delta.target import Commit
from lakehouse_tests.faults.doors import MONDAY, row, target
from lakehouse_tests.fixtures.making import stage_rows, target_of
from lakehouse_tests.fixtures.tally import tally

__all__ = ["target"]

SCHEMA = T.StructType(
    [T.StructField("id", T.StringType()), T.StructField("kind", T.StringType()), T.StructField("day", T.DateType())]
)
DAYS = [MONDAY + timedelta(days=n) for n in range(4)]
KINDS = ["plain", "with space", "50%", "a=b", "ü€", None]
STEPS = 40
HISTORIES = 3


class History:
    """One table whose log gets whatever a log may get, by the project and by delta-rs."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.target = target_of(path, SCHEMA, ("day", "kind"))
        self.rng = rng
        self.number = 0
        ensure_table(self.target)

    def publish(self) -> None:
        """Replace some days by a commit of the project."""
        days = self.rng.sample(DAYS, self.rng.randint(1, 2))
        rows = [self._row(self.rng.choice(days)) for _ in range(self.rng.randint(0, 5))]
        marks = {f"day/{day}": self.rng.choice([self.number, WITHDRAWN]) for day in days}
        base = open_snapshot(self.target.path)
        replace_days(self.target, base, stage_rows(self.target, rows), days, Commit(marks))

    def append(self) -> None:
        """Add files by delta-rs, one of them without statistics."""
        files = stage_rows(self.target, [self._row(self.rng.choice(DAYS)) for _ in range(3)])
        delta = self._delta()
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                each.path.relative_to(self.target.path).as_posix(), each.size, self._empty(each.partition), 1, True,
                "{}" if n == 0 else '{"numRecords":1,"nullCount":{"id":0}}',
            )
            for n, each in enumerate(files)
        ]  # fmt: skip
        marks = [Transaction("stream", self.number)]
        delta.create_write_transaction(
            actions,
            "append",
            delta.schema(),
            ["day", "kind"],
            commit_properties=CommitProperties(app_transactions=marks),
        )

    def let_go(self) -> None:
        """Remove some files of the table by a commit of the project."""
        base = open_snapshot(self.target.path)
        gone = self.rng.sample(base.files, min(len(base.files), 2))
        exchange_files(self.target, base, (), gone, Commit(), days=None)

    def overwrite(self) -> None:
        """Empty a day by delta-rs."""
        delta = self._delta()
        day = self.rng.choice(DAYS).isoformat()
        delta.create_write_transaction([], "overwrite", delta.schema(), ["day", "kind"], [("day", "=", day)])

    def compact(self) -> None:
        """Merge files."""
        self._delta().optimize.compact()

    def restore(self) -> None:
        """Go back to an older version, by delta-rs."""
        newest = open_snapshot(self.target.path).version
        self._delta().restore(self.rng.randint(max(0, newest - 5), newest))

    def checkpoint(self) -> None:
        """Sum the log up."""
        self._delta().create_checkpoint()

    def clean_up(self) -> None:
        """Sum the log up, and remove what it sums up."""
        self._delta().create_checkpoint()
        for entry in sorted((self.target.path / "_delta_log").glob("*.json"))[:-1]:
            entry.unlink()

    def evolve(self) -> None:
        """Change what is said of the table."""
        self._delta().alter.set_table_properties({"note": str(self.number)})

    def _row(self, day: date) -> dict[str, Any]:
        self.number += 1
        return {"id": f"{self.number}", "kind": self.rng.choice(KINDS), "day": day}

    def _empty(self, partition: Mapping[str, str | None]) -> dict[str, str | None]:
        """An empty text is the same partition value as null."""
        return {name: value or self.rng.choice(["", None]) for name, value in partition.items()}

    def _delta(self) -> DeltaTable:
        return DeltaTable(str(self.target.path))


STEPS_OF: list[Callable[[History], None]] = [
    *[History.publish] * 5, *[History.append] * 3, *[History.let_go] * 2, History.overwrite, History.compact,
    History.restore, History.checkpoint, History.clean_up, History.evolve,
]  # fmt: skip


def of_delta(path: Path) -> tuple[Any, ...]:
    """Version and files as delta-rs has them."""
    delta = DeltaTable(str(path))
    actions = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    files = [
        (unquote(each["path"]), (str(each["partition.day"]), each["partition.kind"]), each["num_records"],
         each["size_bytes"])
        for each in actions
    ]  # fmt: skip
    return delta.version(), sorted(files, key=str)


def told(snapshot: Snapshot) -> tuple[Any, ...]:
    """The same of a snapshot."""
    return snapshot.version, sorted(
        ((each.path, each.partition, each.logged_rows, each.size) for each in snapshot.files), key=str
    )


def all_of(snapshot: Snapshot) -> tuple[Any, ...]:
    """Everything that is carried on."""
    live = snapshot.live
    days = {day: list(files) for day, files in snapshot.by_day("day").items()}
    totals = (live.number, live.rows, live.size, snapshot.rows_by_day("day"))
    return snapshot.version, snapshot.files, days, totals, live.partitions, snapshot.known_transactions, snapshot.schema


@pytest.mark.slow
def test_after_any_history_a_snapshot_is_what_delta_rs_says(
    tmp_path: Path, seed: int, cases: Callable[[int], int]
) -> None:
    """Without it, a run would plan, audit or replace files that are not the table's."""
    counted = {"steps": 0, "carried on": 0}
    for case in range(cases(HISTORIES)):
        rng = random.Random(seed + case)
        history = History(tmp_path / f"silver{case}" / "made", rng)
        path = history.target.path
        frozen: list[tuple[Snapshot, tuple[Any, ...]]] = []
        for _ in range(STEPS):
            step = rng.choice(STEPS_OF)
            before = open_snapshot(path)
            before.by_day("day")  # what was asked for is carried on too
            try:
                step(history)
            except DeltaError:  # as a restore to a version whose entries are gone
                continue
            counted["steps"] += 1
            kept = module._kept(path).newest_first
            counted["carried on"] += bool(kept and module._carried_on(path, kept[0]))
            carried, fresh = open_snapshot(path), fresh_snapshot(path)
            assert told(carried) == told(fresh) == of_delta(path), step
            assert all_of(carried) == all_of(fresh), step
            marks = {name: DeltaTable(str(path)).transaction_version(name) for name in carried.known_transactions or ()}
            assert marks == carried.known_transactions
            for version in (each.snapshot.version for each in kept if entry_path(path, each.snapshot.version).exists()):
                assert all_of(open_snapshot(path, version)) == all_of(fresh_snapshot(path, version)), step
            frozen.append((carried, all_of(carried)))
        assert all(all_of(each) == was for each, was in frozen), "an older snapshot was changed"
    tally("snapshots carried on", "{steps} steps, {carried on} of them without reading the log again", **counted)
    assert counted["carried on"] > counted["steps"] / 2


@pytest.mark.slow
def test_of_writers_of_one_entry_one_wins(target: Any) -> None:
    """Without it, an acknowledged commit could vanish under another one: ours and delta-rs's go by one rule."""
    won: list[tuple[int, str]] = []
    for _ in range(15):
        base, together = fresh_snapshot(target.path), threading.Barrier(6)
        staged = {name: stage_rows(target, [row(name, MONDAY)]) for name in (uuid.uuid4().hex for _ in range(6))}

        def ours(name: str, action: AddAction, base: Snapshot = base, together: Any = together) -> None:
            together.wait()
            won.append((put_entry(base, [action], (), {name: 1}, {}), name))

        def theirs(name: str, action: AddAction, base: Snapshot = base, together: Any = together) -> None:
            delta = DeltaTable(str(target.path), version=base.version)
            together.wait()
            properties = CommitProperties(max_commit_retries=0, app_transactions=[Transaction(name, 1)])
            delta.create_write_transaction([action], "append", delta.schema(), ["day"], commit_properties=properties)
            won.append((base.version + 1, name))

        def lose(way: Callable[..., None], name: str, action: AddAction) -> None:
            try:
                way(name, action)
            except CommitFailedError:
                return

        threads = []
        for number, (name, (file,)) in enumerate(staged.items()):
            action = AddAction(str(file.path.relative_to(target.path)), file.size, {"day": str(MONDAY)}, 1, True, "{}")
            threads.append(threading.Thread(target=lose, args=(theirs if number % 2 else ours, name, action)))
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert [version for version, _ in won].count(base.version + 1) == 1
    after = DeltaTable(str(target.path))
    assert all(after.transaction_version(name) == 1 for _, name in won)
    assert len(after.file_uris()) == 2 + len(won)
    assert not list((target.path / "_delta_log").glob("*.tmp"))


def test_a_new_table_with_the_same_number_of_entries_is_not_the_old_one(target: Any) -> None:
    """Without it, a table that was removed and built again in one place would be carried on from the old one's files."""
    log = target.path / "_delta_log"
    replace_days(target, open_snapshot(target.path), stage_rows(target, [row("x", MONDAY)]), [MONDAY], Commit())
    old = open_snapshot(target.path)
    newest = log / f"{old.version:020}.json"
    text = newest.read_text().replace(old.by_day("day")[MONDAY][0].path, "another/day=2026-03-02/part-0.parquet")
    newest.unlink()  # another entry takes its place, in the folder that was there before
    newest.write_text(text)
    assert told(open_snapshot(target.path)) == told(fresh_snapshot(target.path)) != told(old)


def test_new_columns_come_with_the_next_look(tmp_path: Path) -> None:
    """Without it, a run would go by the columns that the table had when its process began."""
    history = History(tmp_path / "silver" / "made", random.Random(1))
    history.publish()
    open_snapshot(history.target.path)
    DeltaTable(str(history.target.path)).alter.add_columns([Field("more", PrimitiveType("string"))])
    found = open_snapshot(history.target.path).schema
    assert isinstance(found, Schema)
    assert [each.name for each in found.fields] == ["id", "kind", "day", "more"]


@pytest.mark.parametrize("name", ["a b", 'q"<>#', "50%", "%20", "ü€", "a+b&c;d", "[x]{y}|^`\\"])
def test_paths_are_escaped_as_delta_rs_does(target: Any, name: str) -> None:
    """Without it, a file could not be removed by the letters it was added by, and its rows would come back."""
    base = open_snapshot(target.path)
    (file,) = stage_rows(target, [row("x", MONDAY)])
    path = file.path.with_name(f"{name}.parquet")
    file.path.rename(path)
    action = AddAction(path.relative_to(target.path).as_posix(), file.size, {"day": str(MONDAY)}, 1, True, "{}")
    put_entry(base, [action], (), {}, {})
    ours = open_snapshot(target.path)
    delta = DeltaTable(str(target.path))
    delta.create_write_transaction([action], "append", delta.schema(), ["day"])
    assert open_snapshot(target.path).files == ours.files == fresh_snapshot(target.path).files
    (added,) = set(ours.files) - set(base.files)
    put_entry(open_snapshot(target.path), [], [added], {}, {})
    assert set(open_snapshot(target.path).files) == set(fresh_snapshot(target.path).files) == set(base.files)
