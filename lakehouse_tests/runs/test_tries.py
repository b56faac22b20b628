"""What a try had committed before it failed is told as what a good one has: the next try finds none of it new."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from datetime import date, timedelta

import pytest

from lakehouse.build import followers
from lakehouse.build.result import PUBLISHED, BuildResult, DayResult
from lakehouse.checks.metrics import DayMetrics
from lakehouse.contracts import Table
from lakehouse.errors import PublishConflictError
from lakehouse.read.lake import Lake
from lakehouse.runs import stream
from lakehouse.runs.attempts import retrying
from lakehouse.runs.background import BackgroundBuilds, Built
from lakehouse.runs.stream_metrics import StreamMetrics
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.midnight import present_day
from lakehouse_tests.fixtures.streaming import recent, streamed

pytestmark = pytest.mark.usefixtures("today")
PACE = stream.Pace(0, 0)
BRONZE, SILVER, GOLD, RECENT = "bronze.visits", "silver.visits", "gold.by_day", "gold.recent"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another try waits for nothing."""
    for name in ("FIRST_WAIT", "LONGEST_WAIT"):
        monkeypatch.setattr(f"lakehouse.runs.attempts.{name}", 0.0)


class Shop:
    """Tables that a stream feeds, without an engine: what is stale is known, and a build of it may meet an error."""

    def __init__(self, lake: Lake, batches: Iterable[int], errors: dict[str, list[Exception]]) -> None:
        self.lake, self.bronze = lake, lake.table(BRONZE)
        self.stop, self.given = threading.Event(), list[Built]()
        self._batches, self._errors = iter(batches), errors
        self.stale = {name: [present_day()] for name in lake.tables if name != BRONZE}

    def changed_days(self, _lake: Lake, table: Table, among: Collection[date] | None = None) -> list[date]:
        """The days that nobody has built from what is there; whoever asks for all of them builds them."""
        return (
            self.stale.pop(table.id, []) if among is None else [d for d in self.stale.get(table.id, ()) if d in among]
        )

    def take(self, *_: object, **__: object) -> BuildResult:
        """A batch of so many messages; there is no table, so version 0 is news."""
        messages = next(self._batches, 0)
        return BuildResult(self.bronze, 0 if messages else -1, {}, facts={"batch/messages": messages})

    def build(self, _lake: Lake, table: Table, days: list[date], **_: object) -> BuildResult:
        """All of them published, or the next error of the table."""
        if errors := self._errors.get(table.id):
            self.stale[table.id] = days
            raise errors.pop(0)
        return published(table, *days)

    def turns(self, beside: BackgroundBuilds | None = None) -> list[stream.Turn]:
        """The first three; with builds beside them, until the last table is told; in any case until an error ends it."""
        told = []
        try:
            for turn in stream.turns(self.lake, [self.bronze], "run", self.stop, pace=PACE, beside=beside):
                told.append(turn)
                if len(told) > 2 if beside is None else RECENT in turn.built:
                    break
        except ValueError:
            self.stop.set()
        return told

    def beside(self) -> BackgroundBuilds:
        """What builds gold in a thread of its own."""
        return BackgroundBuilds(self.lake, [self.bronze], "run", 0, retrying(self.stop), self.given.append)


def published(table: Table, *days: date) -> BuildResult:
    """A build that has published these days."""
    return BuildResult(table, 0, {}, {day: DayResult(PUBLISHED, DayMetrics(day)) for day in days})


def days_in(told: Iterable[Built]) -> dict[str, list[date]]:
    """By table, the days that were told as published."""
    found = dict[str, list[date]]()
    for built in told:
        for name, each in built.items():
            found[name] = found.get(name, []) + each.with_status(PUBLISHED)
    return found


@pytest.fixture
def shop(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Shop]:
    """Makes one of batches and of errors by table."""

    def make(batches: Iterable[int] = (), **errors: list[Exception]) -> Shop:
        made = Shop(lake(*streamed(), recent()), batches, {name.replace("_", ".", 1): e for name, e in errors.items()})
        monkeypatch.setattr(stream, "build", made.take)
        monkeypatch.setattr(followers, "build", made.build)
        monkeypatch.setattr(followers, "changed_days", made.changed_days)
        return made

    return make


def test_what_a_failed_build_beside_had_published_is_told(shop: Callable[..., Shop]) -> None:
    """Without it, features would be published and never served, and Dagster would show the day as it was before."""
    made = shop(gold_recent=[PublishConflictError("another run was first")])
    with made.beside() as beside:
        told = made.turns(beside)
    expected = {GOLD: [present_day()], RECENT: [present_day()]}
    assert days_in(each.built for each in told) == {SILVER: [present_day()], **expected}
    assert days_in(made.given) == expected


def test_what_a_build_beside_had_published_before_it_ended_the_stream_is_told(shop: Callable[..., Shop]) -> None:
    """Without it, the last days that a stream has built would be told when their next message comes."""
    made = shop(gold_recent=[ValueError("a mistake in a transform")])
    with made.beside() as beside:
        told = made.turns(beside)
    assert days_in([*(each.built for each in told), beside.built()]) == {SILVER: [present_day()], GOLD: [present_day()]}
    assert days_in(made.given) == {GOLD: [present_day()]}
    with pytest.raises(ValueError, match="a mistake"):
        beside.check()


def test_a_batch_before_a_failed_build_is_counted(shop: Callable[..., Shop]) -> None:
    """Without it, figures would miss the messages of each turn that was tried again."""
    made = shop([1000, 0, 7], gold_by_day=[PublishConflictError("another run was first")])
    told, metrics = made.turns(), StreamMetrics()
    for turn in told:
        metrics.add(made.lake, turn)
    assert [(turn.number, turn.messages) for turn in told] == [(1, 1000), (2, 0), (3, 7)]
    assert metrics.registry.get_sample_value("lakehouse_stream_messages_total", {"table": BRONZE}) == 1007
    assert days_in(each.built for each in told) == {
        SILVER: [present_day()],
        GOLD: [present_day()],
        RECENT: [present_day()],
    }


def test_what_the_last_try_had_committed_is_told_before_the_stream_ends(shop: Callable[..., Shop]) -> None:
    """Without it, a stream that ends with an error would say nothing of what it had taken just before."""
    made = shop([1000], gold_by_day=[ValueError("a mistake in a transform")])
    (turn,) = made.turns()
    assert (turn.messages, days_in([turn.built])) == (1000, {SILVER: [present_day()]})


def test_two_topics_that_feed_one_table_are_both_told(
    shop: Callable[..., Shop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, days that only the first topic has touched would be told to nobody."""
    made, days = shop([5, 5]), [present_day(), present_day() - timedelta(days=1)]
    monkeypatch.setattr(stream, "each_built", lambda *_: iter([published(made.lake.table(SILVER), days.pop())]))
    turn = next(stream.turns(made.lake, [made.bronze, made.bronze], "run", made.stop, pace=PACE))
    assert turn.built[SILVER].with_status(PUBLISHED) == [present_day() - timedelta(days=1), present_day()]
