"""The one door among other writers, without any race: lost answers, conflicts, repeats and forced rebuilds."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from lakehouse.delta import commit as door
from lakehouse.delta.commit import append, append_batch, ensure_table, exchange_files, replace_days
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import Snapshot, fresh_snapshot
from lakehouse.delta.target import Commit, Target
from lakehouse.errors import PublishConflictError
from lakehouse_tests.faults.doors import MONDAY, SCHEMA, TUESDAY, WEDNESDAY, entry, ids, row, target
from lakehouse_tests.fixtures.making import stage_rows

__all__ = ["target"]


class _AfterTheFact:
    """Makes each commit of the door succeed and then fail, as a lost answer does."""

    def __init__(self, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
        real = door.put_entry

        def lost(*args: Any, **kwargs: Any) -> int:
            self.calls += 1
            real(*args, **kwargs)
            raise error

        self.calls = 0
        monkeypatch.setattr(door, "put_entry", lost)


LOST = [CommitFailedError("timed out"), DeltaError("checkpoint failed"), OSError("connection reset")]


@pytest.mark.parametrize("error", LOST, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("content", ["rows", "nothing"])
def test_a_commit_whose_answer_is_lost_happens_once(
    target: Target, monkeypatch: pytest.MonkeyPatch, error: Exception, content: str
) -> None:
    """Without it, a time-out after success would report a conflict with itself, or commit twice."""
    files = stage_rows(target, [row("x", MONDAY)] if content == "rows" else [])
    lost = _AfterTheFact(error, monkeypatch)
    for marks in ({"day/mon": 2}, {}):
        version = replace_days(target, open_snapshot(target.path), files, [MONDAY], Commit(marks))
        assert version == 1 + lost.calls
    assert lost.calls == 2
    assert ids(target) == (["t", "x"] if content == "rows" else ["t"])


@pytest.mark.parametrize("error", LOST, ids=lambda e: type(e).__name__)
def test_an_append_whose_answer_is_lost_happens_once(
    target: Target, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Without it, a batch of a stream could be appended twice."""
    files = stage_rows(target, [row("x", MONDAY)])
    lost = _AfterTheFact(error, monkeypatch)
    assert append(target, files, Commit({"stream": 7})) == 2
    assert append(target, files, Commit({"stream": 7})) == 2
    assert lost.calls == 1
    assert ids(target) == ["m", "t", "x"]


def test_an_append_is_never_replayed(target: Target) -> None:
    """Without it, a batch sent again after compaction would double its rows, after a delete bring them back."""
    files = stage_rows(target, [row("x", MONDAY)])
    append(target, files, Commit({"stream": 7}))
    DeltaTable(str(target.path)).optimize.compact()
    version = append(target, files, Commit({"stream": 7}))
    assert ids(target) == ["m", "t", "x"]
    assert version == open_snapshot(target.path).version
    (info,) = [a["commitInfo"] for a in entry(target, 2) if "commitInfo" in a]
    assert info["isBlindAppend"] is True
    with pytest.raises(ValueError, match="transaction"):
        append(target, files, Commit())


