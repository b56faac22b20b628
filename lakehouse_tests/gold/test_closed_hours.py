"""gold.event_windows from a real Kafka broker: hours close as plain Python says, and exactly their days are built again."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from lakehouse.build.build import build
from lakehouse.build.intake.ends import ends_of
from lakehouse.build.stale import stale_days
from lakehouse.catalog import declared
from lakehouse.contracts import Table
from lakehouse.gold.event_windows import ALLOWED_LATENESS
from lakehouse.orchestration.due_reasons import what_happened
from lakehouse.read.lake import Lake
from lakehouse.settings import get_settings
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.fixtures.making import rows_of

pytestmark = pytest.mark.spark
DAY = datetime.now(UTC).date() - timedelta(days=3)
LATER = DAY + timedelta(days=2)  # no neighbour, whose rows may be repeats
STREAM, SILVER, WINDOWS = "bronze.event_stream", "silver.transactions", "gold.event_windows"
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def key() -> Iterator[None]:
    """Tokens need a key of the process."""
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


def event(number: int, at: datetime) -> str:
    """A purchase; each third has no amount, and is set aside."""
    said = {
        "event_id": f"e{number}", "schema_version": 1, "user_id": f"u{number % 4}", "event_type": "purchase", "order_id": f"o{number}",
        "event_time": at.isoformat(), "currency": ("EUR", "GBP")[number % 2], "amount": 5 if number % 3 else -5,
    }  # fmt: skip
    return json.dumps(said)


class Streamed:
    """The sample's tables on a topic of their own, and what each batch said of itself."""

    def __init__(self, make: LakeFactory, kafka: Kafka) -> None:
        self.kafka, self.topic = kafka, kafka.topic(2)
        tables = [self._on_topic(each) for each in declared("lakehouse").values()]
        self.lake: Lake = make(*tables)
        self.lake.settings = self.lake.settings.model_copy(
            update={"source_urls": {"event_stream": SecretStr(kafka.url)}}
        )
        self.batches: list[tuple[datetime | None, datetime]] = []

    def _on_topic(self, table: Table) -> Table:
        if table.topic is None:
            return table
        ((parameter, _),) = table.inputs.items()
        return replace(table, inputs={parameter: replace(table.topic, topics=(self.topic,))})

    def take(self, *events: tuple[int, datetime]) -> None:
        """One batch of events, spread over the partitions by their numbers."""
        for partition in range(2):
            mine = [event(number, at) for number, at in events if number % 2 == partition]
            if mine:
                self.kafka.send(self.topic, mine, partition)
        build(self.lake, self.lake.table(STREAM), [], run_id="take", one_batch=True)
        mark = ends_of(self.lake.snapshot(STREAM), "event_stream").watermark
        newest = max(row["_arrived_at"] for row in self.rows(STREAM))
        self.batches.append((None if mark is None else datetime.fromtimestamp(mark / 1e6, UTC), newest))

    def stale(self, name: str) -> list[date]:
        return stale_days(self.lake, self.lake.table(name))

    def build(self, name: str, *, force: bool = False) -> None:
        """The stale days of a table, or all days."""
        days = [DAY] if force else self.stale(name)
        build(self.lake, self.lake.table(name), days, run_id="test", force=force)

    def rows(self, name: str) -> list[dict[str, Any]]:
        return rows_of(self.lake.path(name))

    def windows(self) -> dict[tuple[datetime, str], tuple[int, datetime | None, int]]:
        """By hour and currency: events, watermark, corrections."""
        return {
            (row["window_start"], row["currency"]): (row["events"], row["closed_at_watermark"], row["corrections"])
            for row in self.rows(WINDOWS)
        }

    def expected(self) -> dict[tuple[datetime, str], tuple[int, datetime | None, int]]:
        """The same by looking at every event and every batch."""
        arrived: dict[str, datetime] = {}
        for row in self.rows(STREAM):
            arrived[row["event_id"]] = min(arrived.get(row["event_id"], row["_arrived_at"]), row["_arrived_at"])
        events: dict[tuple[datetime, str], list[datetime]] = defaultdict(list)
        for row in self.rows(SILVER):
            hour = row["event_time"].replace(minute=0, second=0, microsecond=0)
            events[hour, row["currency"]].append(arrived[row["event_id"]])
        found = {}
        for (hour, currency), arrivals in events.items():
            bound = hour + HOUR + ALLOWED_LATENESS
            mark, newest = next(((m, n) for m, n in self.batches if m and m >= bound), (None, None))
            found[hour, currency] = (len(arrivals), mark, sum(newest is not None and at > newest for at in arrivals))
        return found


@pytest.fixture
def streamed(lake: LakeFactory, kafka: Kafka) -> Streamed:
    return Streamed(lake, kafka)


def at(day: date, hour: float) -> datetime:
    return datetime.combine(day, time(), UTC) + timedelta(hours=hour)


def test_hours_close_and_are_corrected_as_an_oracle_says(streamed: Streamed, seed: int) -> None:
    """Whatever comes in which order: a wrong closing would tell a number final that was not, or hide what moved it."""
    chance, sent = random.Random(seed), list[tuple[int, datetime]]()
    for n in range(5):
        new = [(10 * n + k, at(DAY, 6 + 2 * n + chance.uniform(-5, 2))) for k in range(10)]
        streamed.take(*new, *chance.sample(sent, min(3, len(sent))))  # some are sent again, as they were
        sent += new
    # Late for certain, and in an hour that is open for certain.
    streamed.take((101, at(DAY, 6.5)), (104, at(DAY, 6.5)), (103, at(DAY, 17)))
    for name in (SILVER, WINDOWS):
        streamed.build(name)
    made = streamed.windows()
    assert made == streamed.expected()
    assert {closed is None for _, closed, _ in made.values()} == {True, False}
    assert sum(corrections for _, _, corrections in made.values()) >= 2

    streamed.build(WINDOWS, force=True)
    assert streamed.windows() == made


def test_a_day_is_stale_when_one_of_its_hours_is_closed(streamed: Streamed) -> None:
    """Without it, hours at the end of a day would stay open for ever; or an open day be built in every turn."""

    def settled(*events: tuple[int, datetime]) -> list[date]:
        """The stale days of the windows after a batch, once silver is built; they are built too."""
        streamed.take(*events)
        streamed.build(SILVER)
        found = streamed.stale(WINDOWS)
        streamed.build(WINDOWS)
        assert streamed.stale(WINDOWS) == []
        return found

    assert settled((1, at(DAY, 23.1)), (2, at(DAY, 23.2))) == [DAY]
    assert all(closed is None for _, closed, _ in streamed.windows().values())

    streamed.take((5, at(LATER, 0.1)), (4, at(LATER, 0.2)))
    streamed.build(SILVER)
    assert streamed.stale(WINDOWS) == [DAY, LATER]
    assert f"hours of {STREAM} were closed" in what_happened(streamed.lake, {WINDOWS: [DAY]})
    streamed.build(WINDOWS)
    assert {hour for (hour, _), (_, closed, _) in streamed.windows().items() if closed} == {at(DAY, 23)}

    assert settled((7, at(LATER, 0.7)), (8, at(LATER, 0.6))) == [LATER]
    assert settled((11, at(LATER, 1.7)), (10, at(LATER, 1.8))) == [LATER]
