"""What streaming costs: batches with every guarantee against bare Structured Streaming from Kafka into Delta, in turns.

Then how long it takes from a message's arrival at its broker until its row can be read in `silver.transactions`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from pydantic import SecretStr

from lakehouse.build.build import build
from lakehouse.catalog import declared
from lakehouse.kafka.sending import send
from lakehouse.read.lake import Lake
from lakehouse.runs.stream import Pace, turns
from lakehouse.sample.generator import generate_events
from lakehouse.settings import Settings
from lakehouse.spark.session import start
from lakehouse.store import parquet
from lakehouse_tests.fixtures.kafka import Kafka, serving

PARTITIONS = 2


def lines(count: int, day: date) -> Sequence[bytes]:
    """Made-up events of a day, as the web shop sends them."""
    return generate_events(day, count, 7).lines


def plain(lake: Lake, servers: str, topic: str, folder: Path) -> float:
    """Seconds that Structured Streaming needs to append the topic's messages to a Delta table, nothing else."""
    began = time.perf_counter()
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    read = lake.spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger="250000").load()
    rows = read.selectExpr("cast(key as string)", "cast(value as string)", "topic", "partition", "offset", "timestamp")
    writer = rows.writeStream.format("delta").option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start(str(folder / "table")).awaitTermination()
    return time.perf_counter() - began


def lake_of(root: Path, kafka: Kafka) -> Lake:
    """The sample's tables up to silver.transactions, with the stream's address."""
    source = {"event_stream": SecretStr(kafka.url)}
    settings = Settings(root=root, source_urls=source, engine_minutes=0)
    wanted = ("bronze.event_stream", "bronze.events", "bronze.online_retail", "silver.transactions")
    tables = {name: each for name, each in declared("lakehouse").items() if name in wanted}
    engine = start(settings)
    return Lake(settings, tables, lambda: engine)


def throughput(kafka: Kafka, count: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Rows a second of both, in turns, on one topic."""
    topic = kafka.topic(PARTITIONS, "web-events")
    messages = lines(count, datetime.now(UTC).date() - timedelta(days=1))
    send(kafka.address, topic, ((n % PARTITIONS, None, line) for n, line in enumerate(messages)))
    seconds: dict[str, list[float]] = {"ours": [], "plain": []}
    for turn in range(rounds + 1):
        lake = lake_of(folder / f"root{turn}", kafka)
        bare = plain(lake, kafka.servers, topic, folder / f"plain{turn}")
        began = time.perf_counter()
        result = build(lake, lake.table("bronze.event_stream"), [], run_id="bench")
        mine = time.perf_counter() - began
        assert result.facts["batch/rows"] == len(messages)
        if turn:  # the first one warms the engine
            seconds["ours"].append(mine)
            seconds["plain"].append(bare)
    kafka.delete(topic)
    rates = {name: round(len(messages) / statistics.median(each)) for name, each in seconds.items()}
    return {"messages": len(messages), "rows_a_second": rates, "ratio": round(rates["ours"] / rates["plain"], 2),
            "seconds": {name: [round(each, 2) for each in several] for name, several in seconds.items()}}  # fmt: skip


def latency(kafka: Kafka, pace: int, warm: float, minutes: float, folder: Path) -> dict[str, Any]:
    """Seconds from a message's arrival to its row in silver, at a steady pace; and of the minutes in which it got warm.

    An engine's first turn takes many seconds, and what has come meanwhile is worked off: `warm` minutes are told apart.
    """
    topic, stop = kafka.topic(PARTITIONS, "web-events"), threading.Event()
    messages = lines(int(pace * 60 * (warm + minutes)), datetime.now(UTC).date())
    lake = lake_of(folder / "latency", kafka)
    source = lake.table("bronze.event_stream")
    sending = threading.Thread(
        target=send,
        args=(kafka.address, topic, ((n % PARTITIONS, None, line) for n, line in enumerate(messages)), pace),
    )
    found: dict[bool, list[float]] = {False: [], True: []}
    took: list[float] = []
    taken = 0
    sending.start()
    begins = time.time() + warm * 60
    for turn in turns(lake, [source], "bench", stop, pace=Pace(0, 0)):
        visible = time.time()
        for at in _arrivals(lake, turn.taken[source.id].version):
            found[at >= begins].append(visible - at)
        if turn.messages and visible - turn.seconds >= begins:
            took.append(turn.seconds)
        taken += turn.messages
        if taken >= len(messages):
            stop.set()
    sending.join()
    kafka.delete(topic)
    return {
        "messages_a_second": pace,
        "seconds_of_a_turn": round(statistics.median(took), 2),
        "warm": _quantiles(found[True]),
        f"first_{warm:g}_minutes": _quantiles(found[False]),
    }


def _quantiles(seconds: Sequence[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100)
    return {"messages": len(seconds), "p50_seconds": round(cuts[49], 2), "p99_seconds": round(cuts[98], 2)}


def _arrivals(lake: Lake, version: int) -> Sequence[float]:
    """When the messages of a version's batch arrived, in seconds since 1970."""
    path = lake.path("bronze.event_stream")
    entry = (path / "_delta_log" / f"{version:020}.json").read_text(encoding="utf-8")
    files = [each["add"]["path"] for line in entry.splitlines() if "add" in (each := json.loads(line))]
    times = [parquet.read(path / file, ["_arrived_at"])["_arrived_at"] for file in files]
    return [micros / 1e6 for column in times for micros in pc.cast(column, "int64").to_pylist()]


def main(arguments: Sequence[str]) -> int:
    """Run both; JSON to standard output."""
    parser = argparse.ArgumentParser(prog="python -m lakehouse_tests.benchmarks stream", description=__doc__)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--pace", type=int, default=1000, help="messages a second")
    parser.add_argument("--warm", type=float, default=2, help="minutes in which the engine gets warm, told apart")
    parser.add_argument("--minutes", type=float, default=2, help="minutes after them")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lakehouse-bench-") as name, serving(Path(name) / "kafka") as kafka:
        folder = Path(name)
        report = {
            "throughput": throughput(kafka, given.messages, given.rounds, folder),
            "latency": latency(kafka, given.pace, given.warm, given.minutes, folder),
        }
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0
