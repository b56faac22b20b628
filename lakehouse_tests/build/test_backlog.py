"""Days of a stream that is behind: open for as long as messages wait that may be of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakehouse.build import made_from, open_days
from lakehouse.build.base import open_base
from lakehouse.build.build import build
from lakehouse.build.followers import Which
from lakehouse.build.intake.ends import ends_of
from lakehouse.build.intake.from_topic import accept_loss
from lakehouse.build.open_days import come_to, newest_closed, open_until, passed
from lakehouse.build.ready import OPEN, READY, STALE, readiness
from lakehouse.build.result import FAILED, PUBLISHED
from lakehouse.build.stale import stale_days
from lakehouse.contracts import Table
from lakehouse.days import end_of
from lakehouse.orchestration.due_reasons import what_happened
from lakehouse.orchestration.metadata import open_metadata
from lakehouse.runs.stream import Pace, Turn, turns
from lakehouse.versions.restore import plan_restore, restore
from lakehouse_tests.build.intake.test_from_topic import Taking, visit
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.fixtures.making import having
from lakehouse_tests.fixtures.midnight import present_day
from lakehouse_tests.fixtures.streaming import SOURCE, build_followers, built_whole

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("today")]
SILVER, GOLD = "silver.visits", "gold.by_day"
# Apart, since a key is looked for in the days beside, too.
DAYS = [present_day() - timedelta(days=n) for n in (6, 4, 2)]
LATER = timedelta(hours=1)


@pytest.fixture
def taking(lake: LakeFactory, kafka: Kafka) -> Taking:
    """A topic of one partition, in batches of two; a day of silver has four rows at least."""
    return with_least(Taking(lake, kafka, messages_per_batch=2), SILVER)


def with_least(made: Taking, name: str, rows: int = 4, **policy: float) -> Taking:
    """The days of a table have so many rows at least, and what else is given."""
    table = having(made.lake.table(name), min_rows=rows, **policy)
    table.__dict__["code_version"] = made.lake.table(name).code_version
    made.lake.tables = {**made.lake.tables, name: table}
    return made


def send(taking: Taking, *visits_by_day: int) -> None:
    """So many visits of each of the days, an hour apart."""
    for day, count in zip(DAYS, visits_by_day, strict=False):
        at = [f"{day}T{hour + 1:02}:00:00Z" for hour in range(count)]
        taking.kafka.send(taking.topic, [visit(hash((day, each)), each) for each in at])


def worked_off(taking: Taking) -> Iterator[Turn]:
    """The turns of a stream that ends by itself."""
    yield from turns(taking.lake, [taking.bronze], "run", threading.Event(), pace=Pace(0, 0), until_caught_up=True)


def having_topics(taking: Taking, topics: tuple[str, ...]) -> Table:
    """bronze.visits of some topics."""
    topic = taking.bronze.topic
    assert topic is not None
    made = replace(taking.bronze, inputs={"messages": replace(topic, topics=topics)})
    made.__dict__["code_version"] = taking.bronze.code_version
    return made


def statuses(turn: Turn) -> dict[str, list[str]]:
    """By table, the days that it built, from the first of `DAYS` on, and what became of them."""
    return {
        name: [f"{(day - DAYS[0]).days} {each.status}" for day, each in sorted(built.days.items())]
        for name, built in turn.built.items()
    }


def test_no_day_is_refused_for_what_waits(taking: Taking) -> None:
    """Without it, a stream that was off for days would cry wolf at each of them until it has caught up."""
    send(taking, 5, 4, 4)
    done = [statuses(each) for each in worked_off(taking)]
    assert {status.split()[1] for each in done for told in each.values() for status in told} == {PUBLISHED}
    assert [sorted(row["day"] for row in taking.rows(SILVER)).count(day) for day in DAYS] == [5, 4, 4]
    assert [stale_days(taking.lake, taking.lake.table(name)) for name in (SILVER, GOLD)] == [[], []]
    now = open_days.present()
    assert {readiness(taking.lake, taking.lake.table(GOLD), day, now).status for day in DAYS} == {READY}


def test_dead_letters_close_no_day(lake: LakeFactory, kafka: Kafka) -> None:
    """Without it, a partition that has brought nothing else, and so no watermark, would have each day refused."""
    taking = with_least(Taking(lake, kafka, partitions=2, messages_per_batch=4), SILVER)
    send(taking, 5, 4)
    kafka.send(taking.topic, ["no event at all"] * 9, partition=1)
    done = [statuses(each) for each in worked_off(taking)]
    assert len(done) > 2
    assert {status.split()[1] for each in done for told in each.values() for status in told} == {PUBLISHED}
    assert [stale_days(taking.lake, taking.lake.table(name)) for name in (SILVER, GOLD)] == [[], []]


def test_what_waits_still_does_where_messages_were_given_up(taking: Taking) -> None:
    """Without it, who lets a stream go on would have its days refused before the next batch."""
    send(taking, 6, 4)
    taking.take(one=True)
    build_followers(taking.lake, taking.bronze, "test")
    taking.kafka.delete_before(taking.topic, {0: 4})
    assert accept_loss(open_base(taking.lake, taking.bronze), taking.url, who="me", reason="retention")
    assert build_followers(taking.lake, taking.bronze, "test") == {}
    assert FAILED not in str([statuses(each) for each in worked_off(taking)])
    assert min(newest_closed(taking.lake, end_of(present_day()) + LATER)) == present_day()


def test_a_day_is_judged_beside_once_its_last_rows_are_in_what_it_reads(lake: LakeFactory, kafka: Kafka) -> None:
    """Without it, sums built between a batch and its turn's builds would be judged as a whole, and be refused."""
    taking = with_least(Taking(lake, kafka, messages_per_batch=2), GOLD)
    kafka.send(taking.topic, [visit(n, f"{DAYS[0]}T01:00:00Z", page=f"p{n}") for n in range(4)])
    found = []
    for _ in range(2):
        taking.take(one=True)
        for which in (Which.WHOLE, Which.GROWING, Which.WHOLE):
            built = build_followers(taking.lake, taking.bronze, "run", which)
            found.append({name: each.days[DAYS[0]].status for name, each in built.items()})
    assert found == [{}, {SILVER: PUBLISHED}, {GOLD: PUBLISHED}] * 2


