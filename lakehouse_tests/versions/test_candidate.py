"""Candidates: what a swap puts in place, what it refuses, and that crashes and races leave nothing by halves."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from pyspark.sql import types as T

from lakehouse.build.result import BuildResult
from lakehouse.contracts import Table
from lakehouse.delta.commit import ensure_table
from lakehouse.delta.log import versions
from lakehouse.delta.maintenance import Compactable, compact, vacuum
from lakehouse.delta.target import Target
from lakehouse.errors import PublishConflictError, SchemaMismatchError, UndoRefusedError
from lakehouse.privacy.alone import BusyError, alone
from lakehouse.read.lake import Lake
from lakehouse.read.targets import targets
from lakehouse.records.history import latest_records, records
from lakehouse.versions import candidate as module
from lakehouse.versions.candidate import CandidateLake, build_candidate, drop_candidate, open_candidate, swap
from lakehouse.versions.restore import Exchange
from lakehouse_tests.faults.undoing import (
    DAYS,
    beside,
    carry_out,
    killed,
    lake_at,
    prints,
    publish,
    seen,
    tables,
    two_days_beside_a_candidate,
    undo,
)
from lakehouse_tests.fixtures.making import rows_of
from lakehouse_tests.fixtures.streaming import messages

MON, TUE, WED, THU = DAYS
TABLE, QUARANTINE = "silver.things", "silver.things_quarantine"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return two_days_beside_a_candidate(tmp_path)


def put_in_place(lake: Lake, *, force: bool = False) -> module.Swap:
    return swap(lake, lake.table(TABLE), by="ann", reason="new rounding", force=force)


def ids(lake: Lake, name: str = TABLE) -> str:
    return "".join(key for _, key in seen(lake)[name])


def test_nobody_sees_a_candidate_before_the_swap_and_everybody_after(lake: Lake) -> None:
    """Without it, a new version could go live by being built, or only in part by being swapped."""
    assert (ids(lake), ids(lake, QUARANTINE)) == ("abc", "x")
    done = put_in_place(lake)
    assert (done.days, done.kept, done.rows_before, done.rows) == ([MON, TUE], [], 3, 3)
    assert (done.before, done.committed) == (1, 2)
    assert (ids(lake), ids(lake, QUARANTINE)) == ("ACD", "yz")
    assert prints(lake) == prints(lake, QUARANTINE) == {2: 902, 3: 903, 4: None, 5: None}, (
        "the next run finds it current"
    )


def test_what_is_taken_from_outside_has_no_candidate(tmp_path: Path) -> None:
    """Without it, all messages there are would be taken beside the table, into a candidate that no swap can use."""
    made = lake_at(tmp_path, {"bronze.visits": messages()})
    ensure_table(targets(made, made.table("bronze.visits"))[0])
    with pytest.raises(UndoRefusedError, match=r"bronze\.visits: it takes rows from a topic or a database"):
        build_candidate(made, made.table("bronze.visits"), [MON], run_id="test")


def test_a_swap_is_in_both_histories(lake: Lake) -> None:
    """Without it, baselines and `--older-code` would judge the new rows by the figures and the code of the old ones."""
    assert {record.version for record in records(lake.settings.root, TABLE)} == {1}, (
        "a candidate's figures are not live"
    )
    put_in_place(lake)
    newest = versions(lake.path(TABLE))[0].entry
    assert (newest.operation, newest.facts["lakehouse.by"], newest.facts["lakehouse.run_id"]) == (
        "swap",
        "ann",
        "run 9",
    )
    found = latest_records(lake.settings.root, TABLE)
    assert {day: (each.rows, each.code_version) for day, each in found.items()} == {MON: (1, "v9"), TUE: (2, "v9")}


def test_files_are_linked_and_survive_the_drop(lake: Lake) -> None:
    """Without it, dropping the candidate would take the live table's files away, or swapping would copy them."""
    old = time.time() - 40 * 3600
    for file in CandidateLake(lake, lake.table(TABLE)).path(TABLE).rglob("part-*.parquet"):
        os.utime(file, (old, old))
    put_in_place(lake)
    live = [lake.path(TABLE) / file.path for file in lake.snapshot(TABLE).files]
    assert {path.stat().st_nlink for path in live} == {2}
    assert all(path.stat().st_mtime > time.time() - 3600 for path in live), "a vacuum before the commit would take them"
    assert drop_candidate(lake, lake.table(TABLE))
    assert not vacuum(lake.path(TABLE), 24).files
    assert ids(lake) == "ACD"
    assert sorted(path.name for path in lake.path(TABLE).parent.iterdir()) == ["things", "things_quarantine"]
    assert not drop_candidate(lake, lake.table(TABLE))
    with pytest.raises(UndoRefusedError, match="has no candidate"):
        open_candidate(lake, lake.table(TABLE))


