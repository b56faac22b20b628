"""Which days a replay builds, and what it says became of each row; no engine, days are published by hand."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.build.base import open_base
from lakehouse.build.build import build
from lakehouse.build.plan import make_plan
from lakehouse.build.stale import stale_days
from lakehouse.contracts import Input, Landing, Table
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.target import Commit
from lakehouse.delta.transactions import day_transaction
from lakehouse.quarantine.replay import ReplayPlan, by_rules, discard, outcomes, plan_replay, run_replay
from lakehouse.read.lake import Lake
from lakehouse.records.ledger import REPLAY, Wanted, entries, open_replays, write
from lakehouse.records.ops import position
from lakehouse.records.quarantined import FAILURES
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import model, put, stage_rows, table

DAYS = [date(2026, 3, day) for day in (2, 3, 4)]
NOW = datetime(2026, 3, 9, tzinfo=UTC)
RULE = "n_at_least_minimum"
Keys = Sequence[str]


def tables(code: str = "v1") -> list[Table]:
    """Lines, and what is made of them; `code` is the version of the latter's."""
    columns = {"id": (T.StringType(), pa.Field()), "day": (T.DateType(), pa.Field())}
    lines = table("bronze.lines", model("Lines", **columns), lambda old: old, {"old": Input("bronze.old")})
    number = {"n": (T.LongType(), pa.Field(ge=0, nullable=True))}
    inputs = {"lines": Input("bronze.lines")}
    return [
        lines,
        table("silver.sales", model("S", **columns, **number), lambda lines: lines, inputs, key=("id",), code=code),
    ]


def publish(lake: Lake, day: date, good: Keys, bad: Keys, *, held_back: bool = False) -> None:
    """Make these rows the content of a day, as a build from the inputs of now would."""
    made = lake.table("silver.sales")
    main, side = (each.target for each in open_base(lake, made).stores)
    print_ = {day_transaction(day): make_plan(lake, made, [day]).fingerprints[day]}
    facts = {"lakehouse.run_id": "run", "lakehouse.code_version": made.code_version}
    rows = [{"id": key, "day": day, "_failed_rules": [RULE]} for key in bad]
    replace_days(side, ensure_table(side), stage_rows(side, rows, "quarantined"), [day], Commit(print_, facts))
    if not held_back:
        files = stage_rows(main, [{"id": key, "day": day} for key in good])
        replace_days(main, ensure_table(main), files, [day], Commit(print_, facts))


@pytest.fixture
def old(lake: LakeFactory) -> Lake:
    """Three days, built by the code of now: a bad row on the first two."""
    made = lake(*tables())
    for number, day in enumerate(DAYS):
        put(made, made.table("bronze.lines"), day, [{"id": f"{number}a"}, {"id": f"{number}b"}])
        publish(made, day, [f"{number}a"], [f"{number}b"] if number < 2 else [])
    return made


@pytest.fixture
def new(old: Lake, lake: LakeFactory) -> Lake:
    """The same lake seen with other code."""
    return lake(*tables("v2"))


def planned(lake: Lake, wanted: Wanted | None = None, *, force: bool = False) -> ReplayPlan:
    """The plan of a replay."""
    return plan_replay(lake, lake.table("silver.sales"), wanted or Wanted(), force=force)


def test_days_that_would_come_out_the_same_are_left_alone(old: Lake) -> None:
    """Without it, a replay would build and commit every time, however often, and could not be said to be a no-op."""
    plan = planned(old)
    assert (list(plan.build), list(plan.same), len(plan.chosen)) == ([], DAYS[:2], 2)
    assert plan.nothing_to_do
    assert list(planned(old, force=True).build) == DAYS[:2]
    assert entries(old.settings.root, "silver.sales") == []


def test_changed_code_builds_the_days_of_the_chosen_rows_and_no_other(new: Lake) -> None:
    """Without it, a replay of one day would rebuild others, or build the day without bad rows."""
    assert list(planned(new).build) == DAYS[:2]
    assert list(planned(new, Wanted(day=DAYS[1])).build) == [DAYS[1]]
    assert list(planned(new, Wanted(rule=RULE, code_version="v1")).build) == DAYS[:2]
    for wanted in (Wanted(rule="day_present"), Wanted(code_version="v2"), Wanted(day=DAYS[2])):
        assert planned(new, wanted).nothing_to_do
    made = new.table("silver.sales")
    discard(new.settings.root, made, Wanted(day=DAYS[0]), who="ann", at=NOW, reason="no sale")
    assert list(planned(new).build) == [DAYS[1]]


def test_a_day_that_has_not_come_yet_holds_up_no_other(new: Lake) -> None:
    """Without it, one row of a clock that is ahead would keep all others in quarantine: its day has no partition."""
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    publish(new, tomorrow, [], ["ahead"], held_back=True)
    for force in (False, True):
        plan = planned(new, force=force)
        assert (list(plan.build), list(plan.ahead), len(plan.chosen)) == (DAYS[:2], [tomorrow], 3)


