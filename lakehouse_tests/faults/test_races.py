"""Writers at the same moment, in processes of their own: one whole winner, a named loser, and no lost commit."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.maintenance import Compactable, compact
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.target import Commit
from lakehouse_tests.faults.racers import SCHEMA, Racers, Step, names_in, target_at
from lakehouse_tests.fixtures.making import stage_rows
from lakehouse_tests.fixtures.tally import tally

SEED = random.Random().randrange(1 << 30)
MONDAY = date(2026, 3, 2)
TUESDAY, WEDNESDAY = MONDAY + timedelta(days=1), MONDAY + timedelta(days=2)
ROUNDS = 6
CROWD = 200


@pytest.fixture(scope="module")
def pair() -> Iterator[Racers]:
    """Two processes."""
    racers = Racers(2)
    yield racers
    racers.stop()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table with three days of two small files each."""
    folder = tmp_path / "silver" / "raced"
    target = target_at(folder)
    ensure_table(target)
    days = [MONDAY, TUESDAY, WEDNESDAY]
    files = [f for n in range(2) for f in stage_rows(target, [{"day": d, "id": f"old-{n}", "n": n} for d in days])]
    replace_days(target, open_snapshot(folder), files, days, Commit())
    return folder


def log_of(path: Path) -> list[list[dict[str, Any]]]:
    """Every entry of the log, oldest first, as lists of actions."""
    entries = sorted((path / "_delta_log").glob("*.json"))
    assert [int(entry.stem) for entry in entries] == list(range(len(entries))), "a hole in the log"
    return [[json.loads(line) for line in entry.read_text().splitlines()] for entry in entries]


def committers(path: Path) -> list[str]:
    """The racer of each log entry that one made."""
    infos = [action["commitInfo"] for entry in log_of(path) for action in entry if "commitInfo" in action]
    return [info["racer"] for info in infos if "racer" in info]


def readable(path: Path) -> None:
    """Every live file is there, and the table is what its log adds up to."""
    live: set[str] = set()
    for entry in log_of(path):
        live -= {a["remove"]["path"] for a in entry if "remove" in a}
        live |= {a["add"]["path"] for a in entry if "add" in a}
    snapshot = open_snapshot(path)
    assert {file.path for file in snapshot.files} == live
    assert all((path / name).exists() for name in live)
    assert DeltaTable(str(path)).to_pyarrow_table().num_rows == sum(file.rows for file in snapshot.files)


@pytest.mark.slow
def test_different_days_both_land(pair: Racers, path: Path) -> None:
    """Without it, two backfills at once would fail each other, or the later would undo the earlier."""
    for n in range(ROUNDS):
        outcomes = pair.race(
            path, Step("replace", f"a{n}", (MONDAY,), 3, f"a/{n}"), Step("replace", f"b{n}", (TUESDAY,), 2, f"b/{n}")
        )
        assert [each.error for each in outcomes] == ["", ""]
        assert names_in(path) == [f"a{n}"] * 3 + [f"b{n}"] * 2 + ["old"] * 2
    assert len(committers(path)) == 2 * ROUNDS
    readable(path)


@pytest.mark.slow
def test_a_crowd_of_writers_of_other_days_all_land(pair: Racers, path: Path) -> None:
    """Without it, a backfill in many small runs would lose some of them to each other, after all their work."""
    days = [WEDNESDAY + timedelta(days=n) for n in range(1, CROWD + 1)]
    work = [Step("replace", f"w{n}", (day,), 1, f"day {n}/1") for n, day in enumerate(days)]
    steps = [work[::2], work[1::2]]
    outcomes = pair.crowd(path, steps)
    assert Counter(each.error for own in outcomes for each in own) == {"": CROWD}, outcomes[0][0].text
    landed = [each.version for own in outcomes for each in own]
    assert sorted(landed) == list(range(2, 2 + CROWD)), "each is told its own version"
    assert Counter(names_in(path)) == {"old": 6} | {step.name: 1 for own in steps for step in own}
    tally(
        "a crowd of writers",
        "{writers} of {crowd} writers on days of their own landed",
        writers=len(landed),
        crowd=CROWD,
    )
    readable(path)


