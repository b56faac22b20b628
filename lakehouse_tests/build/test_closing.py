"""Days that a stream adds to, once they are over: judged as a whole, at the cost of a look."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest

from lakehouse.build import open_days
from lakehouse.build.ready import OPEN, READY, STALE, readiness
from lakehouse.build.result import FAILED, PUBLISHED
from lakehouse.build.stale import stale_days
from lakehouse.days import end_of
from lakehouse.orchestration.due_reasons import what_happened
from lakehouse.records.history import latest_records
from lakehouse.runs.stream import Pace, Turn, turns
from lakehouse_tests.build.intake.test_from_topic import Taking, visit
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.fixtures.making import having
from lakehouse_tests.fixtures.midnight import present_day
from lakehouse_tests.fixtures.streaming import build_followers, built_whole

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("today")]
SILVER, GOLD = "silver.visits", "gold.by_day"


@pytest.fixture
def taking(lake: LakeFactory, kafka: Kafka) -> Taking:
    """A topic of one partition."""
    return Taking(lake, kafka)


def send(taking: Taking, *numbers: int) -> None:
    """Visits of today."""
    taking.kafka.send(taking.topic, [visit(n) for n in numbers])


def at(monkeypatch: pytest.MonkeyPatch, now: datetime) -> None:
    monkeypatch.setattr(open_days, "present", lambda: now)


def closed() -> datetime:
    """When the last message of today is published."""
    return end_of(present_day()) + timedelta(minutes=5)


def last_moment() -> datetime:
    """When one may still be on its way."""
    return closed() - timedelta(seconds=1)


def test_a_day_is_judged_as_a_whole_once_it_is_over(taking: Taking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a stream that fell silent at noon would leave a good day, and nobody would ever judge it."""
    silver = having(taking.lake.table(SILVER), min_rows=10)
    silver.__dict__["code_version"] = taking.lake.table(SILVER).code_version
    taking.lake.tables = {**taking.lake.tables, SILVER: silver}

    def built() -> tuple[Any, ...]:
        found = build_followers(taking.lake, taking.bronze, "test")
        return tuple(each.days[present_day()].status for each in found.values())

    send(taking, 1, 2, 3)
    taking.take()
    assert built() == (PUBLISHED, PUBLISHED)
    at(monkeypatch, last_moment())
    assert built() == (), "a message may be on its way"
    at(monkeypatch, closed())
    assert built() == (FAILED, PUBLISHED)
    assert len(taking.rows(SILVER)) == 3, "they stay"
    assert built() == (), "it would fail again"
    send(taking, *range(4, 12))
    taking.take()
    assert built() == (PUBLISHED, PUBLISHED)
    assert len(taking.rows(SILVER)) == 11


def test_to_close_a_day_reads_none_of_its_rows(taking: Taking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, all streams would stand still at midnight, while each computes its largest day anew."""
    silver, gold = taking.lake.table(SILVER), taking.lake.table(GOLD)
    for numbers in (range(30), range(30, 33)):
        send(taking, *numbers)
        taking.take()
        build_followers(taking.lake, taking.bronze, "test")
    files = taking.lake.snapshot(SILVER).files
    assert len(files) == 2
    at(monkeypatch, last_moment())
    assert (stale_days(taking.lake, silver), readiness(taking.lake, gold, present_day(), last_moment()).status) == (
        [],
        OPEN,
    )
    at(monkeypatch, closed())
    assert (stale_days(taking.lake, silver), readiness(taking.lake, gold, present_day(), closed()).status) == (
        [present_day()],
        STALE,
    )
    assert what_happened(taking.lake, {SILVER: [present_day()]}) == f"the day is over, of {SILVER}"
    wholly = built_whole(monkeypatch)
    assert list(build_followers(taking.lake, taking.bronze, "test")) == [SILVER, GOLD]
    assert wholly == [GOLD]
    assert taking.lake.snapshot(SILVER).files == files
    assert latest_records(taking.lake.settings.root, SILVER)[present_day()].figures["rows"] == 33
    assert readiness(taking.lake, gold, present_day(), closed()).status == READY
    assert [stale_days(taking.lake, each) for each in (silver, gold)] == [[], []]


def test_a_day_closes_where_no_message_comes(taking: Taking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the day of a topic that is quiet at night would be open until somebody gets up."""
    send(taking, 1, 2, 3)
    stop, done = threading.Event(), list[Turn]()
    for turn in turns(taking.lake, [taking.bronze], "run", stop, pace=Pace(0, 3600)):
        done.append(turn)
        if len(done) == 3:
            at(monkeypatch, closed())
        if len(done) == 6:
            stop.set()
    assert [sorted(each.built) for each in done] == [[GOLD, SILVER], [], [], [GOLD, SILVER], [], []]