def test_where_files_cannot_be_linked_they_are_copied(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a swap would fail for good on a file system without links."""
    link = os.link

    def refuse(source: Path, target: Path) -> None:
        if target.suffix == ".parquet":  # entries of the log are put in place by links, and by delta-rs too
            raise PermissionError(1, "Operation not permitted")
        link(source, target)

    monkeypatch.setattr(os, "link", refuse)
    put_in_place(lake)
    assert ids(lake) == "ACD"


def test_swap_back_and_forth(lake: Lake) -> None:
    """Without it, a swap that turns out badly could not be undone at once, and not be repeated after the mistake is found."""
    done = put_in_place(lake)
    assert put_in_place(lake).committed is None, "a repeat is a no-op"
    undo(lake, done.before)
    assert (ids(lake), ids(lake, QUARANTINE)) == ("abc", "x")
    assert prints(lake) == {2: 102, 3: 103, 4: None, 5: None}
    assert put_in_place(lake).committed == 4
    assert (ids(lake), ids(lake, QUARANTINE)) == ("ACD", "yz")


def test_days_that_the_candidate_does_not_have_stay(lake: Lake) -> None:
    """Without it, a canary of a month would empty all the others."""
    publish(lake, {WED: "w"}, {WED: "v"}, mark=2)
    assert put_in_place(lake).kept == [WED]
    assert (ids(lake), ids(lake, QUARANTINE)) == ("ACDw", "yzv")
    assert prints(lake)[4] == 204


def test_a_live_day_that_changed_meanwhile_is_not_lost(lake: Lake) -> None:
    """Without it, late rows that a nightly run has published would vanish with the swap."""
    publish(lake, {TUE: "l"}, mark=2)
    with pytest.raises(
        UndoRefusedError, match=r"1 day\(s\) were published after the candidate's were built: 2026-03-03\."
    ):
        put_in_place(lake)
    assert lake.snapshot(TABLE).version == 2
    beside(lake, {TUE: "L"}, mark=10)
    assert put_in_place(lake).committed == 3, "the day was built again"
    assert ids(lake) == "AL"


def test_force_replaces_it_all_the_same(lake: Lake) -> None:
    """Without it, a table that is published every few minutes could never be swapped."""
    publish(lake, {TUE: "n"}, mark=2)
    put_in_place(lake, force=True)
    assert ids(lake) == "ACD"


def test_merged_files_are_no_change(lake: Lake) -> None:
    """Without it, every compaction would make every candidate stale."""
    publish(lake, {WED: "vw"}, mark=2, files=2)
    beside(lake, {WED: "W"})
    compact(Compactable(lake.path(TABLE), lake.table(TABLE).schema, ("token",)))
    put_in_place(lake)
    assert ids(lake) == "ACDW"


def test_a_run_that_publishes_during_the_swap_wins_whole(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the swap could take away what a run publishes at the same moment."""
    whole = module.commit_exchange

    def racing(change: Exchange, facts: dict[str, object]) -> int:
        if change.target.path == lake.path(TABLE):
            publish(lake, {TUE: "n"}, mark=3)
        return whole(change, facts)

    monkeypatch.setattr(module, "commit_exchange", racing)
    with pytest.raises(PublishConflictError, match="another run published"):
        put_in_place(lake)
    assert ids(lake) == "abn"


@pytest.mark.parametrize("point", ["after-names", "before-quarantine-swap", "after-quarantine-swap", "after-swap"])
def test_a_killed_swap_is_ended_by_running_it_again(lake: Lake, point: str) -> None:
    """Without it, a power cut could leave half a swap, or block the next one."""
    killed(lake.settings.root, f"{TABLE}:{point}", "swap")
    assert ids(lake) == ("ACD" if point == "after-swap" else "abc")
    assert ids(lake, QUARANTINE) == ("x" if point in ("after-names", "before-quarantine-swap") else "yz")
    carry_out(lake.settings.root, "swap")
    assert (ids(lake), ids(lake, QUARANTINE)) == ("ACD", "yz")
    assert put_in_place(lake).committed is None


def test_an_upsert_table_is_swapped_whole_or_not_at_all(lake: Lake) -> None:
    """Its rows move between days: next to days of the other version, a row could be there twice."""
    object.__setattr__(lake.table(TABLE), "upsert", True)
    publish(lake, {WED: "w"}, mark=2)
    with pytest.raises(UndoRefusedError, match=r"lacks 2026-03-04\. Build the whole of it"):
        put_in_place(lake, force=True)
    with pytest.raises(UndoRefusedError, match="lacks 2026-03-02"):
        build_candidate(lake, lake.table(TABLE), [TUE, WED], run_id="x")
    beside(lake, {WED: "W"})
    put_in_place(lake)
    assert ids(lake) == "ACDW"


def test_a_candidate_and_an_erasure_keep_each_other_out(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a build that read a person before the erasure would publish them after its scan found nothing."""
    root, built = lake.settings.root, []

    def building(_: Lake, table: Table, *__: object, **___: object) -> BuildResult:
        with pytest.raises(BusyError, match="A build of a candidate is on"), alone(root):
            pass
        built.append(True)
        return BuildResult(table, 0, {})

    monkeypatch.setattr(module, "build", building)
    with alone(root), pytest.raises(BusyError, match="forget` is on"):
        build_candidate(lake, lake.table(TABLE), DAYS, run_id="candidate-1")
    assert not built
    build_candidate(lake, lake.table(TABLE), DAYS, run_id="candidate-1")
    assert built
    assert not list((root / "privacy" / "streams").iterdir())


def test_a_new_column_comes_with_the_swap(tmp_path: Path) -> None:
    """Without it, a candidate of a wider contract could not be swapped, or readers would see the column before its rows."""
    publish(lake_at(tmp_path), {MON: "ab"})
    wide = lake_at(tmp_path, tables(more=T.StringType()))
    beside(wide, {MON: "A"})
    before = wide.snapshot(TABLE).version
    assert put_in_place(wide).committed == before + 1, "columns and rows in one commit"
    assert "more" in rows_of(wide.path(TABLE))[0]
    undo(wide, before)
    assert "more" not in rows_of(wide.path(TABLE))[0]


def test_a_new_column_of_some_days_is_null_in_the_others(tmp_path: Path) -> None:
    """Without it, a canary of a wider contract would have to be built over the whole history."""
    publish(lake_at(tmp_path), {MON: "ab", TUE: "c"})
    wide = lake_at(tmp_path, tables(more=T.StringType()))
    beside(wide, {MON: "A"})
    put_in_place(wide)
    assert [row["more"] for row in rows_of(wide.path(TABLE))] == [None, None]
    assert ids(wide) == "Ac"


def test_a_column_of_another_type_needs_the_whole_table(tmp_path: Path) -> None:
    """Without it, files of two types would lie side by side, and every reader would fail on one of them."""
    publish(lake_at(tmp_path, tables(more=T.StringType())), {MON: "ab", TUE: "c"})
    other = lake_at(tmp_path, tables(more=T.LongType()))
    beside(other, {MON: "A"})
    with pytest.raises(SchemaMismatchError, match="more is string in the table and long in the contract"):
        put_in_place(other)
    beside(other, {TUE: "C"})
    put_in_place(other)
    assert ids(other) == "AC"


def test_a_candidate_of_a_contract_before_is_dropped_and_built_again(tmp_path: Path) -> None:
    """Without it, its folders were to be moved away by hand, as those of a live table are."""
    old = lake_at(tmp_path, tables(more=T.StringType()))
    publish(old, {MON: "ab"})
    beside(old, {MON: "A"})
    other = lake_at(tmp_path, tables(more=T.LongType()))
    with pytest.raises(UndoRefusedError, match=f"Remove it with `lakehouse candidate drop {TABLE}`, and build it"):
        build_candidate(other, other.table(TABLE), [MON], run_id="anew")
    drop_candidate(other, other.table(TABLE))
    beside(other, {MON: "A"})
    put_in_place(other)
    assert ids(other) == "A"


def test_a_candidate_of_a_contract_before_is_not_swapped_in(tmp_path: Path) -> None:
    """Without it, the live table would get columns that today's code refuses, and no day of it could be built."""
    old = lake_at(tmp_path, tables(more=T.StringType()))
    publish(old, {MON: "ab"})
    beside(old, {MON: "A"})
    other = lake_at(tmp_path, tables(more=T.LongType()))
    with pytest.raises(UndoRefusedError, match="was built before its contract changed"):
        put_in_place(other)
    assert ids(old) == "ab"
    put_in_place(old)
    assert ids(old) == "A"


def test_other_partition_columns_are_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the commit would name partition values that the table does not have."""
    made = lake.snapshot(TABLE)
    made.by_day("day")  # known before the columns are made other ones
    object.__setattr__(made, "partition_by", ("day", "n"))
    monkeypatch.setattr(lake, "snapshot", lambda name: made)
    with pytest.raises(UndoRefusedError, match="is partitioned by day, n, its candidate by day"):
        put_in_place(lake)
    with pytest.raises(UndoRefusedError, match="its candidate by day; Delta cannot change that"):  # not after hours
        build_candidate(lake, lake.table(TABLE), DAYS, run_id="run")


def test_what_a_killed_drop_leaves_is_removed_by_the_next(lake: Lake) -> None:
    """Without it, folders that nothing refers to would stay for good, or half a candidate be taken for one."""
    path = CandidateLake(lake, lake.table(TABLE)).path(TABLE)
    path.rename(path.with_name(f"{path.name}__dropped"))
    assert drop_candidate(lake, lake.table(TABLE))
    assert sorted(each.name for each in path.parent.iterdir()) == ["things", "things_quarantine"]


def test_failed_days_are_not_part_of_a_candidate(tmp_path: Path) -> None:
    """Without it, the quarantine of a day that failed its audit would replace that of the good rows which stay."""
    lake = lake_at(tmp_path)
    publish(lake, {MON: "a", TUE: "b"}, {TUE: "x"})
    beside(lake, {MON: "A"})
    made = CandidateLake(lake, lake.table(TABLE))
    side: Target = module.targets(made, lake.table(TABLE))[1]  # type: ignore[assignment]
    from lakehouse.delta.commit import ensure_table, replace_days
    from lakehouse.delta.target import Commit

    replace_days(side, ensure_table(side), [], [TUE], Commit({f"day/{TUE}": 5}))
    assert open_candidate(lake, lake.table(TABLE)).failed == [TUE]
    put_in_place(lake)
    assert (ids(lake), ids(lake, QUARANTINE)) == ("Ab", "x")
