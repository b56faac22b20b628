"""Late rows: measured, set aside beyond what is allowed, and taken in when a person says so."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from lakehouse.build.build import build
from lakehouse.build.late import accept, accepted_through, late_rows
from lakehouse.build.stale import stale_days
from lakehouse.checks.statistics import percentile
from lakehouse.delta import commit as door
from lakehouse.lineage.reconcile import reconcile
from lakehouse.orchestration.due_reasons import what_happened
from lakehouse.records.history import latest_records
from lakehouse_tests.build.test_build import DAYS, land, run, sensors, sums
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import rows_of

WHY = {"lakehouse.reason": "a test"}


def test_rows_beyond_the_allowed_lateness_wait_until_they_are_taken_in(lake: LakeFactory) -> None:
    """Without it, a reported day would change by itself months later, or its late rows would be lost."""
    shop = lake(*sensors(allowed_lateness=timedelta(days=2), max_quarantined=0.0))
    silver = shop.table("silver.readings")
    land(shop, DAYS[0], [("a", None, 1)])
    land(shop, DAYS[2], [("in time", DAYS[0], 10)])
    land(shop, DAYS[3], [("late", DAYS[0], 100), ("now", None, 1)])
    land(shop, DAYS[4], [("later", DAYS[0], 1000)])
    run(shop, DAYS[:5])
    assert sums(shop)[0] == 11
    aside = rows_of(shop.path(silver.quarantine_id))
    assert {(row["id"], *row["_failed_rules"]) for row in aside} == {
        ("late", "not_too_late"),
        ("later", "not_too_late"),
    }
    assert late_rows(shop, silver) == {DAYS[0]: (2, DAYS[4])}
    assert not any(link.differing for link in reconcile(shop, [silver]))

    accept(shop, silver, {DAYS[0]: DAYS[3]}, WHY)
    assert stale_days(shop, silver) == DAYS[:1]
    build(shop, shop.table("bronze.readings"), DAYS[:1], run_id="again", force=True)  # a new version of the same rows
    assert what_happened(shop, {silver.id: [DAYS[0]]}) == f"late rows taken in by {silver.id}"
    assert sums(shop)[0] == 11, "accepting publishes nothing by itself"
    result = build(shop, silver, DAYS[:5], run_id="applied")
    assert (result.with_status("published"), len(result.with_status("unchanged"))) == (DAYS[:1], 4)
    run(shop, DAYS[:1])
    assert sums(shop)[0] == 111, "the row that came after what was accepted still waits"
    assert late_rows(shop, silver) == {DAYS[0]: (1, DAYS[4])}

    accept(shop, silver, {DAYS[0]: DAYS[4]}, WHY)
    assert what_happened(shop, {silver.id: [DAYS[0]]}) == f"late rows taken in by {silver.id}"
    run(shop, DAYS[:5])
    run(shop, DAYS[:5], force=True)
    assert sums(shop)[0] == 1111, "a rebuild keeps what was accepted"
    version = shop.snapshot(silver.quarantine_id).version
    accept(shop, silver, {DAYS[0]: DAYS[3]}, WHY)
    assert shop.snapshot(silver.quarantine_id).version == version, "what is accepted is not taken back by a repeat"
    assert stale_days(shop, silver) == []


def test_of_two_who_accept_at_once_the_later_date_stands(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, rows that one person has taken in would be put back into quarantine by another's earlier date."""
    shop = lake(*sensors(allowed_lateness=timedelta(days=2)))
    silver = shop.table("silver.readings")
    accept(shop, silver, {DAYS[1]: DAYS[2]}, WHY)
    real, left = door.put_entry, [{DAYS[0]: DAYS[7], DAYS[1]: DAYS[3]}]

    def overtaken(*args: Any, **kwargs: Any) -> int:
        if left:
            accept(shop, silver, left.pop(), WHY)
        return real(*args, **kwargs)

    monkeypatch.setattr(door, "put_entry", overtaken)
    accept(shop, silver, {DAYS[0]: DAYS[5], DAYS[1]: DAYS[4], DAYS[2]: DAYS[4]}, WHY)
    found = accepted_through(silver, shop.snapshot(silver.quarantine_id), DAYS)
    assert found == {DAYS[0]: DAYS[7], DAYS[1]: DAYS[4], DAYS[2]: DAYS[4]}


def test_too_many_late_rows_fail_the_check_and_block_nothing(lake: LakeFactory) -> None:
    """Without it, nobody would notice that a producer has begun to deliver weeks late."""
    shop = lake(*sensors(allowed_lateness=timedelta(days=2)))
    land(shop, DAYS[0], [(f"a{n}", None, 1) for n in range(50)])
    land(shop, DAYS[5], [(f"late{n}", DAYS[0], 1) for n in range(20)])
    bronze, silver = shop.table("bronze.readings"), shop.table("silver.readings")
    build(shop, bronze, DAYS[:6], run_id="r")
    result = build(shop, silver, DAYS[:1], run_id="r")
    assert result.with_status("published") == DAYS[:1]
    (late,) = [o for o in result.days[DAYS[0]].outcomes if o.check == "lateness"]
    assert (late.passed, late.blocking) == (False, False)
    assert late.message == "20 of 70 rows came more than 2 days late (28.57%; at most 1%)"
    rules = [o for o in result.days[DAYS[0]].outcomes if o.check == "row_rules"]
    assert rules[0].message.startswith("0 of 70 rows quarantined"), "late rows are no bad rows"


def test_how_late_rows_come_is_kept_with_each_arrival_day(lake: LakeFactory) -> None:
    """Without it, the allowed lateness would be a guess."""
    shop = lake(*sensors())
    late = [(f"a{n}", DAYS[7 - n], 1) for n in range(5)]
    land(shop, DAYS[7], [*late, ("ahead", DAYS[8], 1)])
    build(shop, shop.table("bronze.readings"), [DAYS[7]], run_id="r")
    kept = latest_records(shop.settings.root, "bronze.readings")[DAYS[7]].figures["event_days"]
    assert kept == {str(day): 1 for day in DAYS[3:9]}
    assert percentile(Counter({-1: 1, 0: 1, 1: 1, 2: 1, 3: 1, 4: 1}), 0.5) == 1
    assert [percentile(Counter({0: 98, 5: 1, 30: 1}), share) for share in (0.5, 0.95, 0.99, 1.0)] == [0, 0, 5, 30]
    assert percentile(Counter(), 0.5) == 0


def test_a_late_row_without_anything_else_wrong_is_a_late_row(lake: LakeFactory) -> None:
    """Without it, taking late rows in would also promise the broken ones among them."""
    shop = lake(*sensors(allowed_lateness=timedelta(days=2), max_quarantined=1.0))
    land(shop, DAYS[3], [("late and broken", DAYS[0], -1), ("late", DAYS[0], 1)])
    run(shop, DAYS[:4])
    silver = shop.table("silver.readings")
    assert late_rows(shop, silver) == {DAYS[0]: (1, DAYS[3])}
    accept(shop, silver, {DAYS[0]: DAYS[3]}, WHY)
    run(shop, DAYS[:4])
    (left,) = rows_of(shop.path(silver.quarantine_id))
    assert (left["id"], left["_failed_rules"]) == ("late and broken", ["value_at_least_minimum"])
