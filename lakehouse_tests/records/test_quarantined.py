"""Rows in quarantine are known one by one: since when, how often, by which code, and whether somebody discarded them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import types as T

from lakehouse.build.base import open_base
from lakehouse.contracts import Input, Table
from lakehouse.delta.commit import append, ensure_table, replace_days
from lakehouse.delta.maintenance import Compactable, compact
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import Snapshot
from lakehouse.delta.target import Commit, Target
from lakehouse.quarantine.replay import discard
from lakehouse.read.lake import Lake, table_path
from lakehouse.records import quarantined as module
from lakehouse.records.depth import depth_now, depth_of
from lakehouse.records.ledger import LEDGER, LedgerEntry, Wanted, entries, write
from lakehouse.records.ops import position
from lakehouse.records.quarantined import FAILURES, project_quarantine, quarantined_rows
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import Row, model, rows_of, stage_rows, table

MONDAY, TUESDAY = date(2026, 3, 2), date(2026, 3, 3)
NOW = datetime(2026, 3, 9, tzinfo=UTC)
SetAside = Callable[..., int]


def sales(**policy: Any) -> Table:
    """Sales by key; a quarantined one may lack its key."""
    columns = {
        "id": (T.StringType(), pa.Field()),
        "day": (T.DateType(), pa.Field()),
        "amount": (T.LongType(), pa.Field(ge=0, nullable=True)),
        "email_token": (T.StringType(), pa.Field(nullable=True)),
    }
    return table(
        "silver.sales", model("Sales", **columns), lambda lines: lines, {"lines": Input("bronze.lines")},
        key=("id",), pii=("email_token",), **policy,
    )  # fmt: skip


def bad(key: str | None, *rules: str, **cells: Any) -> Row:
    """A quarantined row."""
    return {"id": key, "_failed_rules": list(rules or ("amount_at_least_minimum",)), **cells}


@pytest.fixture
def store(lake: LakeFactory) -> Lake:
    """A lake of one table."""
    return lake(sales())


@pytest.fixture
def set_aside(store: Lake) -> SetAside:
    """Replaces the quarantine of days as a build with some code would; returns the version."""
    numbers = count()

    def put(day: date, rows: Sequence[Row], code: str = "v1") -> int:
        made = open_base(store, store.table("silver.sales")).stores[1].target
        files = stage_rows(made, [{"day": day, **row} for row in rows], "quarantined")
        facts = {"lakehouse.run_id": f"run {next(numbers)}", "lakehouse.code_version": code}
        return replace_days(made, ensure_table(made), files, [day], Commit({}, facts))

    return put


def by_key(store: Lake, set_aside: SetAside, keys: Sequence[str]) -> dict[int, str]:
    """The number that identifies the row of each key."""
    names = {}
    for number, key in enumerate(keys):
        day = date(2020, 1, 1) + timedelta(days=number)
        set_aside(day, [bad(key)])
        (found,) = quarantined_rows(store.settings.root, store.table("silver.sales"), [day])
        names[found.row] = key
        set_aside(day, [])
    return names


def test_a_row_keeps_its_first_failure_and_counts_its_retries(store: Lake, set_aside: SetAside) -> None:
    """Without it, a rebuild would make every row look new, and nobody could tell an old problem from a fresh one."""
    root, made = store.settings.root, store.table("silver.sales")
    names = by_key(store, set_aside, ["a", "b", "c"])
    set_aside(MONDAY, [bad("a"), bad("c")])
    project_quarantine(root, made)
    set_aside(TUESDAY, [bad("a")])
    set_aside(MONDAY, [bad("a"), bad("b")], "v2")
    set_aside(MONDAY, [bad("a"), bad("b", "amount_at_least_minimum", "id_present")], "v3")
    found = {names[each.row]: each for each in quarantined_rows(root, made, [MONDAY])}
    assert found.keys() == {"a", "b"}
    assert (found["a"].times, found["b"].times) == (3, 2)
    assert found["a"].first < found["b"].first < found["b"].last == found["a"].last
    assert {each.code_version for each in found.values()} == {"v3"}
    assert found["b"].rules == ("amount_at_least_minimum", "id_present")


def test_projecting_changes_nothing_and_outlives_the_files(store: Lake, set_aside: SetAside) -> None:
    """Without it, a vacuum would take the past of rows away, or a projection that a crash repeated would double retries."""
    root, made = store.settings.root, store.table("silver.sales")
    for code in ("v1", "v2"):
        set_aside(MONDAY, [bad("a"), bad(None, _source_file="f", _source_row=3, _raw="{}")], code)
    before = quarantined_rows(root, made)
    assert [each.times for each in before] == [2, 2]
    assert project_quarantine(root, made) == 2
    assert project_quarantine(root, made) == 0
    assert quarantined_rows(root, made) == before
    DeltaTable(str(table_path(root, made.quarantine_id))).vacuum(
        0, dry_run=False, enforce_retention_duration=False, full=True
    )
    assert quarantined_rows(root, made) == before
    set_aside(MONDAY, [bad("a")], "v3")
    assert [each.times for each in quarantined_rows(root, made)] == [3]


@pytest.mark.parametrize("projecting", [True, False])
def test_a_quarantine_that_was_built_anew_has_rows_of_its_own(
    store: Lake, set_aside: SetAside, projecting: bool
) -> None:
    """Without it, the depth would count rows of a table that was moved away, and say that new ones are old."""
    root, made = store.settings.root, store.table("silver.sales")

    def found() -> tuple[list[int], int]:
        if projecting:
            project_quarantine(root, made)
        return [each.times for each in quarantined_rows(root, made)], depth_now(root, made, NOW).rows

    for rows in ([bad("a"), bad("b")], [bad("a"), bad("b"), bad("c")]):
        set_aside(MONDAY, rows)
        before = found()
    assert before == ([2, 2, 1], 3)
    folder = table_path(root, made.quarantine_id)
    away = folder.with_name("moved_away")
    folder.rename(away)
    assert found() == ([], 0)
    set_aside(TUESDAY, [bad("a")])
    assert found() == ([1], 1)
    folder.rename(folder.with_name("second"))
    away.rename(folder)
    assert found() == before


def test_two_processes_that_project_at_once_write_a_version_once(
    store: Lake, set_aside: SetAside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a version could be there twice, and its rows count as retried: reading takes every record as it is."""
    root, made = store.settings.root, store.table("silver.sales")
    set_aside(MONDAY, [bad("a")], "v1")
    side = table_path(root, made.quarantine_id)
    older = open_snapshot(side)
    set_aside(MONDAY, [bad("a")], "v2")
    real, raced = module.add_rows, list[bool]()

    def earlier(path: Path, *at: int) -> Snapshot:
        return older if path == side and not at else open_snapshot(path, *at)

    def slow(*args: Any, **kwargs: Any) -> None:
        if not raced:
            raced.append(True)
            with monkeypatch.context() as patch:  # the other one has not seen the second version yet
                patch.setattr(module, "open_snapshot", earlier)
                assert project_quarantine(root, made) == 1
        real(*args, **kwargs)

    monkeypatch.setattr(module, "add_rows", slow)
    assert project_quarantine(root, made) == 1
    assert sorted(row["version"] for row in rows_of(table_path(root, FAILURES))) == [1, 2]
    assert [each.times for each in quarantined_rows(root, made)] == [2]


