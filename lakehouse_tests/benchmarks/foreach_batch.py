"""How a topic is taken, two ways: a loop of bounded reads, as it is done here, and a streaming query's `foreachBatch`.

The same messages in batches of the same size, through the very steps of an intake: stage, audit, publish, offsets in the
commit of the rows. All that differs is who decides what a batch is. The loop asks the brokers and reads the table's log. The
query keeps a checkpoint of its own, and hands over each batch; what of it the table has is left out, so both are exact.
The query is spared to ask whether a topic was made anew. One engine, of this process, for both, in turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

from deltalake import DeltaTable
from pydantic import SecretStr
from pyspark.sql import DataFrame, SparkSession

from lakehouse.build.base import open_base
from lakehouse.build.intake.ends import ends_of
from lakehouse.build.intake.from_topic import TopicBatch
from lakehouse.build.intake.take import audit_batch, publish_batch, stage_batch
from lakehouse.build.laps import Laps
from lakehouse.catalog import declared
from lakehouse.contracts import Topic
from lakehouse.days import micros_of
from lakehouse.kafka.sending import send
from lakehouse.read.lake import Lake
from lakehouse.runs.stream import Pace, turns
from lakehouse.settings import Settings
from lakehouse.sources.kafka import A_TASK, Brokers
from lakehouse.sources.spans import Span, messages_in
from lakehouse.spark.session import start
from lakehouse_tests.benchmarks.stream import PARTITIONS, lines, spread
from lakehouse_tests.fixtures.kafka import Kafka, serving
from lakehouse_tests.fixtures.streaming import in_batches

TABLE = "bronze.event_stream"


class Handed(Brokers):
    """Brokers of which a streaming query has read a batch already."""

    def __init__(self, url: SecretStr, topic: Topic, frame: DataFrame) -> None:
        super().__init__(url, topic)
        self._frame = frame

    def messages(
        self, spark: SparkSession, spans: Sequence[Span], restarts: Mapping[str, int] = MappingProxyType({})
    ) -> DataFrame:
        """The rows of the batch."""
        return self.rows_of(self._frame.coalesce(1 + messages_in(spans) // A_TASK))


class Intake:
    """What a streaming query hands its batches to."""

    def __init__(self, lake: Lake, url: SecretStr, checkpoint: Path) -> None:
        self._lake, self._url, self._checkpoint = lake, url, checkpoint
        self._topic = _topic(lake)
        self._found = Brokers(url, self._topic).found()

    def take(self, frame: DataFrame, epoch: int) -> None:
        """Publish a batch, but where the table has it already: a query that was killed hands it over once more."""
        # A query's batch has a session of its own.
        lake = Lake(self._lake.settings, {TABLE: self._lake.table(TABLE)}, lambda: frame.sparkSession)
        laps, begun, base = Laps(), micros_of(datetime.now(UTC)), open_base(lake, lake.table(TABLE))
        before = ends_of(base.main.snapshot, self._topic.source)
        spans = []
        for topic, number, end in self._ends(epoch):
            place = before.positions.get((topic, number))
            begin = place.offset if place else self._found[topic].parts[number].first
            if begin < end:
                spans.append(Span(topic, number, begin, end))
        if not spans:
            return
        batch = TopicBatch(
            base=base, run_id="bench", laps=laps.lap("plan"), topic=self._topic,
            brokers=Handed(self._url, self._topic, frame), begun=begun, before=before, found=self._found, spans=spans,
            until={},
        )  # fmt: skip
        with stage_batch(batch) as staged:
            publish_batch(audit_batch(staged))

    def _ends(self, epoch: int) -> Iterator[tuple[str, int, int]]:
        """Where a batch ends, as the query's checkpoint says before it is handed over."""
        told = (self._checkpoint / "offsets" / str(epoch)).read_text(encoding="utf-8").splitlines()[-1]
        for topic, parts in json.loads(told).items():
            yield from ((topic, int(number), int(end)) for number, end in parts.items())


def in_query(lake: Lake, kafka: Kafka, topic: str, batch: int, folder: Path) -> float:
    """Seconds in which a streaming query hands over the topic's messages, in batches of so many."""
    began, checkpoint = time.perf_counter(), folder / "checkpoint"
    options = {"kafka.bootstrap.servers": kafka.servers, "subscribe": topic, "startingOffsets": "earliest"}
    options |= {"includeHeaders": "true", "maxOffsetsPerTrigger": str(batch), "failOnDataLoss": "true"}
    read = lake.spark.readStream.format("kafka").options(**options, **{"kafka.isolation.level": "read_committed"})
    writer = read.load().writeStream.option("checkpointLocation", str(checkpoint))
    handed = writer.foreachBatch(Intake(lake, SecretStr(kafka.url), checkpoint).take)
    handed.trigger(availableNow=True).start().awaitTermination()
    return time.perf_counter() - began


def in_loop(lake: Lake) -> float:
    """Seconds in which the loop takes them."""
    began = time.perf_counter()
    for _ in turns(lake, [lake.table(TABLE)], "bench", threading.Event(), pace=Pace(0, 0), until_caught_up=True):
        pass
    return time.perf_counter() - began


def compared(kafka: Kafka, count: int, batch: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Both, in turns, on one topic."""
    topic = kafka.topic(PARTITIONS, "web-events")
    messages = lines(count, datetime.now(UTC).date() - timedelta(days=1))
    send(kafka.address, topic, spread(messages))
    took: dict[str, list[float]] = {"loop": [], "foreach_batch": []}
    for turn in range(rounds + 1):
        for way, seconds in took.items():
            here = folder / f"{way}-of-{batch}-{turn}"
            lake = _lake(here, kafka, batch)
            each = in_loop(lake) if way == "loop" else in_query(lake, kafka, topic, batch, here)
            positions = DeltaTable(lake.path(TABLE)).to_pyarrow_table(columns=["_partition", "_offset"])
            once = len({tuple(row.values()) for row in positions.to_pylist()})
            assert positions.num_rows == once == count, f"{way}: {positions.num_rows} rows, {once} messages, of {count}"
            if turn:  # the first one warms the engine
                seconds.append(each)
    kafka.delete(topic)
    middle = {way: statistics.median(seconds) for way, seconds in took.items()}
    return {
        "batch": batch,
        "messages": count,
        "milliseconds_of_a_batch": {way: round(each / (count / batch) * 1000) for way, each in middle.items()},
        "loop_to_foreach_batch": round(middle["loop"] / middle["foreach_batch"], 2),
        "seconds": {way: [round(each, 2) for each in seconds] for way, seconds in took.items()},
    }


def _lake(root: Path, kafka: Kafka, batch: int) -> Lake:
    settings = Settings(root=root, source_urls={"event_stream": SecretStr(kafka.url)}, engine_minutes=0)
    engine = start(settings)
    return Lake(settings, {TABLE: in_batches(declared("lakehouse")[TABLE], batch)}, lambda: engine)


def _topic(lake: Lake) -> Topic:
    topic = lake.table(TABLE).topic
    assert topic is not None
    return topic


def main(arguments: Sequence[str]) -> int:
    """Run both ways; JSON to standard output."""
    parser = argparse.ArgumentParser(prog="python -m lakehouse_tests.benchmarks foreach_batch", description=__doc__)
    parser.add_argument("--batches", type=int, nargs="*", default=[1_000, 20_000], help="messages of a batch")
    parser.add_argument("--count", type=int, default=30, help="batches")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lakehouse-bench-") as name, serving(Path(name) / "kafka") as kafka:
        report = [compared(kafka, batch * given.count, batch, given.rounds, Path(name)) for batch in given.batches]
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0
