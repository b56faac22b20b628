"""What Dagster is told of a stream: every day its turns touched, once, with the checks that fail and that it is open."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import date, timedelta

import pytest
from dagster import AssetCheckKey, DagsterInstance

from lakehouse.build import open_days
from lakehouse.build.result import FAILED, PUBLISHED, BuildResult, DayResult
from lakehouse.checks.metrics import DayMetrics, Outcome
from lakehouse.contracts import Table
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.target import Commit
from lakehouse.delta.transactions import day_transaction
from lakehouse.orchestration.metadata import asset_key
from lakehouse.orchestration.quarantine import quarantine_key
from lakehouse.orchestration.streamed import Telling, Untold, missed
from lakehouse.read.lake import Lake
from lakehouse.read.targets import targets
from lakehouse.runs import stream
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import stage_rows
from lakehouse_tests.fixtures.midnight import present_day
from lakehouse_tests.fixtures.streaming import streamed

pytestmark = pytest.mark.usefixtures("today")
EARLIER = present_day() - timedelta(days=2)


@pytest.fixture
def shop(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Tables that a stream feeds."""
    monkeypatch.setattr(open_days, "batch_of", lambda *_: 1)
    return lake(*streamed())


def built(table: Table, *days: date, rows: int = 3, status: str = PUBLISHED) -> BuildResult:
    """A build that did this to some days."""
    broken = [Outcome("row_rules", day, status == PUBLISHED, "9 of 10 rows") for day in days]
    made = {day: DayResult(status, DayMetrics(day, rows=rows), [told]) for day, told in zip(days, broken, strict=True)}
    return BuildResult(table, 7, {}, made)


def materialized(instance: DagsterInstance, table: str) -> dict[str, dict[str, object]]:
    """By partition, the metadata of its newest materialization."""
    found = instance.fetch_materializations(asset_key(table), limit=100, ascending=True).records
    return {
        str(each.partition_key): {name: value.value for name, value in each.asset_materialization.metadata.items()}
        for each in found
        if each.asset_materialization is not None
    }


def test_each_touched_day_is_told_once_for_many_turns(shop: Lake) -> None:
    """Without it, the interface would show nothing of a stream, or be flooded by it."""
    table, untold = shop.table("gold.by_day"), Untold()
    for rows in (3, 5):
        untold.add({table.id: built(table, EARLIER, present_day(), rows=rows)})
    with DagsterInstance.ephemeral() as instance:
        told = untold.tell(instance, shop)
        found = materialized(instance, table.id)
        assert {day: each["dagster/partition_row_count"] for day, each in found.items()} == {
            str(EARLIER): 5,
            str(present_day()): 5,
        }
        assert instance.fetch_materializations(asset_key(table.id), limit=9).records.__len__() == 2
        assert told >= 2
        assert untold.tell(instance, shop) == 0


def test_dagster_is_told_from_time_to_time_and_of_the_rest_at_the_end(shop: Lake) -> None:
    """Without it, what a stream did last, or what an error ended, would not be shown until it is touched again."""
    table = shop.table("gold.by_day")
    publish(shop, EARLIER, 1, "stream-1")
    with DagsterInstance.ephemeral() as instance:

        def days() -> list[str]:
            return list(materialized(instance, table.id))

        def broken_off() -> None:
            with Telling(instance, shop, [table]) as telling:
                assert days() == [str(EARLIER)], "a stream that was killed had not told it"
                assert not telling.add({table.id: built(table, present_day())})
                assert days() == [str(EARLIER)], "many turns touch the same days"
                raise ConnectionError

        with pytest.raises(ConnectionError):
            broken_off()
        assert days() == [str(EARLIER), str(present_day())]
        with Telling(instance, shop, [table], every=0) as telling:
            assert telling.add({table.id: built(table, EARLIER - timedelta(days=1))})
            assert len(days()) == 3


def test_today_is_shown_as_open(shop: Lake, today: date) -> None:
    """Without it, a day of a few hours would look like a bad one, or be read as a whole one."""
    table, untold = shop.table("gold.by_day"), Untold()
    untold.add({table.id: built(table, EARLIER, today, today + timedelta(days=1))})
    with DagsterInstance.ephemeral() as instance:
        untold.tell(instance, shop)
        found = materialized(instance, table.id)
        assert list(found)[-1] == str(today), "what was told last is what the page of the table shows"
        assert str(found[str(today)]["open"]).startswith(f"until {today + timedelta(days=1)} 00:05 UTC")
        assert next(iter(found[str(today)])) == "open", "first of all, not below the preview"
        assert "open" not in found[str(EARLIER)]


def publish(lake: Lake, day: date, visits: int, run: str) -> None:
    """Publish a day of gold.by_day as a build would, without an engine."""
    target, _ = targets(lake, lake.table("gold.by_day"))
    rows = [{"day": day, "page": f"p{n}", "visits": 1} for n in range(visits)]
    facts = {"lakehouse.run_id": run, "lakehouse.metrics": {str(day): {"rows": visits}}}
    replace_days(
        target, ensure_table(target), stage_rows(target, rows), [day], Commit({day_transaction(day): visits}, facts)
    )


