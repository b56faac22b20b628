"""Snapshots that are kept: one and the same while a table stands still, and never an older one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from lakehouse.delta.commit import append, ensure_table, replace_days
from lakehouse.delta.conflicts import conflict
from lakehouse.delta.maintenance import Compactable, compact
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import fresh_snapshot
from lakehouse.delta.target import Commit, Target
from lakehouse_tests.faults.doors import MONDAY, row, target
from lakehouse_tests.fixtures.making import stage_rows

__all__ = ["target"]


def publish(target: Target, *ids: str) -> int:
    return replace_days(
        target,
        fresh_snapshot(target.path),
        stage_rows(target, [row(each, MONDAY) for each in ids]),
        [MONDAY],
        Commit({}),
    )


def test_the_log_is_read_once_while_nothing_is_committed(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a run over a table with years of days would spend its time reading one and the same log."""
    before = open_snapshot(target.path)
    monkeypatch.setattr("lakehouse.delta.snapshot.DeltaTable", None)
    assert open_snapshot(target.path) is before


def test_the_versions_before_it_are_kept_until_the_table_is_another_one(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, each turn of a stream would read a whole log to know what the turn before had read."""
    seen = [open_snapshot(target.path)]
    for number in range(5):
        publish(target, f"{number}")
        seen.append(open_snapshot(target.path))
    with monkeypatch.context() as patch:
        patch.setattr("lakehouse.delta.snapshot.DeltaTable", None)
        assert [open_snapshot(target.path, each.version) for each in seen[-3:]] == seen[-3:]
        assert [open_snapshot(target.path, each.version).files for each in seen[-3:]] == [s.files for s in seen[-3:]]
        with pytest.raises(TypeError):
            open_snapshot(target.path, seen[0].version)
    other = Target(tmp_path / "other", target.schema, target.partition_by)
    ensure_table(other)
    for number in range(6):
        publish(other, f"of another table, {number}")
    shutil.rmtree(target.path)
    other.path.rename(target.path)
    for each in seen[-3:]:
        assert open_snapshot(target.path, each.version).files != each.files


@pytest.mark.parametrize("clock", ["moves", "stands still"])
def test_a_commit_is_seen_at_once(target: Target, clock: str) -> None:
    """Without it, a day could be skipped that has new input, or two commits within one tick be taken for one."""
    log = target.path / "_delta_log"
    before, was = open_snapshot(target.path), log.stat().st_mtime_ns
    for number in range(3):
        version = publish(target, f"{number}")
        if clock == "stands still":
            os.utime(log, ns=(was, was))
        assert open_snapshot(target.path).version == version
        assert open_snapshot(target.path).files == open_snapshot(target.path, version).files != before.files
    assert before.version == version - 3


def test_a_table_that_was_made_anew_is_read_anew(target: Target, tmp_path: Path) -> None:
    """Without it, a restored backup or a table that took another's place would be taken for what was there before."""
    publish(target, "kept")
    backup = tmp_path / "backup"
    shutil.copytree(target.path, backup)
    open_snapshot(backup)
    publish(target, "lost")
    lost = open_snapshot(target.path)
    shutil.rmtree(target.path)
    assert open_snapshot(target.path).version == -1
    backup.rename(target.path)
    assert open_snapshot(target.path).version == lost.version - 1
    assert open_snapshot(target.path).files == open_snapshot(target.path, lost.version - 1).files != lost.files
    assert "another run published 2026-03-02" in str(conflict(lost, open_snapshot(target.path), [str(MONDAY)]))


def test_a_copy_that_was_written_over_a_table_is_read(target: Target, tmp_path: Path) -> None:
    """Without it, a backup that `cp` brings back, with as many versions, would not be seen while the process lives."""
    backup = tmp_path / "backup"
    shutil.copytree(target.path, backup)
    for path, name in ((target.path, "ours"), (backup, "theirs")):
        publish(Target(path, target.schema, target.partition_by), name)
    ours = open_snapshot(target.path)
    folder = (target.path / "_delta_log").stat()
    for file in [each for each in backup.rglob("*") if each.is_file()]:
        place = target.path / file.relative_to(backup)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.read_bytes())
    assert (target.path / "_delta_log").stat().st_mtime_ns == folder.st_mtime_ns, "no entry came or went"
    assert open_snapshot(target.path).version == ours.version
    assert open_snapshot(target.path).files == fresh_snapshot(target.path).files != ours.files


def test_what_changes_a_table_through_its_snapshot_changes_no_one_elses(target: Target) -> None:
    """Without it, a reader's list of files would be one version's and its columns another's."""
    append(target, stage_rows(target, [row("a", MONDAY)]), Commit({"batches": 1}))
    held = open_snapshot(target.path)
    assert held.delta is not None
    assert compact(Compactable(target.path, target.schema)).version == held.version + 1
    assert held.delta.version() == held.version
    assert open_snapshot(target.path).version == held.version + 1
