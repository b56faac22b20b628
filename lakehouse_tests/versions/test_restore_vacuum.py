"""Restore beside a vacuum: what it brings back stays, and where files are gone the table is as it was."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakehouse.delta.maintenance import vacuum
from lakehouse.read.lake import Lake
from lakehouse_tests.faults.undoing import publish, seen, undo
from lakehouse_tests.fixtures.making import age_table, rewrite_entry
from lakehouse_tests.versions.test_restore import DAYS, QUARANTINE, lake

__all__ = ["lake"]

MON, TUE, WED, THU = DAYS


def _age(lake: Lake, hours: float) -> None:
    moment = time.time() - hours * 3600
    for path in (lake.settings.root / "tables").rglob("part-*.parquet"):
        os.utime(path, (moment, moment))


def test_a_vacuum_leaves_what_the_undo_window_promises(lake: Lake) -> None:
    """Without it, the weekly vacuum could end the promise that any version of the last days can be restored."""
    _age(lake, 5000)
    for name in ("silver.things", QUARANTINE):
        assert not vacuum(lake.path(name), 7 * 24).files
    assert undo(lake, 1).committed == 3
    assert [key for _, key in seen(lake)["silver.things"]] == ["a", "b", "c"]


def _is_kept(lake: Lake) -> None:
    """A vacuum leaves what Delta's own would take, and the first version can be restored."""
    _age(lake, 5000)
    path = lake.path("silver.things")
    doomed = DeltaTable(path).vacuum(168, dry_run=True, enforce_retention_duration=False, full=True)
    assert doomed, "else this proves nothing"
    assert not vacuum(path, 168).files
    undo(lake, 1)
    assert [key for _, key in seen(lake)["silver.things"]] == ["a", "b", "c"]


def test_a_vacuum_keeps_files_whose_removal_the_log_has_forgotten(lake: Lake) -> None:
    """A checkpoint drops what was removed longer ago than Delta's own week; the window may be longer than that."""
    path = lake.path("silver.things")
    DeltaTable(path).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 hours"})
    publish(lake, {THU: "t"}, mark=3)
    DeltaTable(path).create_checkpoint()
    _is_kept(lake)


def test_a_vacuum_keeps_what_a_commit_replaced_whose_clock_was_behind(lake: Lake) -> None:
    """Without it, a clock that was a week behind for one run would take its table's undo, and files from under readers."""

    def long_ago(kind: str, body: dict[str, Any]) -> None:
        if kind in ("commitInfo", "remove"):
            body["timestamp" if kind == "commitInfo" else "deletionTimestamp"] = 1

    for name in ("silver.things", QUARANTINE):
        rewrite_entry(lake.path(name), 2, long_ago)
    _is_kept(lake)


@pytest.mark.parametrize("linked", [True, False], ids=["links", "copies"])
def test_a_vacuum_that_has_begun_takes_nothing_that_a_restore_brings_back(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    """Without it, a restore would report success, and the vacuum then remove the files: a table nobody can read."""
    link = os.link

    def refuse(source: Path, target: Path) -> None:
        if Path(target).suffix == ".parquet":  # entries of the log are put in place by links, and by delta-rs too
            raise PermissionError(1, "Operation not permitted")
        link(source, target)

    if not linked:
        monkeypatch.setattr(os, "link", refuse)
    doomed = {}
    for name in ("silver.things", QUARANTINE):
        age_table(lake.path(name))
        delta = DeltaTable(lake.path(name))
        doomed[name] = delta.vacuum(24, dry_run=True, enforce_retention_duration=False, full=True)
        assert doomed[name], "else this proves nothing"
    undo(lake, 1)
    for name, files in doomed.items():  # the vacuum goes on with what it had found
        for file in files:
            (lake.path(name) / file).unlink()
        vacuum(lake.path(name), 24)
    assert [key for _, key in seen(lake)["silver.things"]] == ["a", "b", "c"]
    assert undo(lake, 1).nothing, "what it holds has other names now"
    undo(lake, 2)
    undo(lake, 3)
    assert [key for _, key in seen(lake)["silver.things"]] == ["a", "b", "c"]
    assert [key for _, key in seen(lake)[QUARANTINE]] == ["x"]