def set_aside(lake: Lake, day: date, count: int) -> None:
    """Put rows of a day into the quarantine of silver.visits as a build would, without an engine."""
    _, side = targets(lake, lake.table("silver.visits"))
    assert side is not None
    rows = [{"day": day, "id": f"{day} {n}", "_failed_rules": ["message_readable"]} for n in range(count)]
    facts = {"lakehouse.run_id": "stream-1", "lakehouse.code_version": "c"}
    replace_days(side, ensure_table(side), stage_rows(side, rows, "quarantined"), [day], Commit({}, facts))


def test_what_a_stream_sets_aside_is_shown_by_the_quarantine(shop: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, its page would go on showing the rows that the last run of Dagster's left there, or none."""
    monkeypatch.setattr("lakehouse.orchestration.quarantine.get_settings", lambda: shop.settings)
    table, untold = shop.table("silver.visits"), Untold()
    with DagsterInstance.ephemeral() as instance:

        def told() -> list[tuple[object, int]]:
            untold.add({table.id: built(table, present_day())})
            untold.tell(instance, shop)
            found = instance.fetch_observations(quarantine_key(table), limit=9, ascending=True).records
            shown = [each.asset_observation.metadata for each in found if each.asset_observation]
            return [(each["rows"].value, len(each["sample"].records)) for each in shown]  # type: ignore[attr-defined]

        assert told() == [], "one that was always empty is no news"
        set_aside(shop, EARLIER, 1)
        set_aside(shop, present_day(), 2)
        assert told() == [(3, 2)], "as a whole, with rows of the days that were touched"
        assert told() == [(3, 2)], "nothing has changed"
        set_aside(shop, present_day(), 4)
        assert told() == [(3, 2), (5, 4)]


def test_what_a_killed_stream_had_not_told_is_told_by_the_next(shop: Lake) -> None:
    """Without it, a day would be shown as never built until something of it comes again."""
    table = shop.table("gold.by_day")
    publish(shop, EARLIER, 1, "a run of Dagster's, which tells by itself")
    publish(shop, present_day(), 2, "stream-1")
    with DagsterInstance.ephemeral() as instance:
        missed(instance, shop, [table]).tell(instance, shop)
        found = materialized(instance, table.id)
        assert {day: each["dagster/partition_row_count"] for day, each in found.items()} == {str(present_day()): 2}
        assert missed(instance, shop, [table]).results == {}
        publish(shop, present_day(), 3, "stream-2")
        assert list(missed(instance, shop, [table]).results) == [table.id]


def test_a_refused_day_is_no_materialization_and_its_check_fails(shop: Lake) -> None:
    """Without it, a day that was not published would be green."""
    table, untold = shop.table("silver.visits"), Untold()
    untold.add({table.id: built(table, present_day(), status=FAILED)})
    with DagsterInstance.ephemeral() as instance:
        untold.tell(instance, shop)
        assert materialized(instance, table.id) == {}
        key = AssetCheckKey(asset_key(table.id), "row_rules")
        told = [
            each.event.dagster_event.asset_check_evaluation_data
            for each in instance.event_log_storage.get_asset_check_execution_history(key, limit=9)
            if each.event is not None and each.event.dagster_event is not None
        ]
        assert [(each.partition, each.passed) for each in told if each.partition] == [(str(present_day()), False)]


def test_a_batch_is_told_by_the_days_its_messages_arrived_on(shop: Lake) -> None:
    """Without it, the table that takes messages would look as if nothing ever came."""
    table, untold = shop.table("bronze.visits"), Untold()
    untold.add({table.id: BuildResult(table, 3, {}, also_replaced={present_day(): 12})})
    with DagsterInstance.ephemeral() as instance:
        untold.tell(instance, shop)
        assert list(materialized(instance, table.id)) == [str(present_day())]


def test_what_a_batch_touched_is_built_where_the_first_try_broke_off(
    shop: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, silver would stay behind bronze until the next message comes."""
    table, built_of, tried = shop.table("bronze.visits"), list[int](), list[int]()
    # The second turn takes a batch and breaks off; its second try finds nothing new.
    batches = iter([0, 5, 0, 0])

    def take(*_: object, **__: object) -> BuildResult:
        tried.append(next(batches))
        # There is no table yet; a batch without messages adds no commit.
        return BuildResult(table, 0 if tried[-1] else -1, {}, facts={"batch/messages": tried[-1]})

    def followers(*_: object, **__: object) -> Iterator[BuildResult]:
        if len(tried) == 2:
            raise ConnectionError("the engine was restarted")
        built_of.append(len(tried))
        return iter(())

    monkeypatch.setattr(stream, "build", take)
    monkeypatch.setattr(stream, "each_built", followers)
    monkeypatch.setattr("lakehouse.runs.attempts.FIRST_WAIT", 0.0)
    monkeypatch.setattr("lakehouse.runs.attempts.LONGEST_WAIT", 0.0)
    stop, told = threading.Event(), []
    for turn in stream.turns(
        shop, [table], "run", stop, pace=stream.Pace(0, 0), retried=lambda error, _: told.append(str(error))
    ):
        if turn.number == 3:
            stop.set()
    assert built_of == [1, 3]
    assert told == ["the engine was restarted"]
