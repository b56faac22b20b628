"""A lake that people operate at random, against one that is built at once from the same input: their rows are the same.

Files or messages come late, twice, or are corrected; days are built in any order, forced, killed or sliced, by old and
new code, and by two at once; tables are restored, swapped for a candidate, tidied, moved away and brought back; rows in
quarantine are discarded and replayed; people are forgotten.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from lakehouse.catalog import declared, tables
from lakehouse.read.lake import Lake
from lakehouse.sample.events import land_events
from lakehouse.sample.faults import Faults
from lakehouse.settings import get_settings
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.fixtures.making import having
from lakehouse_tests.fixtures.tally import tally
from lakehouse_tests.sample import test_stream_equality
from lakehouse_tests.sample.operated import DAYS, OfFiles, OfTopic, Operated
from lakehouse_tests.sample.test_stream_equality import FAULTS, lines

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.slow]
STEPS, EVERY = 15, 15  # and how many from one comparison to the next
SAID = "{steps} steps of people on a lake, {differing} rows that differ from one built at once"


@pytest.fixture(autouse=True)
def key() -> Iterator[None]:
    """Tokens depend on the key alone, which is the same for every root."""
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


def walk(walked: Operated, another: Callable[[str], Lake], steps: int) -> None:
    """So many steps, compared now and then and at the end."""
    for number in range(steps):
        step = walked.chance.choice(walked.steps if number else walked.steps[:1])
        walked.said.append(f"{number}: {step.__name__}")
        step()
        walked.check()
        if (number + 1) % EVERY == 0 or number == steps - 1:
            differing = walked.compare(another(f"fresh{number}"))
            tally("operated lakes", SAID, steps=0, differing=len(differing))
            assert not differing, (differing, walked.tell())
    tally("operated lakes", SAID, steps=steps)


def test_a_lake_of_files(lake: LakeFactory, tmp_path: Path, seed: int, cases: Callable[[int], int]) -> None:
    """Without it, only the orders of work that somebody thought of would be known to leave right tables behind."""
    parts = tmp_path / "parts"
    for form in ("first", "corrected"):
        land_events(parts / form, DAYS[0], len(DAYS), rows=60, seed=len(form), faults=Faults.all(0.02), files_per_day=3)

    def another(name: str) -> Lake:
        return lake(*tables().values(), root=tmp_path / name)

    walk(OfFiles(another("walked"), random.Random(seed), parts), another, cases(STEPS))


def test_a_lake_of_messages(
    lake: LakeFactory, kafka: Kafka, tmp_path: Path, seed: int, cases: Callable[[int], int]
) -> None:
    """Without it, the same would be true of streams: with batches of their own, and what follows from them."""
    topic = kafka.topic(2)
    days = test_stream_equality.DAYS
    land_events(tmp_path / "lines", days[0], len(days), rows=100, seed=seed, faults=FAULTS)

    def another(name: str) -> Lake:
        made = lake(*declared("lakehouse").values(), root=tmp_path / name)
        stream = made.tables["bronze.event_stream"]
        assert stream.topic is not None
        most = 25 if name == "walked" else 10_000
        own = replace(stream.topic, messages_per_batch=most, topics=(topic,))
        # Of few messages many may be broken, and a day that fails its audit is what another test is about.
        silver = having(made.tables["silver.transactions"], max_quarantined=1.0)
        taking = replace(stream, inputs=dict.fromkeys(stream.inputs, own))
        made.tables = {**made.tables, stream.id: taking, silver.id: silver}
        made.settings = made.settings.model_copy(update={"source_urls": {own.source: SecretStr(kafka.url)}})
        return made

    walk(
        OfTopic(another("walked"), random.Random(seed), kafka, topic, lines(tmp_path / "lines")), another, cases(STEPS)
    )