def test_each_row_has_one_outcome(new: Lake) -> None:
    """Without it, rows that vanished or were kept back would be told as replayed."""
    made = new.table("silver.sales")
    publish(new, DAYS[2], ["2a"], ["2b", "2c", "2d"])
    chosen = by_rules(planned(new).chosen)

    def execute(days: Collection[date]) -> list[str]:
        assert list(days) == DAYS[:2]
        publish(new, DAYS[0], ["0a", "0b"], [])
        publish(new, DAYS[1], [], ["1a"], held_back=True)
        return ["run"]

    (ended,) = run_replay(new, planned(new), execute, who="ann", now=lambda: NOW)
    assert ended.outcome == {"published": 1, "held back": 1, "quarantined": 3}
    assert (ended.still, ended.runs, ended.rows) == ({RULE: 3}, ("run",), 5)
    publish(new, DAYS[1], ["1a"], [])
    publish(new, DAYS[2], ["2a"], ["2d"])
    assert outcomes(new, made, chosen) == ({"published": 1, "gone": 3, "quarantined": 1}, {RULE: 1})


def test_a_row_is_told_by_its_own_day(new: Lake) -> None:
    """Without it, a row that was published would be told as still set aside, for the same key of another day is."""
    made = new.table("silver.sales")
    publish(new, DAYS[1], [], ["0b"])
    publish(new, DAYS[0], ["0a", "0b"], [])
    chosen = {DAYS[0]: by_rules(planned(new).chosen)[DAYS[1]]}
    assert outcomes(new, made, chosen) == ({"published": 1}, {})


def test_a_replay_that_broke_is_open_until_the_next_one_ends_it(new: Lake) -> None:
    """Without it, rows published before a crash would be in no report, and tables downstream would never follow."""
    root = new.settings.root

    def breaks(days: Collection[date]) -> None:
        publish(new, DAYS[0], ["0a", "0b"], [])

    assert run_replay(new, planned(new), breaks, who="ann", now=lambda: NOW) == []
    assert [each.rows for each in open_replays(root, "silver.sales")] == [2]
    calls: list[list[date]] = []

    def execute(days: Collection[date]) -> list[str]:
        calls.append(list(days))
        publish(new, DAYS[1], ["1a", "1b"], [])
        return []

    (ended,) = run_replay(new, planned(new, Wanted(day=DAYS[0])), execute, who="bob", now=lambda: NOW)
    assert calls == [[DAYS[1]]]
    assert (ended.outcome, ended.who) == ({"published": 2}, "bob")
    assert [each.action for each in entries(root, "silver.sales")] == ["replay", "replayed"]
    assert planned(new).nothing_to_do
    write(root, replace(ended, who="eve"))
    assert [each.who for each in entries(root, "silver.sales") if each.action != REPLAY] == ["bob"]


def test_a_build_keeps_the_records_and_the_depth_of_the_quarantine(new: Lake) -> None:
    """Without it, the asset and the check would show a quarantine of the past, or none."""
    made = new.table("silver.sales")
    put(new, new.table("bronze.lines"), DAYS[0], [])
    result = build(new, made, [DAYS[0]], run_id="r")  # no input and so no engine
    assert result.days[DAYS[0]].status == "published"
    assert result.quarantine is not None
    assert (result.quarantine.rows, result.quarantine.by_rule) == (1, {RULE: 1})
    side = new.snapshot(made.quarantine_id)
    assert position(open_snapshot(new.path(FAILURES)), made.id, side) == side.version
    assert build(new, made, [DAYS[0]], run_id="r").quarantine is not None  # an unchanged day is told of as well


def test_a_landed_day_with_nothing_but_quarantined_rows_is_not_emptied(lake: LakeFactory) -> None:
    """Without it, a tidied landing zone and a backfill would take away the only trace of a day's broken lines."""
    columns = {"id": (T.StringType(), pa.Field()), "day": (T.DateType(), pa.Field())}
    landing = {"lines": Landing("events", "jsonl", ("id",))}
    made = lake(table("bronze.raw", model("Raw", **columns), lambda lines: lines, landing))
    raw = made.table("bronze.raw")
    side = open_base(made, raw).stores[1].target
    rows = [{"id": "x", "day": DAYS[0], "_failed_rules": ["id_present"], "_source_file": "f", "_source_row": 1}]
    facts = {"lakehouse.run_id": "r"}
    replace_days(side, ensure_table(side), stage_rows(side, rows, "quarantined"), [DAYS[0]], Commit({}, facts))
    assert stale_days(made, raw) == []
    plan = plan_replay(made, raw, Wanted(), force=True)
    assert (list(plan.gone), plan.nothing_to_do) == ([DAYS[0]], True)
    result = build(made, raw, [DAYS[0]], run_id="r")
    assert result.days[DAYS[0]].status == "failed"
    assert "1 row of this day is kept, but no line of it is in the landing zone" in result.days[DAYS[0]].reason
