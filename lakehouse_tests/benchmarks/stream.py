"""What streaming costs: batches with every guarantee against bare Structured Streaming from Kafka into Delta, in turns.

All of them on one warm engine, as users have it, in batches of the same size. Then how long it takes from a message's
arrival at its broker until its row can be read in `silver.transactions`, and in a table of streaming queries.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from pydantic import SecretStr
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from lakehouse.bronze.event_stream import COLUMNS
from lakehouse.catalog import declared, lake_beside
from lakehouse.delta.log import read_entry
from lakehouse.delta.opening import open_snapshot
from lakehouse.kafka.sending import send
from lakehouse.read.lake import Lake
from lakehouse.runs.attempts import retrying
from lakehouse.runs.background import BackgroundBuilds
from lakehouse.runs.stream import Pace, turns
from lakehouse.sample.generator import generate_events
from lakehouse.settings import Settings
from lakehouse.spark.session import start
from lakehouse.spark.warm import leave
from lakehouse.store import parquet
from lakehouse_tests.fixtures.engines import end_engines
from lakehouse_tests.fixtures.kafka import Kafka, serving
from lakehouse_tests.fixtures.streaming import in_batches

PARTITIONS = 2
PLACE = ("topic", "partition", "offset", "timestamp")
LATENCIES = ("silver alone", "gold beside the turns", "gold within the turns")
"""Without other tables; with all of them, as users have it; and as it is where the turns build them, too."""
PLAIN_LATENCIES = ("streaming query into bronze", "streaming queries into silver")
"""One query that parses and appends; and a second that reads its table, drops repeats and appends typed rows."""


def lines(count: int, day: date) -> Sequence[bytes]:
    """Made-up events of a day, as the web shop sends them."""
    return generate_events(day, count, 7).lines


def spread(messages: Sequence[bytes]) -> Iterator[tuple[int, None, bytes]]:
    """Messages as they are sent: to each partition in turn."""
    return ((n % PARTITIONS, None, line) for n, line in enumerate(messages))


def bare(lake: Lake, servers: str, topic: str, folder: Path, batch: int, *, parsed: bool) -> float:
    """Seconds in which Structured Streaming appends the topic's messages to a Delta table, in batches of so many.

    The bytes as they came and nothing else; or `parsed`: columns out of JSON, a digest in place of the address, a
    folder for each day, as a plain script does it, which checks nothing and sets nothing aside.
    """
    began = time.perf_counter()
    read = _messages(lake, servers, topic, maxOffsetsPerTrigger=str(batch))
    if parsed:
        writer = _appended(_parsed(read), folder / "table", "_arrival_date", "_event_date")
    else:
        writer = _appended(read.selectExpr("cast(key as string)", "cast(value as string)", *PLACE), folder / "table")
    writer.trigger(availableNow=True).start(str(folder / "table")).awaitTermination()
    return time.perf_counter() - began


def _messages(lake: Lake, servers: str, topic: str, **more: str) -> DataFrame:
    """A topic as Structured Streaming reads it, from its first message on."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest", **more}
    return lake.spark.readStream.format("kafka").options(**options).load()


def _parsed(messages: DataFrame) -> DataFrame:
    """The columns of messages, as a plain script makes them."""
    fields = ", ".join(f"{name} string" for name in COLUMNS)
    event = messages.select(F.from_json(F.col("value").cast("string"), fields).alias("event"), *PLACE)
    rows = event.select("event.*", *PLACE).withColumn("email", F.sha2(F.lower(F.trim("email")), 256))
    rows = rows.withColumn("_arrival_date", F.to_date("timestamp"))
    return rows.withColumn("_event_date", F.to_date(F.substring("event_time", 1, 10)))


def _appended(rows: DataFrame, table: Path, *partition_by: str) -> DataStreamWriter:
    writer = rows.writeStream.format("delta").option("checkpointLocation", f"{table}-checkpoint")
    return writer.partitionBy(*partition_by) if partition_by else writer


def ours(lake: Lake, batch: int, count: int) -> float:
    """Seconds in which a stream takes the topic's messages into bronze, in batches of so many."""
    source = in_batches(lake.table("bronze.event_stream"), batch)
    alone = Lake(lake.settings, {source.id: source}, lambda: lake.spark)
    began = time.perf_counter()
    took = sum(
        turn.messages
        for turn in turns(alone, [source], "bench", threading.Event(), pace=Pace(0, 0), until_caught_up=True)
    )
    assert took == count, f"{took} of {count} messages were taken"
    return time.perf_counter() - began


