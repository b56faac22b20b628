"""What is built beside the turns of a stream: the turns go on meanwhile, and nothing of it is lost or hidden."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from lakehouse.build.build import build
from lakehouse.build.result import BuildResult
from lakehouse.catalog import lake_beside
from lakehouse.read.lake import Lake
from lakehouse.runs import background, stream
from lakehouse.runs.attempts import retrying
from lakehouse.runs.background import BackgroundBuilds, Built
from lakehouse.spark.config import SHUFFLES
from lakehouse_tests.build.intake.test_from_topic import Taking, visit
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.fixtures.making import rows_of
from lakehouse_tests.fixtures.streaming import streamed

PACE = stream.Pace(0.05, 0)
GOLD = "gold.by_day"


@pytest.fixture
def shop(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Tables that a stream feeds, of which nothing new comes."""
    made = lake(*streamed())

    def take(*_: object, **__: object) -> BuildResult:
        return BuildResult(made.table("bronze.visits"), -1, {}, facts={"batch/messages": 0})

    monkeypatch.setattr(stream, "build", take)
    monkeypatch.setattr(stream, "each_built", lambda *_: iter(()))
    return made


def turning(lake: Lake, stop: threading.Event, beside: BackgroundBuilds) -> stream.Turn:
    """The first turn that tells of gold; the stream goes on until then."""
    with beside:
        found = stream.turns(lake, [lake.table("bronze.visits")], "run", stop, pace=PACE, beside=beside)
        return next(turn for turn in found if GOLD in turn.built)


def test_turns_wait_for_no_whole_build(shop: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, each message that comes meanwhile would be late by as long as all of gold takes."""
    turned, stop, given = threading.Event(), threading.Event(), list[Built]()
    result = BuildResult(shop.table(GOLD), 0, {})

    def whole(*_: object) -> Iterator[BuildResult]:
        assert turned.wait(60), "a turn ended while this was on"
        yield result

    monkeypatch.setattr(background, "each_built", whole)
    source = shop.table("bronze.visits")
    with BackgroundBuilds(shop, [source], "run", 0, retrying(stop), given.append) as beside:
        for turn in stream.turns(shop, [source], "run", stop, pace=PACE, beside=beside):
            if turn.built:
                break
            turned.set()
    assert turn.number > 1
    assert (turn.built, given) == ({GOLD: result}, [{GOLD: result}])


def test_a_build_that_takes_long_is_followed_by_a_pause_as_long(shop: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, sums of a day with many rows would be built all the time, and take the engine from the messages."""
    now, stop, pauses = [0.0], threading.Event(), list[float]()
    lengths = iter((40.0, 2.0))
    beside = BackgroundBuilds(shop, [shop.table("bronze.visits")], "run", 15, retrying(stop))

    class Ending(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0)
            beside.touch()
            return self.is_set()

    def whole(*_: object) -> Iterator[BuildResult]:
        now[0] += next(lengths)
        if now[0] > 40:
            beside._ending.set()
        return iter(())

    monkeypatch.setattr(beside, "_ending", Ending())
    monkeypatch.setattr(background, "each_built", whole)
    monkeypatch.setattr(background.time, "monotonic", lambda: now[0])
    beside.touch()
    beside._run()
    assert pauses == [40.0, 15]


def test_what_fails_beside_ends_the_stream_and_what_passes_is_tried_again(
    shop: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a stream would run on while its sums stay as they were, with nobody told."""
    errors = [ConnectionError("the engine was restarted"), ValueError("a mistake in a transform")]
    told, stop = list[str](), threading.Event()

    def whole(*_: object) -> Iterator[BuildResult]:
        raise errors.pop(0)

    monkeypatch.setattr(background, "each_built", whole)
    monkeypatch.setattr("lakehouse.runs.attempts.FIRST_WAIT", 0.0)
    monkeypatch.setattr("lakehouse.runs.attempts.LONGEST_WAIT", 0.0)
    again = retrying(stop, lambda error, _: told.append(str(error)))
    with pytest.raises(ValueError, match="a mistake in a transform"):
        turning(shop, stop, BackgroundBuilds(shop, [shop.table("bronze.visits")], "run", 0, again))
    assert told == ["the engine was restarted"]


@pytest.mark.spark
def test_both_build_what_one_would_have(lake: LakeFactory, kafka: Kafka, today: date) -> None:
    """Without it, a stream with two threads would come out otherwise than the same days built again."""
    taking, stop = Taking(lake, kafka), threading.Event()
    made = taking.lake
    # Of the whole history, the engine plans otherwise than of a batch.
    set_here = made.spark.conf.get(SHUFFLES)
    apart = lake_beside(made)
    for first in (0, 40):
        taking.kafka.send(taking.topic, [visit(n) for n in range(first, first + 50)])  # ten of them twice
        turning(made, stop, BackgroundBuilds(apart, [taking.bronze], "run", 0, retrying(stop)))
    apart.spark.conf.set(SHUFFLES, "77")
    assert made.spark.conf.get(SHUFFLES) == set_here
    seen = _state(made)
    assert [row["visits"] for row in seen[GOLD]] == [90]
    for table in taking.tables[1:]:
        build(made, table, [today], run_id="run", force=True)
    assert _state(made) == seen


def _state(lake: Lake) -> dict[str, list[dict[str, Any]]]:
    names = ("silver.visits", GOLD)
    return {name: sorted(rows_of(lake.path(name)), key=lambda row: str(sorted(row.items()))) for name in names}
