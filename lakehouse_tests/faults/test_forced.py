"""A forced build of the same inputs and code: its fingerprints are those of the rows that it replaces."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lakehouse.build.result import FAILED
from lakehouse.delta import commit as commit_module
from lakehouse.delta.log import versions
from lakehouse.delta.snapshot import Snapshot
from lakehouse.errors import PublishConflictError
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.faults.publisher import MONDAY, Door, door, publish, sales
from lakehouse_tests.fixtures.forked import ended
from lakehouse_tests.fixtures.making import put, rows_of

__all__ = ["door"]

OLD, NEW, LATER = ["1-0", "1-1", "1-2"], ["2-0", "2-1", "2-2"], ["3-0", "3-1", "3-2"]


@pytest.mark.crash
@pytest.mark.parametrize(
    ("point", "rows", "quarantined", "done"),
    [
        ("before-quarantine-commit", OLD, ["1-bad"], False),
        ("after-quarantine-commit", OLD, ["2-bad"], False),
        ("before-commit", OLD, ["2-bad"], False),
        ("after-commit", NEW, ["2-bad"], True),
    ],
)
def test_a_killed_forced_build_never_looks_current_by_halves(
    door: Door, point: str, rows: list[str], quarantined: list[str], done: bool
) -> None:
    """Without it, the quarantine of one attempt could stand beside the rows of another for ever: no run fixes it."""
    code, said = ended(publish, door.lake.settings.root, 2, 1, LAKEHOUSE_FAILPOINT=point)
    assert code == -signal.SIGKILL, said
    assert (door.seen(door.path), door.seen(door.side)) == (rows, quarantined)
    assert door.done(1) == done
    door.publish(3, mark=1)
    assert (door.seen(door.path), door.seen(door.side)) == (LATER, ["3-bad"])
    assert door.done(1)


def test_a_forced_build_that_fails_its_audit_does_not_look_current(
    lake: LakeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, the quarantine of the failed attempt would pass for that of the published rows."""
    made = Door(lake(sales(max_quarantined=0.4)), monkeypatch)
    made.publish(1)
    made.bad = 50
    assert made.attempt(2, mark=1).status == FAILED
    assert (made.seen(made.path), made.seen(made.side)) == (OLD, ["2-bad"] * 50)
    assert not made.done(1)
    made.bad = 1
    made.publish(3, mark=1)
    assert made.done(1)


def test_only_a_forced_build_commits_once_more(door: Door) -> None:
    """Without it, each build would cost a third commit, or the history not say what the additional one is."""
    door.publish(2)
    assert len(rows_of(door.path)) == 3
    assert [each.entry.operation for each in versions(door.path)] == ["publish", "publish", "create table"]
    door.publish(3, mark=2)
    told: list[Mapping[str, object]] = [each.entry.transactions for each in versions(door.path)[:2]]
    assert told == [{"day/2026-03-02": 2}, {"day/2026-03-02": -1}]
    assert [each.entry.operation for each in versions(door.path)[:2]] == ["publish", "force"]
    assert not versions(door.path)[1].entry.changes_rows


def test_a_forced_build_does_not_publish_over_what_came_right_after_its_begin(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a run that publishes between the two commits of a forced build would be lost without an error."""
    real, left = commit_module.put_entry, [None]

    def overtaken(current: Snapshot, *args: Any, **kwargs: Any) -> int:
        version = real(current, *args, **kwargs)
        if left and Path(current.uri) == door.path:
            left.clear()
            put(door.lake, door.table, MONDAY, [{"id": "newer", "n": 1}], mark=7)
        return version

    monkeypatch.setattr(commit_module, "put_entry", overtaken)
    with pytest.raises(PublishConflictError, match="another run published 2026-03-02"):
        door.publish(2, mark=1)
    assert not left
    assert door.seen(door.path) == ["newer"]
    assert [each.entry.operation for each in versions(door.path)[1:3]] == ["force", "publish"]