def test_a_commit_that_failed_is_not_reported_as_done(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a full disk could look like a published day."""

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(door, "put_entry", full)
    files = stage_rows(target, [row("x", MONDAY)])
    with pytest.raises(OSError, match="No space left"):
        replace_days(target, open_snapshot(target.path), files, [MONDAY], Commit({"day/mon": 2}))
    with pytest.raises(OSError, match="No space left"):
        append(target, files, Commit({"stream": 1}))
    assert ids(target) == ["m", "t"]


def test_other_days_may_be_published_meanwhile(target: Target) -> None:
    """Without it, two backfills of different months would fail each other."""
    base = open_snapshot(target.path)
    replace_days(target, base, stage_rows(target, [row("t2", TUESDAY)]), [TUESDAY], Commit({"day/tue": 1}))
    replace_days(target, base, stage_rows(target, [row("m2", MONDAY)]), [MONDAY], Commit({"day/mon": 2}))
    assert ids(target) == ["m2", "t2"]


def test_the_same_day_published_meanwhile_is_a_conflict(target: Target) -> None:
    """Without it, the run that started first and read the older input could overwrite the newer result."""
    base = open_snapshot(target.path)
    replace_days(target, base, stage_rows(target, [row("new", MONDAY)]), [MONDAY], Commit({"day/mon": 2}))
    with pytest.raises(PublishConflictError, match=r"silver\.sales: another run published 2026-03-02 .*version 1 → 2"):
        replace_days(target, base, stage_rows(target, [row("old", MONDAY)]), [MONDAY], Commit({"day/mon": 3}))
    assert ids(target) == ["new", "t"]


def test_a_run_may_outlive_the_log_it_began_on(target: Target) -> None:
    """Without it, a slow run beside a clean-up of the log would fail with words that name nothing, and so would each retry."""
    base, unread = fresh_snapshot(target.path), fresh_snapshot(target.path)
    assert (base.transaction("day/mon"), base.transaction("day/tue")) == (1, None)
    replace_days(target, base, stage_rows(target, [row("new", MONDAY)]), [MONDAY], Commit({"day/mon": 2}))
    for each in range(2):
        os.utime(target.path / "_delta_log" / f"{each:020}.json", (0, 0))
    delta = DeltaTable(str(target.path))
    delta.create_checkpoint()
    delta.cleanup_metadata()
    assert not (target.path / "_delta_log" / f"{base.version:020}.json").exists()
    with pytest.raises(PublishConflictError, match="another run published 2026-03-02"):
        replace_days(target, base, stage_rows(target, [row("old", MONDAY)]), [MONDAY], Commit({"day/mon": 3}))
    with pytest.raises(PublishConflictError, match=r"silver.sales: the log of version 1, .* has been cleaned up"):
        replace_days(target, unread, stage_rows(target, [row("t2", TUESDAY)]), [TUESDAY], Commit({"day/tue": 1}))
    replace_days(target, base, stage_rows(target, [row("t2", TUESDAY)]), [TUESDAY], Commit({"day/tue": 1}))
    assert ids(target) == ["new", "t2"]


def test_a_day_emptied_meanwhile_is_a_conflict(target: Target) -> None:
    """Without it, two empty contents of different inputs would pass for one another."""
    base = open_snapshot(target.path)
    replace_days(target, base, [], [WEDNESDAY], Commit({"day/wed": 5}))
    with pytest.raises(PublishConflictError, match="another run published 2026-03-04"):
        replace_days(target, base, [], [WEDNESDAY], Commit({"day/wed": 6}))


def test_the_same_result_published_meanwhile_is_no_conflict(target: Target) -> None:
    """Without it, a retried run beside its slow original would fail instead of finding the work done."""
    base = open_snapshot(target.path)
    replace_days(target, base, stage_rows(target, [row("x", MONDAY)]), [MONDAY], Commit({"day/mon": 2}))
    again = stage_rows(target, [row("x", MONDAY)])
    assert replace_days(target, base, again, [MONDAY], Commit({"day/mon": 2})) == 2
    assert ids(target) == ["t", "x"]


def test_a_forced_rebuild_is_not_taken_for_done_by_its_old_fingerprint(target: Target) -> None:
    """Without it, a forced day that lost a race for the log would be dropped: its fingerprint is in the table already."""
    base = open_snapshot(target.path)
    replace_days(target, base, stage_rows(target, [row("t2", TUESDAY)]), [TUESDAY], Commit({"day/tue": 1}))
    forced = stage_rows(target, [row("forced", MONDAY)])
    assert replace_days(target, base, forced, [MONDAY], Commit({"day/mon": 1})) == 3
    assert ids(target) == ["forced", "t2"]


def test_a_writer_that_always_loses_gives_up_by_name(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a run against a busy table would never end."""
    real, number = door.put_entry, count(1)

    def busy(*args: Any, **kwargs: Any) -> int:
        with monkeypatch.context() as patch:
            patch.setattr(door, "put_entry", real)
            append(target, [], Commit({"somebody else": next(number)}))
        return real(*args, **kwargs)

    monkeypatch.setattr(door, "put_entry", busy)
    said = r"silver\.sales: other writers won every commit for 0\.2 s, and nothing"
    with pytest.raises(PublishConflictError, match=said):
        replace_days(target, open_snapshot(target.path), [], [MONDAY], Commit(), patience=0.2)
    with pytest.raises(PublishConflictError, match=said):
        append(target, stage_rows(target, [row("x", MONDAY)]), Commit({"stream": 1}), patience=0.2)
    assert ids(target) == ["m", "t"]


def test_a_log_that_takes_no_commit_is_not_taken_for_a_busy_one(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a run would try for many minutes to win a race that nobody else is in."""

    def refuse(*_: Any, **__: Any) -> None:
        raise CommitFailedError("refused")

    monkeypatch.setattr(door, "put_entry", refuse)
    with pytest.raises(CommitFailedError, match="refused"):
        replace_days(target, open_snapshot(target.path), [], [MONDAY], Commit())


def _overtaken(monkeypatch: pytest.MonkeyPatch, overtake: Callable[[], object]) -> None:
    """Right after the next commit of the door, before its writer looks at the log again, another one is made."""
    real, left = door.put_entry, [overtake]

    def commit(*args: Any, **kwargs: Any) -> int:
        version = real(*args, **kwargs)
        if left:
            left.pop()()
        return version

    monkeypatch.setattr(door, "put_entry", commit)


@pytest.mark.parametrize("way", ["replace", "batch", "append", "exchange"])
def test_a_commit_is_not_taken_for_the_one_that_follows_it(
    target: Target, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Without it, whoever goes on from its own commit would go on from another's, and overwrite it without a word."""
    base, files = open_snapshot(target.path), stage_rows(target, [row("x", MONDAY)])
    after = stage_rows(target, [row("later", WEDNESDAY)])
    _overtaken(monkeypatch, lambda: append(target, after, Commit({"other": 1})))
    if way == "replace":
        version = replace_days(target, base, files, [MONDAY], Commit({"day/mon": 2}))
    elif way == "batch":
        version = append_batch(target, base, files, Commit({"batch": 1}))
    elif way == "append":
        version = append(target, files, Commit({"batch": 1}))
    else:
        version = exchange_files(target, base, files, base.by_day("day")[MONDAY], Commit(), days=[MONDAY])
    assert (version, open_snapshot(target.path).version) == (2, 3)
    assert "later" not in ids(target, version)
    assert "x" in ids(target, version)


def test_what_a_commit_derives_from_the_table_is_derived_at_each_try(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a value that another writer has raised meanwhile would go back to what the first one had read."""
    real, left = door.put_entry, [20]

    def raised(*args: Any, **kwargs: Any) -> int:
        if left:
            append(target, [], Commit({"high": left.pop()}))
        return real(*args, **kwargs)

    monkeypatch.setattr(door, "put_entry", raised)

    def highest(current: Snapshot) -> Commit:
        return Commit({"high": max(10, current.transaction("high") or 0), "own": 1})

    append(target, [], highest)
    snapshot = open_snapshot(target.path)
    assert (snapshot.transaction("high"), snapshot.transaction("own")) == (20, 1)


def test_a_table_created_by_two_at_once_is_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the first run of two would fail at random, on an empty lakehouse."""
    made = Target(tmp_path / "silver" / "sales", SCHEMA, ("day",))
    real = DeltaTable.create.__func__  # type: ignore[attr-defined]

    def raced(cls: type[DeltaTable], *args: Any, **kwargs: Any) -> DeltaTable:
        real(cls, *args, **kwargs)
        return real(cls, *args, **{**kwargs, "mode": "error"})  # type: ignore[no-any-return]

    monkeypatch.setattr(DeltaTable, "create", classmethod(raced))
    assert ensure_table(made).version == 0
    assert ensure_table(made).version == 0
