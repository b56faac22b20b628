"""A warm engine that ends is not the end of a stream: each try is on one that is there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from lakehouse.errors import EngineLostError, PublishConflictError, SourceDownError
from lakehouse.read.lake import Lake
from lakehouse.runs import attempts
from lakehouse.runs.attempts import retrying, with_engine
from lakehouse.settings import Settings
from lakehouse.spark.transient import is_transient
from lakehouse_tests.build.intake.test_from_topic import visit
from lakehouse_tests.fixtures.engines import own_engines
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.fixtures.making import rows_of
from lakehouse_tests.spark.test_warm import Engines, group_of, until

BRONZE, SILVER, GOLD = "bronze.visits", "silver.visits", "gold.by_day"


class Sessions:
    """A lake whose engine can be lost."""

    def __init__(self, root: Path) -> None:
        self.lost: list[object] = []
        self.lake = Lake(Settings(root=root), {}, self._start)

    def _start(self) -> Any:
        return SimpleNamespace()

    def lose(self) -> None:
        """The engine of the present session ends."""
        self.lost.append(self.lake.spark)

    def is_lost(self, session: object) -> bool:
        """As the warm engine's own."""
        return any(each is session for each in self.lost)


@pytest.fixture
def sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sessions:
    """On a root that is empty."""
    made = Sessions(tmp_path)
    monkeypatch.setattr(attempts, "is_lost", made.is_lost)
    return made


def test_a_try_has_the_session_of_the_one_before_only_while_its_engine_is_there(sessions: Sessions) -> None:
    """Without it, all tries would be on an engine that is gone; or each on another, with the settings of none."""
    lake = sessions.lake
    with with_engine(lake):
        assert "spark" not in vars(lake), "an engine that nobody needs is not started"
        first = lake.spark
    with with_engine(lake):
        assert lake.spark is first
        sessions.lose()
        assert lake.spark is first, "two halves of a plan are of one session"
    with with_engine(lake):
        assert lake.spark is not first


def test_what_a_lost_session_says_is_told_as_its_loss(sessions: Sessions) -> None:
    """Without it, a stream would end where its other thread was first to see that the engine is gone."""
    first, said = sessions.lake.spark, PySparkException("[NO_ACTIVE_SESSION] No active Spark session found.")

    def meet() -> None:
        with with_engine(sessions.lake):
            raise said

    with pytest.raises(PySparkException) as mistake:
        meet()
    assert (mistake.value, is_transient(said), sessions.lake.spark) == (said, False, first)

    def lose_and_meet() -> None:
        with with_engine(sessions.lake):
            sessions.lose()
            raise said

    with pytest.raises(EngineLostError) as lost:
        lose_and_meet()
    assert is_transient(lost.value)
    assert sessions.lake.spark is not first


@pytest.mark.parametrize(
    ("error", "tries"),
    [(SourceDownError("no broker answers"), 1), (PublishConflictError("another run was first"), 4)],
    ids=["each takes half a minute", "each takes a moment"],
)
def test_who_stops_a_stream_waits_for_no_source(error: Exception, tries: int) -> None:
    """Without it, Ctrl-C would end a stream minutes later where the brokers are silent."""
    stop, met = threading.Event(), list[Exception]()

    def meet() -> None:
        stop.set()
        met.append(error)
        raise error

    with pytest.raises(type(error)):
        retrying(stop)(meet)
    assert len(met) == tries


class Stream:
    """A process that streams on an engine of its own below a root."""

    def __init__(self, engines: Engines, kafka: Kafka) -> None:
        self.engines, self.kafka, self.topic = engines, kafka, kafka.topic()
        self.lake = Lake(Settings(root=engines.root), {}, lambda: pytest.fail("it asks for no engine"))
        command = [sys.executable, "-W", "ignore", "-m", "lakehouse_tests.runs.user", kafka.url, self.topic]
        self.process = subprocess.Popen(
            command, env=engines.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        engines.started.append(self.process)

    def takes(self, first: int, last: int) -> None:
        """Send these visits, and wait until gold has all that there are."""
        self.kafka.send(self.topic, [visit(n) for n in range(first, last)])
        until(lambda: self.process.poll() is not None or self.visits() == last)
        assert self.process.poll() is None, "it has ended"

    def visits(self) -> int:
        """As gold has them."""
        return sum(row["visits"] for row in rows_of(self.lake.path(GOLD))) if self.lake.snapshot(GOLD).exists else 0

    def keeper(self) -> int:
        """Of the engine that is on."""
        [place] = self.engines.on()
        pid = place.pid()
        assert pid is not None
        return pid

    def lines(self) -> list[dict[str, Any]]:
        """What it told of its turns until it ended, which it was to do now."""
        out, _ = self.process.communicate(timeout=240)
        assert self.process.returncode == 0
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def streaming(tmp_path: Path, kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    """A stream that runs; its engines end with the test."""
    own_engines(monkeypatch)
    made = Stream(Engines(tmp_path / "root"), kafka)
    yield made
    made.process.kill()
    made.process.wait()
    for place in made.engines.on():
        place.end()


def out_of_memory(stream: Stream) -> None:
    """The JVM is killed, as the system does where there is none left."""
    keeper = stream.keeper()
    processes = [each for each in Path("/proc").glob("[0-9]*") if group_of(each) == keeper and int(each.name) != keeper]
    for each in processes:
        if b"java" in (each / "cmdline").read_bytes().split(b"\0")[0]:
            os.kill(int(each.name), signal.SIGKILL)


def stopped(stream: Stream) -> None:
    """As by `lakehouse engine stop --force`."""
    [place] = stream.engines.on()
    place.end()


@pytest.mark.spark
@pytest.mark.slow
def test_a_stream_goes_on_where_its_engine_has_ended(streaming: Stream) -> None:
    """Without it, an engine that is stopped, or has no memory left, would end each stream that uses it."""
    ways: list[Callable[[Stream], None]] = [out_of_memory, stopped]
    streaming.takes(0, 50)
    keepers = [streaming.keeper()]
    for number, end in enumerate(ways, 1):
        end(streaming)
        streaming.takes(50 * number - 10, 50 * number + 50)  # ten of them twice
        keepers.append(streaming.keeper())
    assert len(set(keepers)) == 3
    assert streaming.process.stdin is not None
    streaming.process.stdin.close()
    streaming.process.stdin = None
    told = streaming.lines()
    assert sum(line.get("messages", 0) for line in told) == 50 + 60 + 60
    assert [name for name in (SILVER, GOLD) if any(name in line.get("built", ()) for line in told)] == [SILVER, GOLD]
    assert sorted(row["_offset"] for row in rows_of(streaming.lake.path(BRONZE))) == list(range(170))
    assert sorted(row["id"] for row in rows_of(streaming.lake.path(SILVER))) == sorted(f"v{n}" for n in range(150))
    assert streaming.visits() == 150