def lake_of(root: Path, kafka: Kafka, engines: Path, *, up_to_silver: bool = True) -> Lake:
    """The sample's tables, or those up to silver.transactions, with the stream's address, on one warm engine."""
    source = {"event_stream": SecretStr(kafka.url)}
    settings = Settings(root=root, source_urls=source, engine_minutes=10, engine_dir=engines)
    wanted = ("bronze.event_stream", "bronze.events", "bronze.online_retail", "silver.transactions")
    tables = {
        name: each
        for name, each in declared("lakehouse").items()
        if name in wanted or not (up_to_silver or each.extract)
    }
    engine = start(settings)
    return Lake(settings, tables, lambda: engine)


def throughput(kafka: Kafka, count: int, batch: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Messages a second of all three, in turns, on one topic."""
    topic = kafka.topic(PARTITIONS, "web-events")
    messages = lines(count, datetime.now(UTC).date() - timedelta(days=1))
    send(kafka.address, topic, spread(messages))
    seconds: dict[str, list[float]] = {"ours": [], "bare": [], "bare_parsed": []}
    for turn in range(rounds + 1):
        here = folder / f"batches-of-{batch}-{turn}"
        lake = lake_of(here / "root", kafka, folder / "engines")
        took = {
            "bare": bare(lake, kafka.servers, topic, here / "bare", batch, parsed=False),
            "bare_parsed": bare(lake, kafka.servers, topic, here / "bare_parsed", batch, parsed=True),
            "ours": ours(lake, batch, len(messages)),
        }
        if turn:  # the first one warms the engine
            for name, each in took.items():
                seconds[name].append(each)
    kafka.delete(topic)
    rates = {name: round(len(messages) / statistics.median(each)) for name, each in seconds.items()}
    return {
        "messages": len(messages),
        "batch": batch,
        "messages_a_second": rates,
        "ratio_to_bare": round(rates["ours"] / rates["bare"], 2),
        "ratio_to_bare_parsed": round(rates["ours"] / rates["bare_parsed"], 2),
        "seconds": {name: [round(each, 2) for each in several] for name, several in seconds.items()},
    }


def latency(kafka: Kafka, pace: int, warm: float, minutes: float, folder: Path, what: str) -> dict[str, Any]:
    """Seconds from a message's arrival to its row in silver, at a steady pace; and of the minutes in which it got warm.

    An engine's first turn takes many seconds, and what has come meanwhile is worked off: `warm` minutes are told apart.

    Args:
        kafka: where they are sent.
        pace: messages a second.
        warm: minutes at first.
        minutes: after them.
        folder: of all files.
        what: of `LATENCIES`.
    """
    topic, stop = kafka.topic(PARTITIONS, "web-events"), threading.Event()
    messages = lines(int(pace * 60 * (warm + minutes)), datetime.now(UTC).date())
    lake = lake_of(folder / what, kafka, folder / "engines", up_to_silver=what == LATENCIES[0])
    source = lake.table("bronze.event_stream")
    beside = None
    if "beside" in what:
        beside = BackgroundBuilds(lake_beside(lake), [source], "bench", Pace.refresh, retrying(stop))
    sending = threading.Thread(target=send, args=(kafka.address, topic, spread(messages), pace))
    found: dict[bool, list[float]] = {False: [], True: []}
    took: list[float] = []
    taken = 0
    builds = Counter[str]()
    sending.start()
    begins = time.time() + warm * 60
    with beside or nullcontext():
        for turn in turns(lake, [source], "bench", stop, pace=Pace(), beside=beside):
            visible = time.time()
            for at in _arrivals(lake.path(source.id), turn.taken[source.id].version, "_arrived_at"):
                found[at >= begins].append(visible - at)
            if turn.messages and visible - turn.seconds >= begins:
                took.append(turn.seconds)
                builds.update(turn.built.keys())
            taken += turn.messages
            if taken >= len(messages):
                stop.set()
    sending.join()
    kafka.delete(topic)
    return {
        "messages_a_second": pace,
        "seconds_of_a_turn": round(statistics.median(took), 2),
        "builds": dict(builds),
        **_waited(found, warm),
    }


def plain_latency(kafka: Kafka, pace: int, warm: float, minutes: float, folder: Path, what: str) -> dict[str, Any]:
    """The same of streaming queries of Spark's own, which check nothing and set nothing aside.

    A row can be read once its version is there: the time of the log's file.

    Args:
        kafka: where messages are sent.
        pace: messages a second.
        warm: minutes at first.
        minutes: after them.
        folder: of all files.
        what: of `PLAIN_LATENCIES`.
    """
    topic = kafka.topic(PARTITIONS, "web-events")
    messages = lines(int(pace * 60 * (warm + minutes)), datetime.now(UTC).date())
    lake = lake_of(folder / what, kafka, folder / "engines")
    table = folder / what / "bronze"
    parsed = _parsed(_messages(lake, kafka.servers, topic))
    queries = [_appended(parsed, table, "_arrival_date", "_event_date").start(str(table))]
    if "silver" in what:
        while not open_snapshot(table).exists:
            time.sleep(0.1)  # a stream of a table needs the table
        rows = _typed(lake.spark.readStream.format("delta").load(str(table)))
        table = folder / what / "silver"
        queries.append(_appended(rows, table, "_event_date").start(str(table)))
    begins = time.time() + warm * 60
    send(kafka.address, topic, spread(messages), pace)
    for query in queries:
        query.processAllAvailable()
        query.stop()
    kafka.delete(topic)
    found: dict[bool, list[float]] = {False: [], True: []}
    for version in range(open_snapshot(table).version + 1):
        visible = (table / "_delta_log" / f"{version:020}.json").stat().st_mtime
        for at in _arrivals(table, version, "timestamp"):
            found[at >= begins].append(visible - at)
    return {"messages_a_second": pace, **_waited(found, warm)}


def _typed(rows: DataFrame) -> DataFrame:
    """Typed rows of a stream, each event once in the hour that its state keeps."""
    typed = rows.withColumns(
        {"event_time": F.col("event_time").try_cast("timestamp"), "amount": F.col("amount").try_cast("decimal(18,2)")}
    )
    sound = typed.where("event_id IS NOT NULL AND event_time IS NOT NULL AND amount IS NOT NULL")
    return sound.withWatermark("timestamp", "1 hour").dropDuplicatesWithinWatermark(["event_id"])


def _waited(found: Mapping[bool, Sequence[float]], warm: float) -> dict[str, Any]:
    """Seconds of the messages after the minutes in which an engine gets warm, and of those within them."""
    return {"warm": _quantiles(found[True]), f"first_{warm:g}_minutes": _quantiles(found[False])}


def _quantiles(seconds: Sequence[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100)
    return {"messages": len(seconds), "p50_seconds": round(cuts[49], 2), "p99_seconds": round(cuts[98], 2)}


def _arrivals(table: Path, version: int, column: str) -> Sequence[float]:
    """When the messages of a version's batch arrived, in seconds since 1970."""
    times = [parquet.read(table / file, [column])[column] for file in read_entry(table, version, ()).added]
    return [micros / 1e6 for each in times for micros in pc.cast(each, "timestamp[us]").cast("int64").to_pylist()]


def main(arguments: Sequence[str]) -> int:
    """Run both; JSON to standard output."""
    parser = argparse.ArgumentParser(prog="python -m lakehouse_tests.benchmarks stream", description=__doc__)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument(
        "--batches", type=int, nargs="*", default=[20_000, 250_000], help="messages of a batch, both sides"
    )
    parser.add_argument("--pace", type=int, default=1000, help="messages a second")
    parser.add_argument("--warm", type=float, default=2, help="minutes in which the engine gets warm, told apart")
    parser.add_argument("--minutes", type=float, default=2, help="minutes after them")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lakehouse-bench-") as name, serving(Path(name) / "kafka") as kafka:
        folder = Path(name)
        try:
            report = {
                "throughput": [
                    throughput(kafka, given.messages, batch, given.rounds, folder) for batch in given.batches
                ],
                "latency": {
                    what: measure(kafka, given.pace, given.warm, given.minutes, folder, what)
                    for measure, whats in ((latency, LATENCIES), (plain_latency, PLAIN_LATENCIES))
                    for what in whats
                },
            }
        finally:
            leave()
            end_engines(Settings(engine_dir=folder / "engines"))
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0
