"""kill -9 of the stream and of its broker while producers write: in the end each visit is there once.

Producers send again what they are not sure of, as those that are told to deliver at least once do; some of their
transactions are given up. The stream is killed at every point where it writes, and started again.
"""

from __future__ import annotations

import json
import random
import threading
import zlib
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import pytest

from lakehouse.delta.failpoints import POINTS
from lakehouse.errors import SourceDownError
from lakehouse.read.lake import table_path
from lakehouse_tests.faults.laboratory import KILLED, EngineProcess, Laboratory
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.fixtures.making import rows_of
from lakehouse_tests.fixtures.tally import tally

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.crash]
PARTITIONS, MOST = 3, 60
AT_BRONZE = ("before-stage", "after-stage", "before-commit", "after-commit")
AT_SILVER = 3  # of its points, which are those of any table and tested as such
KILLED_WHAT = ("kills", "brokers", "executors")
SAID = "{kills} kills of the stream, {brokers} of the broker, {executors} of executors, {visits} visits, {lost} lost, {doubled} doubled"


class Producer:
    """Sends visits until it is told to stop: some twice, some late, some in transactions that are given up."""

    def __init__(self, kafka: Kafka, topic: str, seed: int) -> None:
        self.sent: set[str] = set()
        self._kafka, self._topic, self._chance = kafka, topic, random.Random(seed)
        self._stop, self._thread = threading.Event(), threading.Thread(target=self._produce)

    def burst(self) -> None:
        """A few messages; those that the broker does not take for sure are sent again in another burst."""
        chance, partition = self._chance, self._chance.randrange(PARTITIONS)
        ids = [f"v{len(self.sent) + n}" for n in range(chance.randint(1, 12))]
        repeats = chance.sample(sorted(self.sent), min(len(self.sent), 3))
        values = [self._visit(each) for each in chance.sample([*ids, *ids[:2], *repeats], len(ids[:2] + ids + repeats))]
        if chance.random() < 0.1:
            self._kafka.abort(self._topic, [self._visit(f"given-up-{each}").encode() for each in ids], partition)
        while True:
            try:
                self._kafka.send(self._topic, values, partition)
                break
            except SourceDownError:  # what was stored of them is there, and comes again
                continue
        self.sent.update(ids)

    def _visit(self, number: str) -> str:
        # The time follows from the id: whoever sends it again sends the same.
        late = timedelta(days=hash_of(number) % 3, minutes=hash_of(number) % 1000)
        at = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - late
        return json.dumps({"id": number, "page": f"p{hash_of(number) % 5}", "at": at.strftime("%Y-%m-%dT%H:%M:%SZ")})

    def _produce(self) -> None:
        while not self._stop.wait(0.3):
            self.burst()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def hash_of(text: str) -> int:
    """A number that is the same in every process."""
    return zlib.crc32(text.encode()) % 10_007


@pytest.fixture(scope="module")
def laboratory(engine_process: EngineProcess) -> Laboratory:
    """What streams, and is killed."""
    return Laboratory(engine_process, "streaming")


def assert_exact(root: Path, kafka: Kafka, topic: str, sent: set[str], **counts: int) -> None:
    """Bronze has each committed message of the topic once, silver each visit once, gold counts them."""
    silver = Counter(row["id"] for row in rows_of(table_path(root, "silver.visits")))
    bronze = Counter((row["_partition"], row["_offset"]) for row in rows_of(table_path(root, "bronze.visits")))
    stored = Counter((each.partition, each.offset) for each in kafka.stored(topic))
    gold = sum(row["visits"] for row in rows_of(table_path(root, "gold.by_day")))
    lost = len(sent - silver.keys()) + len(stored.keys() - bronze.keys())
    doubled = sum(silver.values()) - len(silver) + sum(bronze.values()) - len(bronze)
    tally("stream", SAID, visits=len(sent), lost=lost, doubled=doubled, **dict.fromkeys(KILLED_WHAT, 0) | counts)
    assert silver.keys() == sent
    assert (lost, doubled, gold, bronze) == (0, 0, len(sent), stored)


def test_killed_everywhere_while_producers_write(
    laboratory: Laboratory, kafka: Kafka, tmp_path: Path, seed: int, cases: Callable[[int], int]
) -> None:
    """Without it, a crash could skip messages or double them, or leave silver behind what bronze has taken."""
    chance, topic, kills = random.Random(seed), kafka.topic(PARTITIONS), 0
    order: dict[str, Any] = {"url": kafka.url, "topic": topic, "most": MOST}
    with Producer(kafka, topic, seed) as producer:
        for _ in range(cases(1)):
            points = [f"bronze.visits:{each}" for each in AT_BRONZE]
            points += [f"silver.visits:{each}" for each in chance.sample(POINTS, AT_SILVER)]
            for point in chance.sample(points, len(points)):
                producer_has_sent(producer)
                kills += laboratory.run(tmp_path, point, **order) == KILLED
    assert kills >= len(AT_BRONZE)
    laboratory.run(tmp_path, **order)
    assert_exact(tmp_path, kafka, topic, producer.sent, kills=kills)
    assert laboratory.run(tmp_path, **order) == {"turns": 1, "messages": 0}


def producer_has_sent(producer: Producer) -> None:
    """Wait until there is something new to take."""
    before, deadline = len(producer.sent), threading.Event()
    while len(producer.sent) == before:
        deadline.wait(0.02)


def test_the_broker_is_killed_while_it_is_read(laboratory: Laboratory, kafka: Kafka, tmp_path: Path, seed: int) -> None:
    """Without it, a broker that was restarted could be taken for one that has lost its messages, or lose them."""
    topic = kafka.topic(PARTITIONS)
    order: dict[str, Any] = {"url": kafka.url, "topic": topic, "most": MOST}
    with Producer(kafka, topic, seed) as producer:
        producer_has_sent(producer)
        laboratory.order(tmp_path, **order)  # it tries again until the broker is there
        kafka.kill()
        kafka.start()
        assert laboratory.ended()["messages"] >= 0
    laboratory.run(tmp_path, **order)
    assert_exact(tmp_path, kafka, topic, producer.sent, brokers=1)
