"""Files that come while their day is on: built as they come, told as open, and whole by itself."""

from __future__ import annotations

import os
import time as time_module
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pandera.pyspark as pa
import pytest
from dagster import RunRequest, SkipReason, build_schedule_context
from pyspark.sql import functions as F
from pyspark.sql import types as T

import lakehouse.definitions  # noqa: F401  # before the days are changed, which would stay in it for other tests
from lakehouse.build import build as building
from lakehouse.build import open_days
from lakehouse.build.build import build
from lakehouse.build.plan import make_plan
from lakehouse.build.ready import OPEN, READY, STALE, readiness
from lakehouse.build.result import FAILED, PUBLISHED, UNCHANGED
from lakehouse.build.stale import known_days
from lakehouse.build.work import Work, make_work
from lakehouse.contracts import Input, Landing, Quality, Table
from lakehouse.days import end_of
from lakehouse.orchestration.automation import Cursor, decide, outside
from lakehouse.orchestration.due_reasons import what_happened
from lakehouse.orchestration.jobs import daily_schedule, whole_lake_job
from lakehouse.orchestration.partitions import asked_days, check_range, daily_partitions, last_partition
from lakehouse.orchestration.pieces import Piece
from lakehouse.read.lake import Lake, PinnedLake
from lakehouse.settings import Settings, get_settings
from lakehouse_tests.build.test_build import land, rows_of, sensors
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import having, model, put, table
from lakehouse_tests.fixtures.streaming import streamed
from lakehouse_tests.orchestration.test_automation import DAYS, World
from lakehouse_tests.orchestration.test_automation import world as _world

world = _world  # a fixture
TODAY = date(2026, 3, 10)
NOON, MIDNIGHT = (datetime.combine(TODAY, time(12), UTC) + timedelta(hours=n) for n in (0, 12))


def with_files(made: Table, *, during_day: bool, **policy: Any) -> Table:
    """The landed table, whose files come during the day or after it, with another policy."""
    inputs = {n: replace(each, during_day=during_day) for n, each in made.inputs.items() if isinstance(each, Landing)}
    changed = having(replace(made, inputs=inputs), **policy)
    changed.__dict__["code_version"] = "v1"  # as `table` sets it
    return changed


def readings(lake: LakeFactory, *, during_day: bool = True) -> Lake:
    """Lines of sensors, typed, and their sums by day."""
    bronze, silver, gold = sensors()
    return lake(with_files(bronze, during_day=during_day), silver, gold)


def look(lake: Lake, now: datetime) -> Sequence[Piece]:
    """What the sensor asks for, of a lake whose newest partition is today."""
    seen = PinnedLake(lake.settings, lake.tables)
    return decide(seen, Cursor.of(None, 5.0), [], last=TODAY, limit=9, now=now.timestamp()).pieces


def build_asked(lake: Lake, now: datetime) -> None:
    (piece,) = look(lake, now)
    assert (piece.tables, piece.days) == (("bronze.readings", "silver.readings", "gold.sums"), [TODAY])
    for name in piece.tables:
        build(lake, lake.table(name), piece.days, run_id="r")


