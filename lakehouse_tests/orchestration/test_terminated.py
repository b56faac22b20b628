"""A person's *Terminate* stands: until the input changes or somebody launches the days, and everybody can see it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import date, timedelta
from typing import Any

import pytest
from dagster import (
    DagsterExecutionInterruptedError,
    DagsterInstance,
    DagsterRunStatus,
    SensorResult,
    build_sensor_context,
)
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.test_utils import create_run_for_test
from dagster._utils.error import SerializableErrorInfo

from lakehouse.build.result import BuildResult
from lakehouse.build.stale import turned_down
from lakehouse.catalog import tables
from lakehouse.contracts import Table
from lakehouse.definitions import defs
from lakehouse.orchestration import automation
from lakehouse.orchestration.alerts.sensor import look, store_path
from lakehouse.orchestration.alerts.store import opened_store
from lakehouse.orchestration.automation import Cursor, decide
from lakehouse.orchestration.due_reasons import what_happened
from lakehouse.orchestration.ended import Ended, ended_days
from lakehouse.orchestration.instance import DAGSTER_BACKFILL_TAG
from lakehouse.orchestration.run_tags import AUTOMATIC
from lakehouse.report.states import table_states
from lakehouse.runs.executing import create_run, execute
from lakehouse.sample.events import land_events
from lakehouse.settings import Settings
from lakehouse.versions.restore import plan_restore, restore
from lakehouse_tests.fixtures.making import age_landed
from lakehouse_tests.orchestration.running import GOOD, Foretold, result
from lakehouse_tests.orchestration.test_automation import BRONZE, DAYS, GOLD, LAST, SILVER, World
from lakehouse_tests.orchestration.test_automation import world as _world

pytestmark = pytest.mark.slow

world = _world  # a fixture
DAY = date(2011, 3, 1)
EVENTS, TRANSACTIONS = "bronze.events", "silver.transactions"


def looked(world: World, ended: Ended) -> automation.Decision:
    """One evaluation, with the runs that were ended."""
    cursor = Cursor.of(world.cursor, 5.0)
    made = decide(world.lake(), cursor, (), ended=ended, last=LAST, limit=99, now=world.now)
    world.cursor = made.cursor.text()
    return made


@pytest.mark.parametrize("reached", [BRONZE, SILVER])
def test_what_somebody_ended_waits_for_a_new_input(world: World, reached: str) -> None:
    """Without it, a run ended in silver would start again within seconds, and one ended in bronze never come back."""
    world.land(DAYS[0])
    world.land(DAYS[3])
    assert looked(world, Ended()).pieces
    if reached == SILVER:
        world.publish(BRONZE, DAYS[0])
    world.publish(BRONZE, DAYS[3])
    world.publish(SILVER, DAYS[3])
    left = [SILVER, GOLD] if reached == SILVER else [BRONZE, SILVER, GOLD]
    ended = Ended(by_somebody={name: {DAYS[0]} for name in left})
    unknown = decide(world.lake(), Cursor(1), (), last=LAST, limit=99, now=world.now)
    assert reached in {name for piece in unknown.pieces if DAYS[0] in piece.days for name in piece.tables}, "it is due"
    for _ in range(3):
        made = looked(world, ended)
        assert all(DAYS[0] not in piece.days for piece in made.pieces), "it was ended"
        for piece in made.pieces:
            world.run(piece)
    assert f"Somebody ended the run of {reached} {DAYS[0]}" in looked(world, ended).reason
    world.land(DAYS[0])
    (piece,) = looked(world, ended).pieces
    assert (piece.tables, piece.days) == ((BRONZE, SILVER, GOLD), [DAYS[0]])
    world.run(piece)
    world.settle()
    assert world.due() == {}
    assert "Somebody" not in looked(world, Ended()).reason


@pytest.mark.parametrize("name", [BRONZE, SILVER])
def test_what_somebody_restored_waits_for_a_new_input(world: World, name: str) -> None:
    """Without it, a day that was put back because its input is bad would be built from that again within seconds."""
    for _ in range(2):
        for day in DAYS[:2]:
            world.land(day)
        world.settle()
    lake = world.lake()
    restored = lake.table(name)
    restore(lake, plan_restore(lake, restored, lake.snapshot(name).version - 2, DAYS[:1]), by="somebody")
    assert turned_down(world.lake(), restored, DAYS[:2]) == {DAYS[0]}
    world.settle()  # what reads it
    assert world.due() == {name: [DAYS[0]]}
    made = world.look()
    assert f"{name} {DAYS[0]}, or restored them: these wait" in made.reason
    world.land(DAYS[1])
    world.settle()
    assert world.due() == {name: [DAYS[0]]}, "that another day changes is nothing to it"
    world.land(DAYS[0])
    (piece,) = world.look().pieces
    assert (piece.tables, piece.days) == ((BRONZE, SILVER, GOLD), [DAYS[0]])
    world.run(piece)
    world.settle()
    assert world.due() == {}
    assert turned_down(world.lake(), restored, DAYS[:2]) == set()
    assert "restored" not in world.look().reason


def test_what_has_come_since_a_restore_is_why_a_day_is_built(world: World) -> None:
    """Without it, the run's page named late rows that had been in the day for long, and inputs that nobody touched."""
    world.land(DAYS[0])
    world.land(DAYS[3], DAYS[3], DAYS[0])
    world.settle()
    world.land(DAYS[0])
    world.settle()
    lake = world.lake()
    silver = lake.table(SILVER)
    restore(lake, plan_restore(lake, silver, lake.snapshot(SILVER).version - 1, DAYS[:1]), by="somebody")
    assert what_happened(world.lake(), {SILVER: DAYS[:1]}) == "", "nothing has since"
    world.land(DAYS[0])
    world.publish(BRONZE, DAYS[0])
    assert turned_down(world.lake(), silver, DAYS[:1]) == set()
    assert what_happened(world.lake(), {SILVER: DAYS[:1]}) == f"{BRONZE} has changed"


