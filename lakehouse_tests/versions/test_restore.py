"""Restore: what comes back, what it says, what it refuses, and that crashes and races leave nothing by halves."""

from __future__ import annotations

import json
import os
import random
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from lakehouse.build.plan import make_plan
from lakehouse.build.ready import readiness
from lakehouse.delta.commit import append, replace_days
from lakehouse.delta.failpoints import MERGE_POINTS
from lakehouse.delta.files import rows_in
from lakehouse.delta.log import versions
from lakehouse.delta.maintenance import Compactable, compact, vacuum
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.pairing import QUARANTINE_VERSION
from lakehouse.delta.snapshot import fresh_snapshot
from lakehouse.delta.target import Commit, Target
from lakehouse.delta.transactions import day_transaction
from lakehouse.errors import DecidedMeanwhileError, HistoryGoneError, PublishConflictError, UndoRefusedError
from lakehouse.read.lake import Lake
from lakehouse.read.targets import targets
from lakehouse.records.history import latest_records
from lakehouse.versions import restore as module
from lakehouse.versions.restore import plan_restore, restore
from lakehouse_tests.faults.undoing import DAYS, carry_out, killed, lake_at, prints, publish, seen, undo
from lakehouse_tests.fixtures.making import age_table, put, rewrite_entry, stage_rows