def test_a_day_grows_with_its_files_and_closes_by_itself(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, what came this morning would be in no table before tomorrow, or pass for a whole day."""
    monkeypatch.setattr(open_days, "present", lambda: NOON)
    shop = readings(lake)

    def state(now: datetime) -> tuple[int, str]:
        (row,) = rows_of(shop.path("gold.sums"))
        return row["total"], readiness(shop, shop.table("gold.sums"), TODAY, now).status

    land(shop, TODAY, [("a", None, 1), ("b", None, 2)], "09.jsonl")
    build_asked(shop, NOON)
    assert state(NOON) == (3, OPEN)
    assert look(shop, NOON) == []
    # The next file brings one that is there already, which counts once.
    land(shop, TODAY, [("b", None, 2), ("c", None, 4)], "12.jsonl")
    assert state(NOON) == (3, STALE)
    build_asked(shop, NOON)
    assert state(NOON) == (7, OPEN)
    # Once it is over it is built once more, since it is judged as a whole only now.
    monkeypatch.setattr(open_days, "present", lambda: MIDNIGHT)
    assert state(MIDNIGHT) == (7, STALE)
    build_asked(shop, MIDNIGHT)
    assert state(MIDNIGHT) == (7, READY)
    assert look(shop, MIDNIGHT) == []
    # What comes after its end is built as any late file is.
    land(shop, TODAY, [("d", None, 8)], "late.jsonl")
    build_asked(shop, MIDNIGHT)
    assert state(MIDNIGHT) == (15, READY)


def test_a_day_that_lacks_rows_is_told_once_it_is_over(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a source that fell silent at noon would be a good day for ever: nothing judged it as a whole."""
    bronze, *_ = sensors()
    shop = lake(with_files(bronze, during_day=True, min_rows=3))
    raw, today = shop.table("bronze.readings"), datetime.now(UTC).date()
    land(shop, today, [("a", None, 1), ("b", None, 2)])

    def built() -> tuple[str, str]:
        why = what_happened(shop, {raw.id: [today]})
        return why, build(shop, raw, [today], run_id="r").days[today].status

    assert built() == ("files landed for bronze.readings", PUBLISHED)
    assert built() == ("files changed for bronze.readings", UNCHANGED)
    monkeypatch.setattr(open_days, "present", lambda: end_of(today))
    assert built() == ("the day is over, of bronze.readings", FAILED)
    assert shop.snapshot(raw.id).rows_by_day(raw.day_column)[today] == 2, "they stay"


def test_a_day_that_closes_while_it_is_built_is_judged_once_all_of_it_is(
    lake: LakeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, each run over midnight would fail, and be told to people, for what came after it had begun."""
    bronze, *_ = sensors()
    shop = lake(with_files(bronze, during_day=True, min_rows=3))
    raw = shop.table(bronze.id)
    land(shop, TODAY, [("a", None, 1), ("b", None, 2)])
    monkeypatch.setattr(open_days, "present", lambda: NOON)

    def status() -> str:
        return build(shop, raw, [TODAY], run_id="r").days[TODAY].status

    def slowly(*asked: Any) -> Work:
        monkeypatch.setattr(open_days, "present", lambda: MIDNIGHT)
        return make_work(*asked)

    with monkeypatch.context() as patch:
        patch.setattr(building, "make_work", slowly)
        assert status() == PUBLISHED
    assert status() == FAILED


def test_files_of_whole_days_wait_until_theirs_is_over(lake: LakeFactory) -> None:
    """Without it, half an export would be published as its day, of a source that never said so."""
    shop = readings(lake, during_day=False)
    land(shop, TODAY, [("a", None, 1)])
    assert look(shop, NOON) == []
    (piece,) = look(shop, MIDNIGHT)
    assert piece.days == [TODAY]


def test_half_an_export_is_not_built_where_today_is_a_partition(lake: LakeFactory, today: date) -> None:
    """Without it, a run of today, for the tills' sake, would publish the export that is half written as its day."""
    now = datetime.now(UTC)
    bronze, silver, gold = sensors()
    parts = Landing("parts", "jsonl", ("id",), during_day=True)
    columns = model(id=(T.StringType(), pa.Field(nullable=True)), day=(T.DateType(), pa.Field(nullable=True)))
    beside = table("bronze.parts", columns, lambda lines: lines, {"lines": parts})
    shop = lake(with_files(bronze, during_day=False), silver, gold, beside)
    land(shop, today, [("a", None, 1)])
    assert (known_days(shop, bronze), make_plan(shop, bronze, [today]).landed) == (set(), {today: []})
    for name in (bronze.id, silver.id, gold.id):
        build(shop, shop.table(name), [today], run_id="r")
        assert readiness(shop, shop.table(name), today, now).status == OPEN
    assert not shop.snapshot(bronze.id).live.rows
    land(shop, today - timedelta(days=1), [("a", None, 1)])
    assert known_days(shop, shop.table(bronze.id)) == {today - timedelta(days=1)}


@pytest.mark.parametrize(("during_day", "status"), [(True, PUBLISHED), (False, FAILED)])
def test_a_day_that_is_not_over_may_have_fewer_rows_than_a_day_must(
    lake: LakeFactory, today: date, during_day: bool, status: str
) -> None:
    """Without it, each morning would fail, and be told to people, until enough has come."""
    bronze, silver, gold = sensors()
    strict = with_files(bronze, during_day=during_day, quality=Quality(min_rows=3, max_rows=4))
    shop = lake(strict, silver, gold)
    day = today if during_day else today - timedelta(days=1)
    land(shop, day, [("a", None, 1)])
    assert build(shop, strict, [day], run_id="r").days[day].status == status
    land(shop, day, [(name, None, 1) for name in "abcde"])
    assert build(shop, strict, [day], run_id="r").days[day].status == FAILED


@pytest.mark.parametrize(("during_day", "age", "runs"), [(True, 90, 1), (True, 30, 0), (False, 90, 0)])
def test_a_file_every_few_seconds_does_not_keep_a_day_from_being_built(
    lake: LakeFactory, today: date, during_day: bool, age: float, runs: int
) -> None:
    """Without it, the day would wait for a moment without a new file, for many tills until the shop closes."""
    shop = readings(lake, during_day=during_day)
    day = today if during_day else today - timedelta(days=1)
    for name in ("1.jsonl", "2.jsonl"):
        land(shop, day, [("a", None, 1)], name)
    now = time_module.time()
    last = shop.settings.root / "landing" / "events" / str(day) / "2.jsonl"
    os.utime(last, (now + age, now + age))
    made = decide(
        PinnedLake(shop.settings, shop.tables), Cursor.of(None, 5.0), [], last=today, limit=9, now=now + age + 1
    )
    assert len(made.pieces) == runs


def test_a_source_that_says_so_later_is_looked_at_again(lake: LakeFactory) -> None:
    """Without it, files that are there would wait for whatever changes next in the lake."""
    before, after = (readings(lake, during_day=during_day) for during_day in (False, True))
    land(before, TODAY, [("a", None, 1)])
    seen = decide(
        PinnedLake(before.settings, before.tables), Cursor.of(None, 5.0), [], last=TODAY, limit=9, now=NOON.timestamp()
    )
    assert seen.reason == "Everything is built."
    again = decide(PinnedLake(after.settings, after.tables), seen.cursor, [], last=TODAY, limit=9, now=NOON.timestamp())
    assert [piece.days for piece in again.pieces] == [[TODAY]]


def parts_and_visits(lake: LakeFactory) -> Lake:
    """What a stream brings, files of the day, and a table that reads both."""
    columns = model(id=(T.StringType(), pa.Field(nullable=True)), day=(T.DateType(), pa.Field(nullable=True)))
    parts = Landing("events", "jsonl", ("id",), during_day=True)
    both: dict[str, Any] = {"parts": Input("bronze.parts"), "visits": Input("silver.visits")}
    return lake(
        *streamed(),
        table("bronze.parts", columns, lambda lines: lines, {"lines": parts}),
        table("silver.both", columns, lambda parts, visits: parts, both),
    )


def test_what_a_stream_builds_is_left_to_it(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, each look of the sensor would start a run for what a stream's next turn builds anyway."""
    shop = parts_and_visits(lake)
    put(shop, shop.table("silver.visits"), TODAY, [{"id": "a", "page": "p", "at": NOON}])
    monkeypatch.setattr(open_days, "batch_of", lambda *_: 1)
    assert look(shop, NOON) == []
    assert ["silver.both" in piece.tables for piece in look(shop, MIDNIGHT)] == [True]
    for name in ("silver.both", "silver.visits"):
        assert open_days.has_messages(shop, shop.table(name))
    assert not open_days.has_messages(shop, shop.table("bronze.parts"))


def test_what_files_bring_waits_for_no_message(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, rows of a file would be missing until the next message came, or the day was over."""
    shop = parts_and_visits(lake)
    parts, both = shop.table("bronze.parts"), shop.table("silver.both")
    monkeypatch.setattr(open_days, "batch_of", lambda *_: 1)

    def landed(name: str) -> None:
        land(shop, TODAY, [(name, None, 1)], f"{name}.jsonl")
        put(shop, parts, TODAY, [{"id": name}], make_plan(shop, parts, [TODAY]).fingerprints[TODAY])

    landed("a")
    assert [piece.tables for piece in look(shop, NOON)] == [("silver.both",)]
    build(shop, both, [TODAY], run_id="r")
    assert look(shop, NOON) == []
    landed("b")
    assert [piece.tables for piece in look(shop, NOON)] == [("silver.both",)]


def test_what_looks_back_on_a_day_of_files_waits_for_no_message(
    lake: LakeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, features of today would lack rows of the days before until the next message came, or for the night."""
    shop = parts_and_visits(lake)
    columns = model(id=(T.StringType(), pa.Field(nullable=True)), day=(T.DateType(), pa.Field(nullable=True)))
    looks_back: dict[str, Any] = {"both": Input("silver.both", days_before=2)}
    recent = table("gold.recent", columns, lambda both: both.withColumn("day", F.lit(TODAY)), looks_back)
    shop.tables = {**shop.tables, recent.id: recent}
    both, yesterday = shop.table("silver.both"), TODAY - timedelta(days=1)
    monkeypatch.setattr(open_days, "batch_of", lambda *_: 1)
    put(shop, shop.table("bronze.parts"), yesterday, [{"id": "a"}])

    def asked_after(run: str) -> set[date]:
        build(shop, both, [yesterday], run_id=run)
        return {day for piece in look(shop, NOON) if recent.id in piece.tables for day in piece.days}

    build(shop, recent, [TODAY], run_id="r")
    assert asked_after("stream-1") == {yesterday}, "what the stream brings, it builds"
    build(shop, recent, [TODAY], run_id="r")
    put(shop, shop.table("bronze.parts"), yesterday, [{"id": "b"}], 2)
    assert asked_after("r") == {yesterday, TODAY}


def test_today_is_a_partition_for_the_pages_and_commands_too(
    settings: Settings, lake: LakeFactory, today: date, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, the sensor would build a day that nobody could choose, launch again or see."""
    shop = readings(lake)
    # The definitions are those of the sample, which has no such files.
    assert last_partition() == today - timedelta(days=1)
    for module in ("partitions", "automation"):
        monkeypatch.setattr(f"lakehouse.orchestration.{module}.tables", lambda: shop.tables)
    assert last_partition() == today
    assert daily_partitions().get_partition_keys()[-1] == str(today)
    check_range(today, today)
    assert asked_days({"dagster/partition": str(today)}) == [today]
    monkeypatch.setattr(
        "lakehouse.orchestration.automation.landings",
        lambda: {"events": shop.table("bronze.readings").landing},
    )
    for day in (TODAY, TODAY + timedelta(days=1)):
        land(shop, day, [("a", None, 1)])
    told = "wait until their day is over"
    tomorrow = shop.settings.model_copy(update={"first_day": today + timedelta(days=1)})
    monkeypatch.setattr("lakehouse.orchestration.partitions.get_settings", lambda: tomorrow)
    assert daily_partitions().get_partition_keys() == [], "a lake that has not begun"
    assert outside(shop.settings, NOON).startswith("Files of 2026-03-11 ")
    assert told in outside(shop.settings, NOON)
    assert outside(shop.settings, MIDNIGHT) == ""


@pytest.mark.parametrize(
    ("first", "last", "key"),
    [("2026-03-01", "", "2026-03-10"), ("2026-03-11", "", None), ("2026-03-01", "2026-03-09", None)],
    ids=["the day before", "before the first day", "the data has ended"],
)
def test_the_schedule_builds_the_day_that_is_over(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, first: str, last: str, key: str | None
) -> None:
    """Without it, the night's run would be of the day that has just begun, where today is a partition."""
    monkeypatch.setenv("LAKEHOUSE_FIRST_DAY", first)
    monkeypatch.setenv("LAKEHOUSE_LAST_DAY", last)
    get_settings.cache_clear()
    at = datetime.combine(TODAY + timedelta(days=1), time(1, 15), UTC)
    made = daily_schedule(whole_lake_job())(build_schedule_context(scheduled_execution_time=at))
    assert isinstance(made, RunRequest if key else SkipReason)
    assert getattr(made, "partition_key", None) == key


def test_files_that_no_partition_holds_are_told(world: World) -> None:
    """Without it, what lands today, or after the end of a lake, would wait there in silence."""
    for day in DAYS[:3]:
        world.land(day)
    today, later = (datetime.combine(day, time(12), UTC) for day in (DAYS[2], DAYS[3]))
    assert outside(world.settings, later) == ""
    assert outside(world.settings, today) == f"Files of {DAYS[2]} wait until their day is over (UTC)."
    ended = world.settings.model_copy(update={"last_day": DAYS[0]})
    assert outside(ended.model_copy(update={"last_day": DAYS[2]}), later) == ""
    assert "Files of 2 day(s) after 2026-03-01" in outside(ended, later)
    assert "LAKEHOUSE_LAST_DAY" in outside(ended, later)