@pytest.mark.parametrize(
    ("tags", "unasked"),
    [
        ({}, False),
        ({AUTOMATIC: "true"}, True),
        ({AUTOMATIC: "true", "dagster/parent_run_id": "r", "dagster/retry_number": "1"}, True),
        ({AUTOMATIC: "true", "dagster/parent_run_id": "r"}, False),
    ],
)
def test_a_run_of_the_sensor_says_so_to_what_builds(runs: Foretold, tags: dict[str, str], unasked: bool) -> None:
    """Without it, a run that was on its way took a restore back; and a person could not start it once more."""
    told = []

    def build(table: Table, days: Iterable[date], **words: Any) -> BuildResult:
        told.append(words["unasked"])
        return result(table, dict.fromkeys(days, GOOD))

    runs._build = build
    run = create_run(runs.instance, [EVENTS], DAY, DAY)
    runs.instance.add_run_tags(run.run_id, tags)
    again = runs.instance.get_run_by_id(run.run_id)
    assert again is not None
    for _ in execute(runs.instance, again):
        pass
    assert told == [unasked]


@pytest.mark.parametrize("looks", [1, 3])
@pytest.mark.parametrize("seen", [True, False])
def test_a_file_that_is_young_when_it_is_first_seen_is_a_new_input(world: World, looks: int, seen: bool) -> None:
    """Without it, what lands within seconds of a Terminate would be taken for the input of the run that was ended.

    Also where no look came between the end and the file.
    """
    world.land(DAYS[0])
    assert looked(world, Ended()).pieces
    ended = Ended(by_somebody={name: {DAYS[0]} for name in (BRONZE, SILVER, GOLD)})
    if seen:
        assert looked(world, ended).pieces == []
    world.land(DAYS[0])
    world.now, settled = time.time(), world.now
    for _ in range(looks):
        made = looked(world, ended)
        assert made.pieces == []
        assert "files that are not finished" in made.reason
    world.now = settled
    (piece,) = looked(world, ended).pieces
    assert (piece.tables, piece.days) == ((BRONZE, SILVER, GOLD), [DAYS[0]])


def test_what_a_stop_of_the_daemon_interrupted_is_built_after_it(world: World) -> None:
    """Without it, days whose run was on while the machine was shut down would stay missing for ever."""
    world.land(DAYS[0])
    (piece,) = looked(world, Ended()).pieces
    assert looked(world, Ended()).pieces == [], "asked for already"
    assert looked(world, Ended(interrupted={name: {DAYS[0]} for name in piece.tables})).pieces == [piece]