MON, TUE, WED, THU = DAYS
QUARANTINE = "silver.things_quarantine"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Version 1: Monday and Tuesday, sound. Version 2: both broken by other code, and Wednesday new."""
    made = lake_at(tmp_path)
    assert publish(made, {MON: "ab", TUE: "c"}, {MON: "x"}) == 1
    assert publish(made, {MON: "A", TUE: "C", WED: "W"}, {MON: "yz", WED: "w"}, mark=2, code="v2") == 2
    return made


def parquet(lake: Lake) -> set[int]:
    """What takes space, whatever its names are."""
    return {path.stat().st_ino for path in (lake.settings.root / "tables" / "silver").rglob("part-*.parquet")}


def test_a_table_and_its_quarantine_are_what_they_were(lake: Lake) -> None:
    """Without it, a bad deploy could be undone only by computing everything again, or with rows of two versions."""
    before = parquet(lake)
    done = undo(lake, 1)
    assert done.committed == 3
    assert (done.days, done.rows) == ([MON, TUE, WED], (3, 3))
    monday, tuesday = str(MON), str(TUE)
    assert seen(lake) == {
        "silver.things": [(monday, "a"), (monday, "b"), (tuesday, "c")],
        QUARANTINE: [(monday, "x")],
    }
    assert parquet(lake) == before, "files were copied"
    assert prints(lake) == prints(lake, QUARANTINE) == {2: 102, 3: 103, 4: None, 5: None}


def test_only_some_days_go_back(lake: Lake) -> None:
    """Without it, one broken day could be undone only together with the good work of later runs on other days."""
    assert undo(lake, 1, [TUE, THU]).days == [TUE]
    assert [key for _, key in seen(lake)["silver.things"]] == ["A", "c", "W"]
    assert [key for _, key in seen(lake)[QUARANTINE]] == ["y", "z", "w"]
    assert prints(lake) == {2: 202, 3: 103, 4: 204, 5: None}


def test_a_restore_is_in_the_history_and_can_be_undone(lake: Lake) -> None:
    """Without it, nobody could tell who put the table back and why, or change their mind."""
    broken = seen(lake)
    undo(lake, 1)
    newest = versions(lake.path("silver.things"))[0]
    assert (newest.entry.operation, newest.rows_before, newest.rows) == ("restore", 3, 3)
    facts = newest.entry.facts
    said = [facts[f"lakehouse.{name}"] for name in ("restored_version", "by", "reason")]
    assert said == ["1", "ann", "a bad deploy"]
    figures = {day: dict(each) for day, each in newest.entry.figures.items()}
    assert len({each.pop("tried") for each in figures.values()}) == 3
    # A day that goes tells which code is to leave it alone: no code made it.
    assert figures == {str(day): {"rows": n, "code_version": "v1"} for day, n in ((MON, 2), (TUE, 1), (WED, 0))}
    kept = latest_records(lake.settings.root, "silver.things")
    assert {day: (each.rows, each.operation, each.code_version) for day, each in kept.items()} == {
        MON: (2, "restore", "v1"), TUE: (1, "restore", "v1"), WED: (0, "restore", "v1"),
    }  # fmt: skip
    things = lake.table("silver.things")
    why = readiness(lake, things, WED, datetime.now(UTC)).reason
    assert re.fullmatch("silver.things .* is not published: it was restored, .* UTC, to a version before .*", why)
    undo(lake, 2)
    assert seen(lake) == broken
    assert prints(lake) == {2: 202, 3: 203, 4: 204, 5: None}


def test_a_second_restore_writes_nothing(lake: Lake) -> None:
    """Without it, a repeat after a lost answer would double the history, or worse."""
    undo(lake, 1)
    again = undo(lake, 1)
    assert again.nothing
    assert again.committed is None
    assert open_snapshot(lake.path("silver.things")).version == 3


def test_the_next_run_and_downstream_tables_know(lake: Lake) -> None:
    """Without it, the restored days would pass for current, and what was computed from the broken rows would stay."""
    totals = lake.table("gold.totals")
    undo(lake, 2)
    undo(lake, 1)
    sound = make_plan(lake, totals, DAYS).fingerprints
    undo(lake, 2)
    broken = make_plan(lake, totals, DAYS).fingerprints
    for day in DAYS:
        assert sound[day] != broken[day], day  # Thursday reads Wednesday, which was not there
    undo(lake, 1, [WED])
    assert {day: make_plan(lake, totals, DAYS).fingerprints[day] == sound[day] for day in DAYS} == {
        MON: False, TUE: False, WED: False, THU: True,
    }  # fmt: skip


def test_a_downstream_table_that_goes_back_too_is_current_again(tmp_path: Path) -> None:
    """Without it, undoing a whole chain of tables would be followed by computing all of it once more."""
    lake = lake_at(tmp_path)
    publish(lake, {MON: "ab"})
    totals = lake.table("gold.totals")
    days = [MON, TUE]
    first = make_plan(lake, totals, days).fingerprints
    for day in days:
        put(lake, totals, day, [{"n": 1}], first[day])
    publish(lake, {MON: "A", TUE: "B"}, mark=2)
    assert make_plan(lake, totals, days).fingerprints[TUE] != first[TUE]
    undo(lake, 1)
    assert make_plan(lake, totals, days).fingerprints == first


def test_a_version_whose_files_are_gone_is_refused_before_anything_is_written(lake: Lake) -> None:
    """Without it, the quarantine would go back and the table not, or readers would fail on missing files."""
    publish(lake, {MON: "m"}, mark=3)
    (path,) = (p for p in (lake.path("silver.things") / f.path for f in _files(lake, 1)) if "day=2026-03-03" in str(p))
    path.unlink()
    before = seen(lake)
    with pytest.raises(HistoryGoneError, match=r"version 1 cannot be restored: 1 of the 2 files .* vacuum.*: 3, 2, 0"):
        undo(lake, 1)
    assert seen(lake) == before
    assert open_snapshot(lake.path(QUARANTINE)).version == 3
    assert [v.readable for v in versions(lake.path("silver.things"))] == [True, True, False, True]
    assert undo(lake, 1, [MON]).committed == 4, "a day whose files are all there can go back"
    with pytest.raises(HistoryGoneError, match="no version 9; its versions are 0 to 4"):
        undo(lake, 9)


def _files(lake: Lake, version: int) -> list:
    return list(open_snapshot(lake.path("silver.things"), version).files)


def test_a_run_that_publishes_meanwhile_wins_whole(lake: Lake) -> None:
    """Without it, the restore could take away what a run has just published, without a word."""
    plan = plan_restore(lake, lake.table("silver.things"), 1)
    publish(lake, {TUE: "n"}, mark=3)
    with pytest.raises(PublishConflictError, match=r"another run published"):
        restore(lake, plan, by="ann")
    assert [key for _, key in seen(lake)["silver.things"]] == ["A", "n", "W"]
    undo(lake, 1)
    assert [key for _, key in seen(lake)["silver.things"]] == ["a", "b", "c"]


def test_a_run_that_was_on_does_not_publish_over_a_restore(lake: Lake) -> None:
    """Without it, a backfill that collides with a restore would try again, and undo it seconds later."""
    target, _ = targets(lake, lake.table("silver.things"))
    base = open_snapshot(target.path)
    undo(lake, 1)
    files = stage_rows(target, [{"id": "n", "day": TUE, "token": None, "n": 1}])
    said = r"silver\.things: ann ran `lakehouse restore` .*version 2 → 3.*To publish 2026-03-03 over it, run it again"
    with pytest.raises(DecidedMeanwhileError, match=said):
        replace_days(target, base, files, [TUE], Commit({day_transaction(TUE): 999}))
    replace_days(target, open_snapshot(target.path), files, [TUE], Commit({day_transaction(TUE): 999}))
    assert [key for _, key in seen(lake)["silver.things"]] == ["a", "b", "n"]


def test_a_run_on_other_days_does_not_stop_the_restore_of_a_day(lake: Lake) -> None:
    """Without it, a day could hardly be restored in a lakehouse that is never idle."""
    plan = plan_restore(lake, lake.table("silver.things"), 1, [MON])
    publish(lake, {THU: "t"}, mark=3)
    assert restore(lake, plan, by="ann").committed == 4
    assert [key for _, key in seen(lake)["silver.things"]] == ["a", "b", "C", "W", "t"]


@pytest.mark.parametrize(
    "point", ["after-names", "before-quarantine-restore", "after-quarantine-restore", "after-restore"]
)
def test_a_killed_restore_is_ended_by_running_it_again(lake: Lake, point: str) -> None:
    """Without it, a power cut could leave rows of one version with the quarantine of another, for good."""
    old, root = seen(lake), lake.settings.root
    killed(root, f"silver.things:{point}", "restore", "1")
    half = seen(lake)
    assert half["silver.things"] == (seen(lake, 1) if point == "after-restore" else old)["silver.things"]
    if point == "after-quarantine-restore":
        # Whatever runs next sees that the two do not belong together, and builds the days again.
        assert all(prints(lake)[day.day] != prints(lake, QUARANTINE)[day.day] for day in (MON, TUE, WED))
    carry_out(root, "restore", "1")
    assert [key for _, key in seen(lake)["silver.things"]] == ["a", "b", "c"]
    assert [key for _, key in seen(lake)[QUARANTINE]] == ["x"]
    assert undo(lake, 1).nothing


@pytest.mark.parametrize("point", MERGE_POINTS)
def test_a_killed_compaction_leaves_the_table_as_it_was_or_merged(lake: Lake, point: str) -> None:
    """Without it, a power cut could leave rows twice, or a compaction that nobody can run again."""
    publish(lake, {MON: "pqr", THU: "tu"}, mark=3, files=2)
    before, path = seen(lake), lake.path("silver.things")
    assert len(open_snapshot(path).files) == 6
    killed(lake.settings.root, f"silver.things:{point}", "compact")
    assert seen(lake) == before
    assert len(open_snapshot(path).files) == (4 if point == "after-merge-commit" else 6)
    carry_out(lake.settings.root, "compact")
    assert seen(lake) == before
    assert len(open_snapshot(path).files) == 4
    age_table(path)
    vacuum(path, 24)
    assert len([each for each in path.rglob("*.parquet") if "_delta_log" not in each.parts]) == 4
    assert seen(lake) == before


def test_an_upsert_table_is_not_torn(tmp_path: Path) -> None:
    """Its rows move between days: put back apart, a row could be there twice or not at all."""
    lake = lake_at(tmp_path)
    publish(lake, {MON: "a", TUE: "b", WED: "c"})
    publish(lake, {MON: "A", TUE: ""}, mark=2)  # Tuesday is emptied: only its removed file says so
    publish(lake, {WED: "C"}, mark=3)
    object.__setattr__(lake.table("silver.things"), "upsert", True)
    with pytest.raises(UndoRefusedError, match=r"version 2 replaced 2026-03-03 together with days to restore"):
        undo(lake, 1, [MON])
    assert undo(lake, 1, [WED]).committed == 4
    assert undo(lake, 1, [MON, TUE]).committed == 5
    assert [key for _, key in seen(lake)["silver.things"]] == ["a", "b", "c"]


def _widen(lake: Lake) -> None:
    for name in ("silver.things", QUARANTINE):
        DeltaTable(lake.path(name)).alter.add_columns([Field("more", PrimitiveType("string"))])


def test_columns_go_back_with_a_whole_table(lake: Lake) -> None:
    """Without it, the code of before a bad deploy could not write to the table that the deploy has widened."""
    _widen(lake)
    undo(lake, 1)
    for name in ("silver.things", QUARANTINE):
        assert "more" not in [f.name for f in DeltaTable(lake.path(name)).schema().fields]
    assert [key for _, key in seen(lake)["silver.things"]] == ["a", "b", "c"]
    publish(lake, {MON: "again"}, mark=4)
    undo(lake, 3)
    assert "more" in [f.name for f in DeltaTable(lake.path("silver.things")).schema().fields]
    assert [key for _, key in seen(lake)["silver.things"]] == ["A", "C", "W"]


def test_a_day_goes_back_under_wider_columns_but_not_under_other_ones(lake: Lake) -> None:
    """Without it, a day's rows could come back with values that today's columns cannot hold."""
    _widen(lake)
    undo(lake, 1, [MON])
    assert [key for _, key in seen(lake)["silver.things"]] == ["a", "b", "C", "W"]
    wide = open_snapshot(lake.path("silver.things"), 4).delta
    assert wide is not None
    assert "more" in [f.name for f in wide.schema().fields]
    undo(lake, 0)
    with pytest.raises(UndoRefusedError, match=r"columns have changed since version 4 \(more\)"):
        plan_restore(lake, lake.table("silver.things"), 4, [MON])


def test_merged_files_are_no_obstacle(lake: Lake) -> None:
    """Without it, the nightly compaction would end the undo window, or a restore would bring rows back twice."""
    publish(lake, {MON: "pq"}, mark=3, files=2)
    layout = Compactable(lake.path("silver.things"), lake.table("silver.things").schema, ("token",))
    assert compact(layout).version == 4
    for version, expected in ((1, "abc"), (3, "pqCW"), (4, "pqCW"), (2, "ACW")):
        undo(lake, version)
        assert [key for _, key in seen(lake)["silver.things"]] == list(expected)


def test_no_personal_data_in_the_log(lake: Lake) -> None:
    """Without it, statistics of the files that come back would put tokens into the log in plain text."""
    undo(lake, 1)
    for name in ("silver.things", QUARANTINE):
        log = lake.path(name) / "_delta_log" / f"{3:020}.json"
        assert "secret" not in log.read_text()
        added = [json.loads(line)["add"] for line in log.read_text().splitlines() if '"add"' in line]
        assert added
        assert all(json.loads(each["stats"])["numRecords"] for each in added)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_work_gives_what_the_versions_held(tmp_path: Path, seed: int) -> None:
    """Without it, some sequence of publishing, merging and restoring could double rows or lose them."""
    chance = random.Random(seed)
    lake = lake_at(tmp_path)
    states: dict[int, dict[str, list[tuple[str, str]]]] = {}
    number = 0
    for mark in range(1, 14):
        choice = chance.random()
        if choice < 0.5 or not states:
            days = chance.sample(DAYS, chance.randint(1, 3))
            number += 1
            good = {day: [f"{number}-{k}" for k in range(chance.randint(0, 2))] for day in days}
            version = publish(lake, good, {day: [f"bad {number}"] for day in days[:1]}, mark=mark)
            states[version] = seen(lake)
        elif choice < 0.8:
            version = chance.choice(list(states))
            undo(lake, version)
            assert seen(lake) == states[version], (seed, version)
        else:
            version, day = chance.choice(list(states)), chance.choice(DAYS)
            before = seen(lake)
            undo(lake, version, [day])
            for name, rows in seen(lake).items():
                expected = [r for r in before[name] if r[0] != str(day)]
                expected += [r for r in states[version][name] if r[0] == str(day)]
                assert rows == sorted(expected), (seed, version, day, name)
        states[open_snapshot(lake.path("silver.things")).version] = seen(lake)


def test_what_is_older_than_the_window_goes(lake: Lake) -> None:
    """Without it, files would be kept for ever in the name of undo."""
    age_table(lake.path("silver.things"))
    assert len(vacuum(lake.path("silver.things"), 7 * 24).files) == 2
    with pytest.raises(HistoryGoneError):
        undo(lake, 1)


def test_what_was_accepted_late_goes_back_with_its_day(lake: Lake) -> None:
    """Without it, a restored day would be built again at once, with rows that came in only later."""
    _, side = targets(lake, lake.table("silver.things"))
    assert side is not None
    for day in (MON, TUE):
        append(side, [], Commit({f"late/{day}": 7}))
    undo(lake, 1, [MON])
    snapshot = lake.snapshot(QUARANTINE)
    assert (snapshot.transaction(f"late/{MON}"), snapshot.transaction(f"late/{TUE}")) == (None, 7)
    undo(lake, 1)
    assert lake.snapshot(QUARANTINE).transaction(f"late/{TUE}") is None


def test_a_second_name_is_young_from_its_first_moment(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a vacuum between naming and commit would take the new name for an old orphan."""
    age_table(lake.path("silver.things"))
    ages, link = [], os.link

    def watched(old: Path, new: Path) -> None:
        link(old, new)
        ages.append(time.time() - new.stat().st_mtime)

    monkeypatch.setattr(os, "link", watched)
    undo(lake, 1)
    assert ages
    assert max(ages) < 3600