@pytest.mark.slow
def test_the_same_day_has_one_whole_winner_and_a_named_loser(pair: Racers, path: Path) -> None:
    """Without it, a day could be half of one run and half of another, or the loser believe it was published."""
    for n in range(ROUNDS):
        steps = [Step("replace", f"{who}{n}", (MONDAY, TUESDAY), 2, f"day/{n}{i}") for i, who in enumerate("ab")]
        outcomes = pair.race(path, *steps)
        assert sorted(each.error for each in outcomes) == ["", "PublishConflictError"]
        (winner,) = [step.name for step, each in zip(steps, outcomes, strict=True) if not each.error]
        (message,) = [each.text for each in outcomes if each.error]
        assert "silver.raced: another run published 2026-03-02 … 2026-03-03" in message
        assert names_in(path) == sorted([winner] * 4 + ["old"] * 2)
        assert committers(path)[-1] == winner
    assert len(committers(path)) == ROUNDS
    readable(path)


@pytest.mark.slow
def test_days_that_overlap_in_part_are_a_conflict(pair: Racers, path: Path) -> None:
    """Without it, two ranges that share one day would both be published, one of them without that day."""
    outcomes = pair.race(
        path,
        Step("replace", "a", (MONDAY, TUESDAY), 1, "day/1"),
        Step("replace", "b", (TUESDAY, WEDNESDAY), 1, "day/2"),
    )
    assert sorted(each.error for each in outcomes) == ["", "PublishConflictError"]
    assert names_in(path) in (["a", "a", "old", "old"], ["b", "b", "old", "old"])


@pytest.mark.slow
def test_the_same_work_twice_is_done_once(pair: Racers, path: Path) -> None:
    """Without it, a retried run beside its original would fail, or commit the same rows a second time."""
    for n in range(1, ROUNDS):
        outcomes = pair.race(path, *[Step("replace", f"{who}{n}", (MONDAY,), 2, f"day/{n}") for who in "ab"])
        assert [each.error for each in outcomes] == ["", ""]
        assert len(committers(path)) == n
        assert names_in(path) == sorted([committers(path)[-1]] * 2 + ["old"] * 4)
    readable(path)


@pytest.mark.slow
def test_appends_all_land_once(pair: Racers, path: Path) -> None:
    """Without it, of two streams that write to one table, one would lose batches."""
    steps = [[Step("append", f"{who}{n}", (MONDAY,), 1, f"{who}/{n}") for n in range(1, 9)] for who in "ab"]
    outcomes = pair.run(path, steps)
    assert {each.error for own in outcomes for each in own} == {""}
    assert Counter(names_in(path)) == {"old": 6} | {step.name: 1 for own in steps for step in own}
    pair.run(path, steps[::-1])  # the other process sends everything again
    assert Counter(names_in(path)) == {"old": 6} | {step.name: 1 for own in steps for step in own}
    readable(path)


@pytest.mark.slow
@pytest.mark.parametrize("same", [True, False], ids=["same-day", "other-day"])
def test_a_publish_during_compaction_loses_nothing(pair: Racers, path: Path, same: bool) -> None:
    """Without it, compaction could bring back rows that a publish had just replaced, or the other way round."""
    target = target_at(path)
    if not same:
        compact(
            Compactable(path, SCHEMA)
        )  # Monday's files, so that there is nothing to do with them but to replace them
    ended = Counter[str]()
    for n in range(ROUNDS):
        pieces = [f for m in range(3) for f in stage_rows(target, [{"day": TUESDAY, "id": f"piece{n}-{m}", "n": m}])]
        replace_days(target, open_snapshot(path), pieces, [TUESDAY], Commit())
        day = TUESDAY if same else MONDAY
        published, compacted = pair.race(path, Step("replace", f"new{n}", (day,), 2, f"day/{n}"), Step("compact"))
        assert published.error in ("", "PublishConflictError"), published.text
        assert compacted.error in ("", "CommitFailedError", "DeltaError"), compacted.text
        found = Counter(names_in(path))
        if published.error:
            assert found[f"new{n}"] == 0
            assert found[f"piece{n}"] == 3, "the losing publish left the day as it was"
        else:
            assert found[f"new{n}"] == 2
            assert found[f"piece{n}"] == (0 if same else 3)
        assert not same or found["old"] == 4
        ended[f"publish {published.error or 'ok'}, compact {compacted.error or 'ok'}"] += 1
        readable(path)
    if not same:
        assert not any("PublishConflictError" in name for name in ended), ended


