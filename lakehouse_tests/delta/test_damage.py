"""Damaged checkpoints: never read as less than the table, said by file, and fixed by what the message says."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakehouse.delta.commit import append
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import fresh_snapshot
from lakehouse.delta.target import Commit, Target
from lakehouse.delta.transactions import read_transactions
from lakehouse.errors import DamagedLogError
from lakehouse_tests.faults.doors import MONDAY, SCHEMA, ids, row
from lakehouse_tests.fixtures.making import stage_rows

VERSIONS = 45


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Target:
    """A table with two checkpoints and a stream's transaction in each entry."""
    target = Target(tmp_path_factory.mktemp("made") / "silver" / "sales", SCHEMA, ("day",))
    for batch in range(1, VERSIONS + 1):
        append(target, stage_rows(target, [row(f"{batch:03}", MONDAY)]), Commit({"stream": batch}))
    assert len(_checkpoints(target)) == 2
    return target


@pytest.fixture
def long(made: Target, tmp_path: Path) -> Target:
    """A copy of it."""
    shutil.copytree(made.path, tmp_path / "silver" / "sales")
    return replace(made, path=tmp_path / "silver" / "sales")


def _checkpoints(target: Target) -> list[Path]:
    return sorted((target.path / "_delta_log").glob("*.checkpoint.parquet"))


def _hint(target: Target) -> Path:
    return target.path / "_delta_log" / "_last_checkpoint"


def _halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


HARMLESS: dict[str, Callable[[Target], object]] = {
    "rubbish in the hint": lambda t: _hint(t).write_text("rubbish"),
    "empty hint": lambda t: _hint(t).write_text(""),
    "no hint": lambda t: _hint(t).unlink(),
    "old hint": lambda t: _hint(t).write_text('{"version":19,"size":20}'),
    "older checkpoint broken": lambda t: _halve(_checkpoints(t)[0]),
}
HARMFUL: dict[str, Callable[[Target], object]] = {
    "half a checkpoint": lambda t: _halve(_checkpoints(t)[-1]),
    "empty checkpoint": lambda t: os.truncate(_checkpoints(t)[-1], 0),
    "no checkpoint": lambda t: _checkpoints(t)[-1].unlink(),
    "hint ahead": lambda t: _hint(t).write_text('{"version":43,"size":3}'),
    "half a checkpoint and no hint": lambda t: (_halve(_checkpoints(t)[-1]), _hint(t).unlink()),
    "both checkpoints broken": lambda t: [_halve(each) for each in _checkpoints(t)],
}


def _whole(target: Target) -> None:
    """Every row is there, transactions hold, and the next batch lands."""
    rows = [f"{n:03}" for n in range(1, VERSIONS + 1)]
    assert ids(target) == sorted(rows)
    assert open_snapshot(target.path).transaction("stream") == VERSIONS
    append(target, stage_rows(target, [row("again", MONDAY)]), Commit({"stream": VERSIONS}))
    assert ids(target) == sorted(rows), "an old batch, sent again"
    append(target, stage_rows(target, [row("next", MONDAY)]), Commit({"stream": VERSIONS + 1}))
    assert ids(target) == sorted([*rows, "next"])


@pytest.mark.parametrize("name", HARMLESS)
def test_what_the_log_can_do_without_harms_nothing(long: Target, name: str) -> None:
    """Without it, a crash while a checkpoint is written could make readers start from an old state."""
    HARMLESS[name](long)
    _whole(long)


@pytest.mark.parametrize("name", HARMFUL)
def test_a_broken_checkpoint_is_named_with_what_fixes_it(long: Target, name: str) -> None:
    """Without it, people would read of Arrow's footers, and not know whether their data is lost."""
    HARMFUL[name](long)
    with pytest.raises(
        DamagedLogError, match=r"No data is lost, the entries it sums up are all there: remove"
    ) as error:
        open_snapshot(long.path)
    named = re.search(r"remove (.*), and the next reader", str(error.value))
    assert named
    for file in named[1].split(" and "):
        Path(file).unlink(missing_ok=True)
    _whole(long)


def test_a_broken_checkpoint_without_its_entries_is_not_called_harmless(long: Target) -> None:
    """Without it, following the advice would end in a table that has lost what the checkpoint alone still knew."""
    log = long.path / "_delta_log"
    for entry in sorted(log.glob("*.json"))[:-3]:
        os.utime(entry, (time.time() - 100 * 86400,) * 2)
    DeltaTable(str(long.path)).cleanup_metadata()
    assert not (log / f"{0:020}.json").exists()
    rows = ids(long)
    assert open_snapshot(long.path).transaction("stream") == VERSIONS, "a checkpoint keeps transactions"
    assert len(rows) == VERSIONS
    for checkpoint in _checkpoints(long):
        _halve(checkpoint)
    with pytest.raises(DamagedLogError, match=r"the entries it sums up are gone .*from a backup"):
        fresh_snapshot(long.path)


def test_an_entry_that_was_cut_short_is_named_with_what_fixes_it(long: Target) -> None:
    """Without it, a table would be gone after a power cut in the middle of a commit, for all that people can tell."""
    version = append(long, stage_rows(long, [row("cut", MONDAY)]), Commit({"stream": VERSIONS + 1}))
    entry = long.path / "_delta_log" / f"{version:020}.json"
    _halve(entry)
    with pytest.raises(DamagedLogError, match="newest entry was cut short") as error:
        fresh_snapshot(long.path)
    named = re.search(r"Remove (.*): the table", str(error.value))
    assert named
    Path(named[1]).unlink()
    _whole(long)


def test_an_entry_without_content_says_nothing(long: Target) -> None:
    """Without it, what a power cut often leaves of a commit could be taken for an empty table."""
    version = open_snapshot(long.path).version + 1
    (long.path / "_delta_log" / f"{version:020}.json").touch()
    _whole(long)


def test_transactions_are_those_of_the_version_or_left_to_the_library(long: Target) -> None:
    """Without it, a look that missed a log entry would take a published batch for a new one, and double it."""
    for version in (0, 1, 19, 20, 21, 40, VERSIONS):
        found = read_transactions(long.path, version)
        assert found == ({"stream": version} if version else {})
    snapshot = open_snapshot(long.path)
    (long.path / "_delta_log" / f"{VERSIONS - 1:020}.json").unlink()
    assert read_transactions(long.path, VERSIONS) is None
    assert snapshot.transaction("stream") == VERSIONS
    _halve(_checkpoints(long)[1])
    assert read_transactions(long.path, 42) is None