def test_old_files_that_are_gone_before_they_were_projected_are_no_error(store: Lake, set_aside: SetAside) -> None:
    """Without it, a lakehouse that was built before rows were kept one by one could not be looked at any more."""
    root, made = store.settings.root, store.table("silver.sales")
    for code in ("v1", "v2"):
        set_aside(MONDAY, [bad("a")], code)
    DeltaTable(str(table_path(root, made.quarantine_id))).vacuum(
        0, dry_run=False, enforce_retention_duration=False, full=True
    )
    assert [(each.times, each.code_version) for each in quarantined_rows(root, made)] == [(1, "v2")]


def test_a_log_that_was_cut_off_is_no_error(store: Lake, set_aside: SetAside) -> None:
    """Without it, no build would work any more once the log of versions that were not projected is erased."""
    root, made = store.settings.root, store.table("silver.sales")
    for code in ("v1", "v2", "v3"):
        set_aside(MONDAY, [bad("a")], code)
    path = table_path(root, made.quarantine_id)
    DeltaTable(str(path)).create_checkpoint()
    for version in range(3):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    assert [(each.times, each.code_version) for each in quarantined_rows(root, made)] == [(1, "v3")]
    assert project_quarantine(root, made) == 1


def test_a_compaction_is_no_failure(store: Lake, set_aside: SetAside) -> None:
    """Without it, tidying up would count as if every row had failed again."""
    root, made = store.settings.root, store.table("silver.sales")
    set_aside(MONDAY, [bad("a", _source_file="f")])
    side = open_base(store, made).stores[1].target
    files = [*stage_rows(side, [{"day": MONDAY, **bad("a")}]), *stage_rows(side, [{"day": MONDAY, **bad("b")}])]
    replace_days(side, ensure_table(side), files, [MONDAY], Commit({}, {"lakehouse.run_id": "r"}))
    before = quarantined_rows(root, made)
    assert compact(Compactable(side.path, side.schema)).files_before == 2
    assert sorted(quarantined_rows(root, made), key=lambda each: each.row) == sorted(before, key=lambda each: each.row)