@pytest.mark.slow
def test_two_compactions_leave_each_row_once(pair: Racers, path: Path) -> None:
    """Without it, two of them would both commit the merged files, and every row of the table would be there twice."""
    target = target_at(path)
    for n in range(ROUNDS):
        before = open_snapshot(path)
        pieces = [f for m in range(3) for f in stage_rows(target, [{"day": TUESDAY, "id": f"piece{n}-{m}", "n": m}])]
        replace_days(target, before, pieces, [TUESDAY], Commit())
        outcomes = pair.race(path, Step("compact"), Step("compact"))
        assert [each.error for each in outcomes] == ["", ""], outcomes
        assert Counter(names_in(path)) == {"old": 4, f"piece{n}": 3}
    readable(path)


@pytest.mark.slow
def test_a_publish_during_vacuum_keeps_its_files(pair: Racers, path: Path) -> None:
    """Without it, vacuum would remove what a run has staged but not committed, or leave a crash's files for good."""
    for n in range(ROUNDS):
        orphan = path / "staged" / f"crashed{n}" / "valid" / f"day={MONDAY}" / "part.parquet"
        orphan.parent.mkdir(parents=True)
        orphan.write_bytes(b"orphan")
        os.utime(orphan, (time.time() - 7200,) * 2)
        published, swept = pair.race(path, Step("replace", f"new{n}", (MONDAY,), 2, f"day/{n}"), Step("vacuum"))
        assert published.error == "", published.text
        assert swept.error in ("", "CommitFailedError"), swept.text
        if swept.error:  # it logs what it is about to do, and does nothing where that loses the race
            DeltaTable(str(path)).vacuum(1, dry_run=False, enforce_retention_duration=False, full=True)
        assert names_in(path) == [f"new{n}"] * 2 + ["old"] * 4
        assert not orphan.exists()
    readable(path)


@pytest.mark.slow
def test_no_acknowledged_commit_is_lost(path: Path) -> None:
    """Without it, a commit that was reported as done could be missing from the log, as with Spark's own file store.

    Many rounds of mixed writers without any barrier; then the log is the judge: each acknowledged step is in it exactly
    once, each refused one never, and the table is what the log adds up to.
    """
    chance = random.Random(SEED)
    days = [MONDAY + timedelta(days=n) for n in range(4)]

    def step(who: int, n: int) -> Step:
        mark = f"step {who}.{n}/1"
        if chance.random() < 0.3:
            return Step("append", f"{who}.{n}", (chance.choice(days),), 1, mark)
        if chance.random() < 0.1:
            return Step("compact")
        return Step("replace", f"{who}.{n}", tuple(chance.sample(days, chance.choice([1, 1, 2]))), 2, mark)

    racers = Racers(3)
    try:
        steps = [[step(who, n) for n in range(16)] for who in range(3)]
        outcomes = racers.run(path, steps)
    finally:
        racers.stop()
    done = Counter[str]()
    refused = set()
    for own, ended in zip(steps, outcomes, strict=True):
        for each, outcome in zip(own, ended, strict=True):
            if each.action == "compact":
                continue
            assert outcome.error in ("", "PublishConflictError"), outcome
            if outcome.error:
                refused.add(each.name)
            else:
                done[each.name] += 1
    found = Counter(committers(path))
    assert found == done, f"seed {SEED}"
    assert not refused & set(found)
    transactions = Counter(a["txn"]["appId"] for entry in log_of(path) for a in entry if "txn" in a)
    assert transactions == {f"step {name}": 1 for name in done}
    assert len(done) > 20, "too few commits to prove anything"
    readable(path)
