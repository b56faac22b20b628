"""What a batch touched is built, and nothing else: neither what would fail again, nor what only other code would make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta

import pytest

from lakehouse.build.followers import Which
from lakehouse.build.result import FAILED, PUBLISHED
from lakehouse.build.stale import stale_days
from lakehouse.contracts import Table
from lakehouse.read.lake import Lake
from lakehouse_tests.build.intake.test_from_topic import Taking, visit
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.fixtures.midnight import present_day
from lakehouse_tests.fixtures.streaming import build_followers, recent, visits

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("today")]
SILVER = "silver.visits"


def before() -> date:
    """Some days ago; asked by each test, as the present day is."""
    return present_day() - timedelta(days=3)


def earlier(number: int) -> str:
    """A message of some days ago."""
    return visit(number, at=f"{before()}T00:00:00Z")


def having(taking: Taking, table: Table) -> None:
    """Let the lake have one more table, or another one of that name."""
    old = taking.lake
    taking.lake = Lake(old.settings, {**old.tables, table.id: table}, lambda: old.spark)


def turn(taking: Taking, *messages: str, run: str = "run") -> Mapping[date, str]:
    """Send, take and build what was touched; returns what became of silver's days."""
    taking.kafka.send(taking.topic, messages)
    taking.take()
    built = build_followers(taking.lake, taking.bronze, run)
    return {day: each.status for day, each in built[SILVER].days.items()} if SILVER in built else {}


def test_a_day_that_fails_is_built_again_only_where_its_input_has_changed(lake: LakeFactory, kafka: Kafka) -> None:
    """Without it, each turn would build the whole day again, and write its quarantine anew, until the disk is full."""
    taking = Taking(lake, kafka)
    having(taking, visits(most_aside=0.0))
    assert turn(taking, visit(1), "{rubbish") == {present_day(): FAILED}
    files = taking.lake.snapshot(f"{SILVER}_quarantine").files
    assert turn(taking, earlier(3)) == {before(): PUBLISHED}
    assert turn(taking) == {}
    assert taking.lake.snapshot(f"{SILVER}_quarantine").files == files
    assert turn(taking, run="another") == {present_day(): FAILED}, "who starts the stream again is told again"
    assert turn(taking, run="another") == {}
    assert turn(taking, visit(4), run="another") == {present_day(): FAILED}, "another input, which may be a good one"


def test_history_that_only_other_code_would_make_is_left_alone(lake: LakeFactory, kafka: Kafka) -> None:
    """Without it, a stream that is started after a change of code would build years before it takes a message."""
    taking = Taking(lake, kafka)
    assert turn(taking, earlier(1), visit(2)) == {before(): PUBLISHED, present_day(): PUBLISHED}
    changed = replace(taking.lake.table(SILVER))
    changed.__dict__["code_version"] = "0123456789ab"
    having(taking, changed)
    assert turn(taking) == {}
    assert stale_days(taking.lake, changed) == [before(), present_day()], "they can still be told, and built"
    assert turn(taking, visit(3)) == {present_day(): PUBLISHED}
    assert stale_days(taking.lake, changed) == [before()]


def test_a_window_over_days_without_rows_is_built_beside_a_stream(lake: LakeFactory, kafka: Kafka) -> None:
    """Without it, what looks back on a quiet day waits for rows of that day, which never come, once it is closed."""
    taking = Taking(lake, kafka)
    having(taking, recent())
    kafka.send(taking.topic, [earlier(1), visit(2)])
    taking.take()
    for which in (Which.GROWING, Which.WHOLE):
        built = build_followers(taking.lake, taking.bronze, "run", which)
    assert sorted(built["gold.recent"].days) == [before() + timedelta(days=n) for n in range(4)]
    assert stale_days(taking.lake, taking.lake.table("gold.recent"), [before()]) == []