def test_rows_without_key_or_origin_are_told_apart_by_their_columns(store: Lake, set_aside: SetAside) -> None:
    """Without it, one discard would hide every row that lacks its key; personal data must not be in the number."""
    root, made = store.settings.root, store.table("silver.sales")
    rows = [bad(None, amount=1, email_token="x"), bad(None, amount=2), bad(None, _source_file="f", _source_row=1)]
    set_aside(MONDAY, [*rows, bad(None, _source_file="f", _source_row=2)])
    ids = {each.row for each in quarantined_rows(root, made)}
    assert len(ids) == 4
    set_aside(MONDAY, [bad(None, amount=1, email_token="y"), *rows[1:]])
    assert {each.row for each in quarantined_rows(root, made)} < ids


def decide(store: Lake, wanted: Wanted, *, undo: bool = False) -> LedgerEntry | None:
    """Discard rows, or take it back."""
    made = store.table("silver.sales")
    return discard(store.settings.root, made, wanted, who="ann", at=NOW, reason="no sale", undo=undo)


def test_a_discard_survives_rebuilds_but_not_a_new_defect(store: Lake, set_aside: SetAside) -> None:
    """Without it, discarded rows would be back after the next backfill, or hide a defect that nobody has looked at."""
    root, made = store.settings.root, store.table("silver.sales")
    set_aside(MONDAY, [bad("a"), bad("b", "id_present")])
    set_aside(TUESDAY, [bad("a")])
    entry = decide(store, Wanted("amount_at_least_minimum", MONDAY))
    assert entry is not None
    assert (entry.rows, entry.rules) == (1, {"amount_at_least_minimum": 1})
    assert decide(store, Wanted("amount_at_least_minimum", MONDAY)) is None
    for code in ("v1", "v2"):
        set_aside(MONDAY, [bad("a"), bad("b", "id_present")], code)
        project_quarantine(root, made)
        depth = depth_of(quarantined_rows(root, made), NOW)
        assert (depth.rows, depth.discarded, depth.by_rule) == (2, 1, {"id_present": 1, "amount_at_least_minimum": 1})
    set_aside(MONDAY, [bad("a", "amount_at_least_minimum", "id_present")])
    assert depth_of(quarantined_rows(root, made), NOW).discarded == 0


def test_a_discard_can_be_taken_back_and_made_again(store: Lake, set_aside: SetAside) -> None:
    """Without it, a slip of the hand would be for ever, or a second decision would be taken for a repeat of the first."""
    root, made = store.settings.root, store.table("silver.sales")
    set_aside(MONDAY, [bad("a")])
    assert decide(store, Wanted(), undo=True) is None
    for undo, left in ((False, 0), (True, 1), (False, 0)):
        assert decide(store, Wanted(), undo=undo) is not None
        assert depth_of(quarantined_rows(root, made), NOW).rows == left
    kept = entries(root, made.id)
    assert [each.action for each in kept] == ["discard", "keep", "discard"]
    assert [(each.who, each.at, each.reason) for each in kept] == [("ann", NOW, "no sale")] * 3
    assert len({each.id for each in kept}) == 3


def test_one_decision_made_twice_at_once_is_one_entry(store: Lake, set_aside: SetAside) -> None:
    """Without it, two people who press the same button would each be counted, and a retry after a crash too."""
    root, made = store.settings.root, store.table("silver.sales")
    set_aside(MONDAY, [bad("a")])
    entry = decide(store, Wanted())
    assert entry is not None
    write(root, entry)
    write(root, replace(entry, at=NOW + timedelta(hours=1)))
    assert entries(root, made.id) == [entry]


def test_no_personal_data_is_kept_about_rows(store: Lake, set_aside: SetAside) -> None:
    """Without it, a token could be read from the records of rows long after it was erased everywhere else."""
    root, made = store.settings.root, store.table("silver.sales")
    set_aside(MONDAY, [bad("a", email_token="secret-token", _raw="secret-raw"), bad(None, email_token="secret-token")])
    project_quarantine(root, made)
    decide(store, Wanted())
    for name in (FAILURES, LEDGER):
        files = [path for path in table_path(root, name).rglob("*") if path.is_file()]
        assert len(files) > 1
        assert not any(b"secret" in path.read_bytes() for path in files)


