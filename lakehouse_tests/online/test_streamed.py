"""From a topic into Redis: shuffled messages, and a backfill beside them; what is served is what was sent."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

import pytest
from pydantic import SecretStr

from lakehouse.build.build import build
from lakehouse.contracts import Table
from lakehouse.days import end_of
from lakehouse.errors import PublishConflictError
from lakehouse.kafka.sending import send
from lakehouse.online.load import load
from lakehouse.online.parity import Certificate, verify
from lakehouse.online.sets import FeatureSet, milliseconds, unpack
from lakehouse.online.store import OnlineStore
from lakehouse.read.lake import Lake
from lakehouse.runs.stream import Pace, turns
from lakehouse.runs.stream_online import OnlineToday
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.fixtures.redis import RedisServer
from lakehouse_tests.fixtures.streaming import SOURCE, pages, streamed

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PARTITIONS, MOST, PAGES, VISITS = 3, 60, 30, 200
TODAY = datetime.now(UTC).date()
DAYS = [TODAY - timedelta(days=n) for n in (2, 1, 0)]
NOW = end_of(TODAY) - timedelta(seconds=1)  # the tests may run across midnight
Visit = dict[str, str]


def visits(chance: random.Random) -> list[Visit]:
    """Visits of three days in any order, some sent twice."""
    made = [
        {
            "id": f"v{n}",
            "page": f"p{chance.randrange(PAGES)}",
            "at": f"{chance.choice(DAYS)}T{chance.randrange(24):02}:{chance.randrange(60):02}:00Z",
        }
        for n in range(VISITS)
    ]
    made += chance.sample(made, VISITS // 10)
    return chance.sample(made, len(made))


def counted(sent: Iterable[Visit]) -> dict[str, tuple[date, int, str]]:
    """Without Spark: of each page its newest day, that day's visits and the last one."""
    by_page = dict[str, dict[str, str]]()
    for each in sent:
        by_page.setdefault(each["page"], {})[each["id"]] = each["at"]
    found = {}
    for page, times in by_page.items():
        newest = max(times.values())[:10]
        of_it = [at for at in times.values() if at.startswith(newest)]
        found[page] = (date.fromisoformat(newest), len(of_it), max(of_it))
    return found


def served(store: OnlineStore, table: Table) -> dict[str, tuple[date, int, str]]:
    """The same, as Redis has it."""
    features, days, found = FeatureSet.of(table), {milliseconds(end_of(day)): day for day in DAYS}, {}
    for key in store.keys(features.pattern):
        [value] = store.values([key])
        assert value is not None
        record = unpack(value)
        row = dict(zip(features.columns, record.values, strict=True))
        last = features.decoders["last"]
        assert last is not None
        found[features.parts_of(key)[0]] = (
            days[record.event_time], row["visits"], f"{last(row['last']):%Y-%m-%dT%H:%M:%SZ}"
        )  # fmt: skip
    return found


class Backfill(threading.Thread):
    """Builds all days of the features anew and loads the whole table, once for each time it is told to, until it is stopped."""

    def __init__(self, lake: Lake, features: Table, url: str) -> None:
        super().__init__()
        self.lake, self.features, self.url = lake, features, url
        self.go, self.stop, self.done = threading.Event(), threading.Event(), 0

    def run(self) -> None:
        """Whoever loses a race for a day tries again, as a run does."""
        while self.go.wait() and not self.stop.is_set():
            try:
                build(self.lake, self.features, DAYS, run_id="backfill", force=True)
            except PublishConflictError:
                continue
            self.go.clear()
            load(self.lake, self.url, self.features, NOW)
            self.done += 1


@pytest.fixture
def made(lake: LakeFactory, kafka: Kafka, redis_server: RedisServer) -> Lake:
    """Visits from a topic of the test's own, and features of their pages."""
    found = lake(*streamed(kafka.topic(PARTITIONS), messages_per_batch=MOST), pages())
    urls = {"redis_url": SecretStr(redis_server.url), "source_urls": {SOURCE: SecretStr(kafka.url)}}
    found.settings = found.settings.model_copy(update=urls)
    return found


def topic_of(lake: Lake) -> str:
    """That of `bronze.visits`."""
    source = lake.table("bronze.visits").topic
    assert source is not None
    return source.topics[0]


def stream(lake: Lake, today: OnlineToday) -> int:
    """Take what is there; returns how many turns built features."""
    source, number = lake.table("bronze.visits"), 0
    for turn in turns(lake, [source], "stream", threading.Event(), pace=Pace(0, 0), until_caught_up=True):
        today.add(turn.built, NOW)
        number += "gold.pages" in turn.built
    return number


def assert_certified(found: Certificate, entities: int) -> None:
    """Nothing differs, and something was compared."""
    assert found.passed, [each.text() for each in found.mismatches]
    assert found.online == found.entities == found.sampled == entities > 0


def test_a_shuffled_stream_with_a_backfill_beside_it_is_served_exactly(
    made: Lake, store: OnlineStore, kafka: Kafka, redis_server: RedisServer, seed: int
) -> None:
    """Without it, what is served could differ from what was sent wherever a stream and a backfill write at once."""
    chance, features, told = random.Random(seed), made.table("gold.pages"), list[str]()
    sent, number = visits(chance), 0
    kafka_has(kafka, topic_of(made), sent[:MOST], chance)
    stream(made, today := OnlineToday(made, told.append))
    beside = Backfill(made, features, redis_server.url)
    beside.start()
    try:
        left = sent[MOST:]
        while left or beside.done < 2:
            now, left = left[: (n := chance.randint(20, 80))], left[n:]
            kafka_has(kafka, topic_of(made), now, chance)
            beside.go.set()
            number += stream(made, today)
            # It may be behind for a moment; but what it says was never wrong.
            found = verify(made, store, features, NOW, sample=None)
            assert not [each.text() for each in found.mismatches if "as known then" in each.against]
    finally:
        beside.stop.set()
        beside.go.set()
        beside.join()
    assert (number > 1, beside.done > 1, told) == (True, True, [])
    wanted = counted(sent)
    assert served(store, features) == wanted
    assert_certified(verify(made, store, features, NOW, sample=None), len(wanted))
    # Emptied, it is served again as a whole: what comes later would else be all that there is.
    store.remove(store.keys("*"))
    today.add({}, NOW)
    assert served(store, features) == wanted


def kafka_has(kafka: Kafka, topic: str, sent: list[Visit], chance: random.Random) -> None:
    """Send visits to random partitions: what is sent twice may be in two of them."""
    send(kafka.address, topic, ((chance.randrange(PARTITIONS), None, json.dumps(each).encode()) for each in sent))