def test_a_day_that_closes_while_it_is_planned_is_judged_once_it_has_all(
    taking: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a run beside a stream would refuse the day whose last messages are taken just then."""
    send(taking, 4)
    taking.take(one=True)
    lake, silver, kept = taking.lake, taking.lake.table(SILVER), made_from.kept

    def overtaken(*asked: Any) -> Any:
        monkeypatch.setattr(made_from, "kept", kept)
        taking.take(one=True)
        return kept(*asked)

    monkeypatch.setattr(made_from, "kept", overtaken)
    for rows in (2, 4):
        found = build(lake, silver, DAYS[:1], run_id="r").days[DAYS[0]]
        assert (found.status, found.metrics.rows) == (PUBLISHED, rows)
    assert stale_days(lake, silver) == []


def test_a_day_is_judged_as_a_whole_once_the_stream_has_passed_it(taking: Taking) -> None:
    """Without it, a day that lacks half of its messages would pass for good."""
    send(taking, 2, 4, 1)
    done = [statuses(each) for each in worked_off(taking)]
    refused = [status for each in done for status in each.get(SILVER, ()) if status.endswith(FAILED)]
    assert refused == [f"0 {FAILED}", f"4 {FAILED}"]
    assert [sorted(row["day"] for row in taking.rows(SILVER)).count(day) for day in DAYS] == [2, 4, 0], (
        "what is there stays"
    )


def test_the_last_that_waited_is_added_to_its_day(
    lake: LakeFactory, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, each day of a stream that is behind would be computed anew once more when it closes."""
    taking = Taking(lake, kafka, messages_per_batch=30)
    taking.kafka.send(taking.topic, [visit(n, f"{DAYS[0]}T01:00:00Z") for n in range(33)])
    wholly = built_whole(monkeypatch)
    for _ in range(2):
        taking.take(one=True)
        build_followers(taking.lake, taking.bronze, "test")
    assert wholly == [SILVER, GOLD, GOLD]
    assert len(taking.rows(SILVER)) == 33


def test_what_waits_is_told_beside_the_day(taking: Taking) -> None:
    """Without it, half of a day of last week would pass for all of it."""
    send(taking, 5)
    day, now = DAYS[0], open_days.present()
    taking.take(one=True)
    build_followers(taking.lake, taking.bronze, "test")
    lake, gold = taking.lake, taking.lake.table(GOLD)
    assert ends_of(lake.snapshot(taking.bronze.id), SOURCE).left == 3
    assert min(newest_closed(lake, now)) == day - timedelta(days=1)
    reached = come_to(lake, gold)
    assert reached is not None
    assert (reached.date(), passed(day, now, reached)) == (day, timedelta(hours=2))
    found = readiness(lake, gold, day, now)
    assert (found.status, found.reason) == (OPEN, f"rows of {day} may come until the messages that wait are taken")
    assert open_metadata(lake, gold, [day], now)[day]["open"].startswith("until the messages that wait are taken: ")
    taking.take()
    assert (come_to(lake, gold), open_until(lake, gold, day, now)) == (None, None)
    assert readiness(lake, gold, day, now).status == STALE


def test_what_a_restore_took_back_waits(taking: Taking) -> None:
    """Without it, days that lost rows by it would be refused, or be told as ready, until they are taken again."""
    send(taking, 4, 3)
    taking.take()
    lake, silver, now = taking.lake, taking.lake.table(SILVER), open_days.present()
    first = lake.snapshot(taking.bronze.id).version
    taking.kafka.send(taking.topic, [visit(9, f"{DAYS[1]}T09:00:00Z")])
    list(worked_off(taking))
    newest = lake.snapshot(taking.bronze.id).version
    for version, waits in ((first, True), (newest, False), (first, True)):
        restore(lake, plan_restore(lake, taking.bronze, version), by="test")
        assert (open_until(lake, silver, DAYS[1], now) is not None) == waits
    built = build_followers(lake, taking.bronze, "test")
    assert [each.with_status(FAILED) for each in built.values()] == [[]] * len(built)
    assert FAILED not in str([statuses(each) for each in worked_off(taking)])
    assert [sorted(row["day"] for row in taking.rows(SILVER)).count(day) for day in DAYS[:2]] == [4, 4]
    assert open_until(lake, silver, DAYS[1], now) is None


def test_why_a_day_that_the_stream_has_passed_is_due(taking: Taking) -> None:
    """Without it, the run that closes it would say nothing, or that messages came."""
    send(taking, 4, 2)
    for _ in range(2):
        taking.take(one=True)
        build_followers(taking.lake, taking.bronze, "test")
    assert stale_days(taking.lake, taking.lake.table(GOLD)) == []
    taking.take()
    assert stale_days(taking.lake, taking.lake.table(GOLD)) == [DAYS[0]]
    assert what_happened(taking.lake, {GOLD: [DAYS[0]]}) == f"the day is over, of {GOLD}"


def test_a_day_that_stood_is_left_alone_where_messages_wait_again(taking: Taking) -> None:
    """Without it, all days since the oldest message of a new topic would be built twice more."""
    send(taking, 4, 4)
    list(worked_off(taking))
    taking.kafka.send(taking.topic, [visit(n, f"{DAYS[0]}T05:00:00Z") for n in range(3)])
    before = taking.lake.snapshot(SILVER).version
    taking.take(one=True)
    lake, silver, now = taking.lake, taking.lake.table(SILVER), datetime.now(UTC)
    assert open_until(lake, silver, DAYS[1], now) is not None
    assert stale_days(lake, silver, DAYS[:2]) == [DAYS[0]]
    taking.take()
    list(worked_off(taking))
    assert lake.snapshot(SILVER).version == before + 1, "what came was added to it, and judged as a whole at once"


def test_messages_of_a_topic_that_is_read_no_more_hold_no_day_open(taking: Taking) -> None:
    """Without it, days would be open for ever."""
    other = taking.kafka.topic(1)
    two, one = (having_topics(taking, topics) for topics in ((taking.topic, other), (taking.topic,)))
    taking.tables[0] = two
    taking.lake.tables = {**taking.lake.tables, two.id: two}
    taking.kafka.send(taking.topic, [visit(0, f"{DAYS[0]}T01:00:00Z")])
    taking.kafka.send(other, [visit(n, f"{DAYS[0]}T02:00:00Z") for n in range(1, 5)])
    taking.take(one=True)
    assert min(newest_closed(taking.lake, datetime.now(UTC))) < DAYS[0]
    taking.tables[0] = one
    taking.lake.tables = {**taking.lake.tables, one.id: one}
    taking.take(one=True)
    assert min(newest_closed(taking.lake, end_of(present_day()) + LATER)) == present_day()
    version = taking.lake.snapshot(one.id).version
    taking.take(one=True)
    assert taking.lake.snapshot(one.id).version == version, "said once"


def test_what_tells_no_time_refuses_no_day_that_the_stream_has_not_come_to(taking: Taking) -> None:
    """Without it, today would be refused for its share of bad rows until the stream has brought today's good ones."""
    with_least(taking, SILVER, max_quarantined=0.2)
    taking.kafka.send(taking.topic, [visit(90 + n, "no time") for n in range(10)])
    send(taking, 5, 4)
    done = [statuses(each) for each in worked_off(taking)]
    assert {status.split()[1] for each in done for told in each.values() for status in told} == {PUBLISHED}
    assert taking.lake.snapshot(f"{SILVER}_quarantine").rows_by_day("day") == {present_day(): 10}


def test_a_partition_that_is_added_has_no_day_refused_for_what_waits_in_it(taking: Taking) -> None:
    """Without it, what the watermark has passed already would be refused with the first of its messages."""
    send(taking, 4, 0, 7)
    for _ in range(3):
        taking.take(one=True)
    build_followers(taking.lake, taking.bronze, "test")
    taking.kafka.add_partitions(taking.topic, 2)
    taking.kafka.send(taking.topic, [visit(50 + n, f"{DAYS[1]}T0{n}:00:00Z") for n in range(4)], partition=1)
    taking.take(one=True)
    built = build_followers(taking.lake, taking.bronze, "test")
    assert built[SILVER].days[DAYS[1]].status == PUBLISHED
    assert readiness(taking.lake, taking.lake.table(GOLD), DAYS[1], open_days.present()).status == OPEN
    assert FAILED not in str([statuses(each) for each in worked_off(taking)])
    assert stale_days(taking.lake, taking.lake.table(SILVER)) == []
