"""How much waits in a quarantine: judged by the contract, and counted as rows come."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakehouse.build.base import open_base
from lakehouse.checks.audit import check_names
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.target import Commit
from lakehouse.quarantine.replay import by_rules
from lakehouse.read.lake import Lake
from lakehouse.records import depth
from lakehouse.records.depth import depth_now, depth_of, judge_depth
from lakehouse.records.ledger import DISCARD, LedgerEntry, write
from lakehouse.records.quarantined import QuarantinedRow, project_quarantine, quarantined_rows
from lakehouse.texts import counted
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import stage_rows
from lakehouse_tests.records.test_quarantined import MONDAY, NOW, TUESDAY, SetAside, add, bad, sales, set_aside, store

__all__ = ["set_aside", "store"]


def test_the_depth_check_has_bounds_and_says_what_to_do(lake: LakeFactory, tmp_path: Path) -> None:
    """Without it, a quarantine could fill for months without anybody being told what is in it and since when."""
    strict = sales(max_quarantine_rows=1, max_quarantine_age=timedelta(days=3))
    assert "quarantine_depth" in check_names(strict)
    assert "quarantine_depth" not in check_names(sales())
    store = lake(strict)
    made = open_base(store, strict).stores[1].target
    files = stage_rows(made, [{"day": MONDAY, **bad("a")}, {"day": MONDAY, **bad("b")}], "quarantined")
    replace_days(made, ensure_table(made), files, [MONDAY], Commit({}, {"lakehouse.run_id": "r"}))
    found = quarantined_rows(tmp_path / "root", strict)
    first = found[0].first
    assert judge_depth(strict, depth_of(found[:1], first + timedelta(days=2)))[0]
    for rows, age in ((found, 2), (found[:1], 4)):
        passed, text = judge_depth(strict, depth_of(rows, first + timedelta(days=age)))
        assert not passed
        assert f"{counted(len(rows), 'row')} in quarantine (at most 1)" in text
        assert f"{first:%Y-%m-%d}" in text
        assert f"amount_at_least_minimum {len(rows)}" in text
        assert "lakehouse quarantine show silver.sales" in text
    assert by_rules(found) == {MONDAY: {("amount_at_least_minimum",): [each.row for each in found]}}


def test_rows_that_broke_one_rule_may_have_to_be_looked_at_sooner() -> None:
    """Without it, a dead letter would wait as long as any wrong amount, and its topic forget it meanwhile."""
    urgent = "amount_at_least_minimum"
    made = sales(max_ages={urgent: timedelta(days=1)})
    assert "none that broke amount_at_least_minimum for longer than 1 days" in check_names(made)["quarantine_depth"]
    old, young = (QuarantinedRow(MONDAY, n, (rule,), NOW - timedelta(hours=30 * (n + 1)), NOW, 1, "v1")
                  for n, rule in ((0, urgent), (1, "another")))  # fmt: skip
    for rows, passed in (([old, young], False), ([young], True), ([replace(old, discarded=True), young], True)):
        judged, text = judge_depth(made, depth_of(rows, NOW))
        assert judged is passed
        assert ("unresolved for too long: amount_at_least_minimum 1.2 days (at most 1.0 days)" in text) is not passed


def test_the_depth_that_is_kept_is_that_of_all_rows(store: Lake, set_aside: SetAside) -> None:
    """Without it, a build would have to look at every row in quarantine, or the check of the depth tell old numbers."""
    root, made = store.settings.root, store.table("silver.sales")

    def same() -> tuple[int, int]:
        kept = depth_now(root, made, NOW)
        assert kept == depth_of(quarantined_rows(root, made), NOW)
        return kept.rows, kept.discarded

    assert same() == (0, 0)
    set_aside(MONDAY, [bad("a"), bad("b"), bad(None)])
    assert same() == (3, 0)  # not projected yet
    for day, rows, wanted in [(MONDAY, "ab", 2), (TUESDAY, "c", 3), (MONDAY, "b", 2)]:
        set_aside(day, [bad(each) for each in rows])
        project_quarantine(root, made)
        assert same() == (wanted, 0)
    chosen = {MONDAY: {each.rules: [each.row] for each in quarantined_rows(root, made) if each.day == MONDAY}}
    write(root, LedgerEntry(made.id, DISCARD, "somebody", NOW, chosen))
    assert same() == (1, 1)
    set_aside(TUESDAY, [])
    project_quarantine(root, made)
    assert same() == (0, 1)


def test_only_changed_days_are_looked_at_for_the_depth(
    store: Lake, set_aside: SetAside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, what a day costs would grow with every row that was ever set aside."""
    root, made = store.settings.root, store.table("silver.sales")
    set_aside(MONDAY, [bad("a"), bad("b")])
    project_quarantine(root, made)
    depth_now(root, made, NOW)
    looked_at: list[list[date]] = []
    real = depth.rows_left
    monkeypatch.setattr(
        depth, "rows_left", lambda *args: looked_at.append(sorted(each.day for each in args[2])) or real(*args)
    )
    set_aside(TUESDAY, [bad("c")])
    project_quarantine(root, made)
    for _ in range(2):
        assert depth_now(root, made, NOW).rows == 3
    assert looked_at == [[TUESDAY]]
    (root / "cache" / "quarantine" / f"{made.id}.json").write_text("{")
    assert depth_now(root, made, NOW).rows == 3
    assert looked_at == [[TUESDAY], [MONDAY, TUESDAY]]


def test_what_is_projected_meanwhile_is_counted_once(
    store: Lake, set_aside: SetAside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a stream and a backfill that build at once would make a quarantine seem deeper than it is, for good."""
    root, made = store.settings.root, store.table("silver.sales")
    side = open_base(store, made).stores[1].target
    set_aside(MONDAY, [bad("a")])
    project_quarantine(root, made)
    assert depth_now(root, made, NOW).rows == 1
    add(side, MONDAY, ["b"])
    project_quarantine(root, made)
    real, raced = depth.records_of, list[bool]()

    def later(*args: Any, **kwargs: Any) -> Any:
        if not raced:
            raced.append(True)
            add(side, MONDAY, ["c"])
            project_quarantine(root, made)
        return real(*args, **kwargs)

    monkeypatch.setattr(depth, "records_of", later)
    assert depth_now(root, made, NOW).rows in (2, 3)
    assert raced
    assert depth_now(root, made, NOW).rows == len(quarantined_rows(root, made)) == 3