@pytest.mark.parametrize("when", ["before", "after"])
def test_files_that_go_during_a_restore_leave_the_table_as_it_was(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Without it, a restore could report success over files that are gone, or end with words that name nothing."""
    before, whole = seen(lake), module.exchange_files

    def losing(target: Target, *args: Any, **kwargs: Any) -> int:
        version = whole(target, *args, **kwargs)
        if target.path == lake.path("silver.things") and version == 3:
            args[1][0].path.unlink()
        return version

    plan = plan_restore(lake, lake.table("silver.things"), 1)
    if when == "before":
        (lake.path("silver.things") / plan.main.added[0].path).unlink()
    else:
        monkeypatch.setattr(module, "exchange_files", losing)
    with pytest.raises(
        HistoryGoneError, match=r"version 1 cannot be restored: 1 of the 2 .*--select silver.things --from DAY"
    ):
        restore(lake, plan, by="ann")
    assert seen(lake)["silver.things"] == before["silver.things"]
    assert prints(lake) == {2: 202, 3: 203, 4: 204, 5: None}
    if when == "after":
        assert "put back: version 3 lost" in versions(lake.path("silver.things"))[0].entry.facts["lakehouse.reason"]
    else:
        assert seen(lake) == before


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False], ids=["named", "older"])
@pytest.mark.parametrize("hours", [-30, 30])
def test_the_quarantine_of_a_version_is_found_whatever_the_clocks_say(tmp_path: Path, hours: int, named: bool) -> None:
    """Without it, between machines whose clocks differ, a table would go back with the quarantine of other rows."""
    lake = lake_at(tmp_path)
    for number, (good, bad) in enumerate((("a", "x"), ("b", "y"), ("c", "z")), 1):
        publish(lake, {MON: good}, {MON: bad}, mark=number)
    for version in range(4):
        rewrite_entry(lake.path(QUARANTINE), version, lambda kind, said: _shift(kind, said, hours))
    for version in range(4) if not named else ():
        rewrite_entry(lake.path("silver.things"), version, lambda _, said: said.pop(QUARANTINE_VERSION, None))
    for version, expected in ((1, "ax"), (3, "cz"), (2, "by")):
        undo(lake, version)
        assert "".join(key for name in ("silver.things", QUARANTINE) for _, key in seen(lake)[name]) == expected
    undo(lake, 5)  # a restore is a version as any other
    assert [key for _, key in seen(lake)[QUARANTINE]] == ["z"]


def _shift(kind: str, said: dict[str, Any], hours: int) -> None:
    if kind == "commitInfo":
        said["timestamp"] += hours * 3600_000


def test_the_rows_of_a_file_without_statistics_are_counted(lake: Lake) -> None:
    """Without it, a table of another writer would have no rows in plans, histories and checks."""
    path = lake.path("silver.things")
    for version in (1, 2):
        rewrite_entry(path, version, lambda kind, said: said.pop("stats", None) if kind == "add" else None)
    assert fresh_snapshot(path).rows_by_day("day") == {MON: 1, TUE: 1, WED: 1}
    assert undo(lake, 1).rows == (3, 3)
    assert [(each.rows_before, each.rows) for each in versions(path)] == [(3, 3), (3, 3), (0, 3), (0, 0)]
    (gone,) = fresh_snapshot(path, 2).by_day("day")[MON]
    (path / gone.path).unlink()
    rows_in.cache_clear()
    with pytest.raises(HistoryGoneError, match=r"The rows of .* are not known: the log has no statistics of it"):
        fresh_snapshot(path, 2).rows_by_day("day")
    assert [each.rows for each in versions(path)] == [3, None, 3, 0]