def test_days_without_bad_rows_are_not_looked_at_for_ever(
    store: Lake, set_aside: SetAside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, each build would open every version since the last bad row: more with every day that is sound."""
    root, made = store.settings.root, store.table("silver.sales")
    set_aside(MONDAY, [bad("a")])
    assert project_quarantine(root, made) == 1
    opened: list[tuple[int, ...]] = []
    real = module.open_snapshot
    monkeypatch.setattr(module, "open_snapshot", lambda path, *at: opened.append(at) or real(path, *at))
    for number in range(12):
        version = set_aside(TUESDAY + timedelta(days=number), [])
        assert project_quarantine(root, made, most_behind=5) == 0
        done = position(open_snapshot(table_path(root, FAILURES)), made.id, real(table_path(root, made.quarantine_id)))
        assert done is not None
        assert version - done < 5
    assert set(opened) == {()}, "an older version was opened"
    set_aside(TUESDAY, [bad("b")])
    assert project_quarantine(root, made) == 1
    assert [each.day for each in quarantined_rows(root, made)] == [MONDAY, TUESDAY]


def add(side: Target, day: date, keys: Sequence[str]) -> None:
    """Add rows to a day's quarantine, as a stream does."""
    files = stage_rows(side, [{"day": day, **bad(key)} for key in keys], "quarantined")
    append(side, files, Commit({f"batch/{keys[0]}": 1}, {"lakehouse.run_id": "stream", "lakehouse.code_version": "v1"}))


def test_rows_that_are_added_are_named_once(store: Lake, set_aside: SetAside, seed: int) -> None:
    """Without it, each second of a stream would repeat all that its day has in quarantine, or count it as tried again.

    Rows are added, days built anew, files merged and vacuumed; records are projected now and then.
    """
    root, made, chance = store.settings.root, store.table("silver.sales"), random.Random(seed)
    side, numbers = open_base(store, made).stores[1].target, count()
    wanted: dict[date, dict[str, int]] = {MONDAY: {}, TUESDAY: {}}  # by day, how often each row was found
    named = dict[str, int]()  # rows that were ever named, and how many times in all
    for _ in range(40):
        day, kind = chance.choice([MONDAY, TUESDAY]), chance.choice(["add", "add", "add", "anew", "merge"])
        new = [f"{next(numbers)}" for _ in range(chance.randint(1, 3))]
        if kind == "add":
            add(side, day, new)
            wanted[day] |= dict.fromkeys(new, 1)
        elif kind == "anew":
            kept = [*chance.sample(sorted(wanted[day]), len(wanted[day]) // 2), *new]
            set_aside(day, [bad(key) for key in kept])
            wanted[day] = {key: wanted[day].get(key, 0) + 1 for key in kept}
        else:
            compact(Compactable(side.path, side.schema))
        for key in wanted[day]:
            named[key] = named.get(key, 0) + 1
        if chance.random() < 0.7:
            project_quarantine(root, made)
        found = quarantined_rows(root, made)
        for each, keys in wanted.items():
            mine = sorted(row.times for row in found if row.day == each)
            assert mine == sorted(keys.values()), kind
        assert depth_now(root, made, NOW) == depth_of(found, NOW)
    project_quarantine(root, made)
    told = sum(len(ids) for row in rows_of(table_path(root, FAILURES)) for _, ids in pairs(row["rows"]))
    assert sum(map(len, wanted.values())) < told < sum(named.values()) / 2


def pairs(rows: Any) -> list[Any]:
    """A map of a row, as a list of pairs."""
    return [*rows.items()] if isinstance(rows, dict) else [*rows]


@pytest.mark.parametrize("is_projected", [True, False])
@pytest.mark.parametrize("merged_after", [1, 2])
def test_added_rows_whose_files_are_gone_before_they_were_projected_are_still_there(
    store: Lake, set_aside: SetAside, merged_after: int, is_projected: bool
) -> None:
    """Without it, a merge and a vacuum would make rows in quarantine unknown to everybody who looks for them."""
    root, made = store.settings.root, store.table("silver.sales")
    side = open_base(store, made).stores[1].target
    set_aside(MONDAY, [bad("a")])
    if is_projected:
        project_quarantine(root, made)
    for number, key in enumerate("bc", 1):
        add(side, MONDAY, [key])
        if number == merged_after:
            compact(Compactable(side.path, side.schema))
    DeltaTable(str(side.path)).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert len(quarantined_rows(root, made)) == 3
    project_quarantine(root, made)
    assert len(quarantined_rows(root, made)) == depth_now(root, made, NOW).rows == 3
    add(side, MONDAY, ["d"])
    assert len(quarantined_rows(root, made)) == depth_now(root, made, NOW).rows == 4