def cancelled(instance: DagsterInstance, names: list[str], *, by_somebody: bool = True) -> str:
    """A run of the sensor over the day that is cancelled while it waits."""
    run = create_run(instance, names, DAY, DAY)
    instance.add_run_tags(run.run_id, {AUTOMATIC: "true"})
    if by_somebody:
        instance.report_run_canceling(run)
    instance.report_run_canceled(run)
    return run.run_id


class Seen:
    """The sensors as the daemon evaluates them."""

    def __init__(self, instance: DagsterInstance, settings: Settings) -> None:
        self.instance, self.settings = instance, settings
        self.cursor: str | None = None

    def landed(self) -> SensorResult:
        age_landed(self.settings.root)
        context = build_sensor_context(self.instance, cursor=self.cursor, definitions=defs)
        made = defs.resolve_sensor_def("landed")(context)
        assert isinstance(made, SensorResult)
        self.cursor = made.cursor
        return made

    def alerts(self) -> list[dict[str, Any]]:
        with opened_store(store_path(self.settings)) as store:
            look(self.instance, store, {}, {}, quiet=1e9, now=time.time() + 60)
            return store.recent(100)


@pytest.fixture
def seen(instance: DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Seen:
    land_events(settings.root, DAY, 1, rows=5, seed=1)
    return Seen(instance, settings)


def test_a_run_ended_in_bronze_is_seen_everywhere_and_told_once(seen: Seen, settings: Settings) -> None:
    """Without it, the day would be missing in silence, and the sensor say that nothing has landed."""
    assert len(seen.landed().run_requests or ()) == 1
    run_id = cancelled(seen.instance, list(tables()))
    for _ in range(3):
        made = seen.landed()
        assert not made.run_requests
        assert made.skip_reason is not None
        assert f"Somebody ended the run of {EVENTS} {DAY}" in (made.skip_reason.skip_message or "")
    (state,) = table_states(settings, [EVENTS])
    assert (state.ended_days, state.failed_days) == ([DAY], [])
    # What reads it is of its newest input, as far as that is published: nobody refused it.
    assert [each.failed_days for each in table_states(settings, list(tables()))] == [[]] * len(tables())
    (told,) = seen.alerts()
    assert (told["check"], told["severity"], told["run_id"]) == ("run", "WARN", run_id)
    assert f"Somebody ended run {run_id[:8]} of lakehouse over {DAY}" in told["text"]
    assert len(seen.alerts()) == 1
    land_events(settings.root, DAY, 1, rows=6, seed=2)
    assert len(seen.landed().run_requests or ()) == 1


def test_a_run_ended_in_silver_is_known_until_somebody_launches_it(
    seen: Seen, settings: Settings, runs: Foretold
) -> None:
    """Without it, whoever ends a run would have to end it again every quarter of a minute."""

    def build(table: Table, days: Iterable[date], **_: Any) -> BuildResult:
        return result(table, dict.fromkeys(days, GOOD))

    seen.landed()
    runs._build = build
    for _ in execute(seen.instance, create_run(seen.instance, [EVENTS], DAY, DAY)):
        pass
    cancelled(seen.instance, [name for name in tables() if name != EVENTS])
    assert TRANSACTIONS in ended_days(seen.instance, list(tables())).by_somebody
    # Launched by somebody, it is over.
    run = create_run(seen.instance, [TRANSACTIONS], DAY, DAY)
    for _ in execute(seen.instance, run):
        pass
    stored = seen.instance.get_run_by_id(run.run_id)
    assert stored is not None
    assert stored.status == DagsterRunStatus.SUCCESS
    assert DAY not in ended_days(seen.instance, list(tables())).by_somebody.get(TRANSACTIONS, ())
    assert table_states(settings, [TRANSACTIONS])[0].ended_days == []


@pytest.mark.parametrize("by_somebody", [True, False])
def test_the_page_of_a_run_says_first_that_somebody_ended_it(seen: Seen, runs: Foretold, by_somebody: bool) -> None:
    """Without it, it begins with a trace through Dagster's code, as if something had broken."""
    run = create_run(seen.instance, [EVENTS], DAY, DAY)

    def interrupted(_: Table, days: Iterable[date], **__: Any) -> BuildResult:
        if by_somebody:
            seen.instance.report_run_canceling(run)
        raise DagsterExecutionInterruptedError

    runs._build = interrupted
    told = []
    for event in execute(seen.instance, run):
        error = getattr(event.event_specific_data, "error", None)
        told += [error.message] if error else []
    words = "DagsterExecutionInterruptedError: Somebody ended this run. What it has published stays."
    assert told
    assert [words in each.splitlines()[0] for each in told] == [by_somebody] * len(told)


def test_a_run_without_days_that_somebody_ended_leaves_none_behind(seen: Seen) -> None:
    """Without it, whoever ends the nightly upkeep would be sent to a backfill that has nothing to do with it."""
    run = create_run_for_test(seen.instance, job_name="upkeep")
    seen.instance.report_run_canceling(run)
    seen.instance.report_run_canceled(run)
    (told,) = seen.alerts()
    assert told["text"].endswith(
        f"Somebody ended run {run.run_id[:8]} of upkeep: what it had not done is left to its next run"
    )


def test_a_backfill_that_somebody_cancelled_is_one_alert(seen: Seen) -> None:
    """Without it, one click in the UI would send as many alerts as the backfill has runs."""
    tags = {DAGSTER_BACKFILL_TAG: "abcdefgh"}
    asked = PartitionBackfill("abcdefgh", BulkActionStatus.REQUESTED, False, {}, 1.3e9)
    seen.instance.add_backfill(asked)
    runs = [
        create_run_for_test(seen.instance, job_name="lakehouse", tags={**tags, "dagster/partition": f"2011-03-0{day}"})
        for day in (1, 2, 3, 4)
    ]
    seen.instance.report_run_canceling(runs[0])
    seen.instance.report_run_canceled(runs[0])
    (told,) = seen.alerts()
    assert f"Somebody ended run {runs[0].run_id[:8]} of lakehouse over 2011-03-01" in told["text"]
    seen.instance.update_backfill(asked._replace(status=BulkActionStatus.CANCELING))
    seen.instance.report_run_failed(runs[1])
    for run in runs[2:]:
        seen.instance.report_run_canceling(run)
        seen.instance.report_run_canceled(run)
        cancelled_one, failed, _ = seen.alerts()
    assert "Somebody cancelled backfill abcdefgh: 3 run(s) over 3 day(s) were left" in cancelled_one["text"]
    assert f"Run {runs[1].run_id[:8]} of lakehouse failed" in failed["text"]


def test_a_backfill_that_broke_is_nobodys_decision(seen: Seen) -> None:
    """Without it, a deploy that takes a table away would leave the days of all others to wait for a person."""
    seen.landed()
    run_id = cancelled(seen.instance, list(tables()))
    seen.instance.add_run_tags(run_id, {DAGSTER_BACKFILL_TAG: "abcdefgh"})
    gone = "Asset AssetKey(['gold', 'extra']) existed at storage-time, but no longer does. "
    asked = PartitionBackfill("abcdefgh", BulkActionStatus.FAILED, False, {}, 1.3e9)
    seen.instance.add_backfill(asked.with_error(SerializableErrorInfo(gone, [], "DagsterAssetBackfillDataLoadError")))
    assert ended_days(seen.instance, [EVENTS]) == Ended({}, {EVENTS: {DAY}})
    assert len(seen.landed().run_requests or ()) == 1
    (told,) = seen.alerts()
    assert "Backfill abcdefgh broke (gold.extra is no table any more): 1 run(s) over 1 day(s) were left" in told["text"]


def test_a_signal_is_nobodys_decision(seen: Seen) -> None:
    """Without it, stopping the daemon would leave what it was building to wait for a person."""
    seen.landed()
    cancelled(seen.instance, list(tables()), by_somebody=False)
    assert ended_days(seen.instance, [EVENTS]) == Ended({}, {EVENTS: {DAY}})
    assert len(seen.landed().run_requests or ()) == 1
    assert seen.alerts() == []


def test_the_cursor_keeps_what_waits() -> None:
    """Without it, a restart of the daemon would start again what somebody ended."""
    cursor = Cursor(7, "x", {BRONZE: {DAYS[0]: 2**62}}, {SILVER: {DAYS[1] + timedelta(days=1): 5}})
    assert Cursor.of(cursor.text(), 0.0) == cursor
    old = '{"count": 3, "seen": "", "asked": {}}'
    assert Cursor.of(old, 0.0) == Cursor(3)
