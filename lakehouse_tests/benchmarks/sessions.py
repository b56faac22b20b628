"""Sessions of a stream, two ways: built again from published events, and held open in Spark's own state store.

The same messages in the same batches. `silver.sessions` is built again for the days that a batch touched. The other way is
a streaming query: `session_window` on RocksDB with changelog checkpoints, appended to Delta; its time includes reading
Kafka, so ours does too. Each side has an engine of its own, and the query's process is killed at random times as well.
In the end both are compared with one plain computation over all events.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.catalog import declared
from lakehouse.kafka.sending import send
from lakehouse.read.lake import Lake, table_path
from lakehouse.runs.stream import Pace, turns
from lakehouse.sample.disorder import Disorder, disordered, message_of, partition_of
from lakehouse.sample.generator import generate_events
from lakehouse.settings import Settings
from lakehouse.silver.sessions import PAUSE
from lakehouse.spark.session import start
from lakehouse_tests.fixtures.kafka import serving
from lakehouse_tests.fixtures.making import rows_of
from lakehouse_tests.fixtures.streaming import in_batches

PARTITIONS, TOPIC, SOURCE = 2, "web-events", "event_stream"
WANTED = ("bronze.event_stream", "bronze.events", "bronze.online_retail", "silver.transactions", "silver.sessions")
WATERMARK = "1 hour"  # that the query waits for late events; the table waits for as long as its contract says
STORE = {
    "spark.sql.streaming.stateStore.providerClass":
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
}  # fmt: skip
Session = tuple[str, int, int, int]
"""User, first and last event in microseconds, number of events."""


def main(arguments: Sequence[str]) -> int:
    """Run both ways; JSON to standard output."""
    parser = argparse.ArgumentParser(prog="python -m lakehouse_tests.benchmarks sessions", description=__doc__)
    parser.add_argument("--days", type=int, default=4)
    parser.add_argument("--events", type=int, default=20_000, help="events of a day")
    parser.add_argument("--batch", type=int, default=2_000, help="messages")
    parser.add_argument("--late", type=float, default=0.01, help="share of events that come late, by up to a day")
    parser.add_argument("--kills", type=int, default=3, help="of the query's process; ours: make bench ARGS=equality")
    parser.add_argument("--query", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.query:
        return query(*given.query)
    first = datetime.now(UTC).date() - timedelta(days=given.days + 1)
    lines = [x for n in range(given.days) for x in generate_events(first + timedelta(days=n), given.events, n).lines]
    disorder = Disorder(lateness=given.late, late_by=timedelta(days=1), shuffle=200)
    messages = list(disordered(map(message_of, lines), disorder, 1))
    wanted = plain(lines)
    with tempfile.TemporaryDirectory(prefix="lakehouse-bench-") as name, serving(Path(name) / "kafka") as kafka:
        folder = Path(name)
        kafka.topic(PARTITIONS, TOPIC)
        send(kafka.address, TOPIC, ((partition_of(m, PARTITIONS)[0], m.key, m.value) for m in messages))
        report = {
            "events": len(lines),
            "batch": given.batch,
            "sessions": len(wanted),
            "built_again": ours(folder / "ours", kafka.url, given.batch, wanted),
            "state_store": theirs(folder / "theirs", kafka.servers, given.batch, wanted, 0),
            "state_store_killed": theirs(folder / "killed", kafka.servers, given.batch, wanted, given.kills),
        }
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0


def plain(lines: Iterable[bytes]) -> Counter[Session]:
    """The sessions of all events, without an engine; none of the made-up ones lasts for nearly a day."""
    by_user: dict[str, list[int]] = {}
    for event in map(json.loads, lines):
        if event["user_id"]:
            by_user.setdefault(event["user_id"], []).append(_micros(datetime.fromisoformat(event["event_time"])))
    found: Counter[Session] = Counter()
    for user, times in by_user.items():
        times.sort()
        begun, last, events = times[0], times[0], 0
        for moment in times:
            if moment > last + PAUSE // timedelta(microseconds=1):
                found[user, begun, last, events] += 1
                begun, events = moment, 0
            last, events = moment, events + 1
        found[user, begun, last, events] += 1
    return found


def ours(root: Path, url: str, batch: int, wanted: Counter[Session]) -> dict[str, Any]:
    """The stream of the project into `silver.sessions`, which is built in every turn."""
    tables = {name: each for name, each in declared("lakehouse").items() if name in WANTED}
    # All of them arrive now, so old ones would count as late ones, which wait for somebody to let them in.
    tables["silver.transactions"] = replace(tables["silver.transactions"], allowed_lateness=None)
    source = in_batches(tables["bronze.event_stream"], batch)
    tables[source.id] = source
    settings = Settings(root=root, source_urls={SOURCE: SecretStr(url)}, engine_minutes=0)
    lake = Lake(settings, tables, lambda: start(settings))
    took, sessions, pace = list[float](), list[float](), Pace(0, refresh=0)
    for turn in turns(lake, [source], "bench", threading.Event(), pace=pace, until_caught_up=True):
        if turn.messages:
            took.append(turn.seconds)
            built = turn.built.get("silver.sessions")
            sessions.append(sum(built.seconds.values()) if built else 0.0)
    lake.spark.stop()
    return _figures(took, table_path(root, "silver.sessions"), wanted) | {"of_it_sessions": _median(sessions)}


def theirs(folder: Path, servers: str, batch: int, wanted: Counter[Session], kills: int) -> dict[str, Any]:
    """The query in a process of its own, killed so often and begun again from its checkpoint."""
    chance, killed = random.Random(kills), 0
    folder.mkdir()
    command = [sys.executable, "-W", "ignore", "-m", "lakehouse_tests.benchmarks", "sessions", "--query"]
    while True:
        process = subprocess.Popen([*command, str(folder), servers, TOPIC, str(batch)])
        if killed < kills:
            _until_it_goes_on(folder, process)
            time.sleep(chance.uniform(1, 6))
            if process.poll() is None:
                process.kill()
                killed += 1
        if process.wait() == 0:
            break
    progress = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
    states = [each["stateOperators"][0] for each in progress if each["stateOperators"]]
    checkpoint = sum(each.stat().st_size for each in (folder / "checkpoint").rglob("*") if each.is_file())
    took = [each["durationMs"]["triggerExecution"] / 1000 for each in progress if each["numInputRows"]]
    return _figures(took, folder / "table", wanted) | {
        "killed": killed,
        "state_rows_most": max(each["numRowsTotal"] for each in states),
        "late_rows_dropped": sum(each["numRowsDroppedByWatermark"] for each in states),
        "checkpoint_mb": round(checkpoint / 1e6, 1),
    }


def query(folder: str, servers: str, topic: str, batch: str) -> int:
    """The streaming query, until it has taken what is there."""
    settings = Settings(root=Path(folder) / "root", engine_minutes=0, spark_config=STORE)
    spark = start(settings)
    out = Path(folder)
    running = (
        sessions_of(spark, servers, topic, batch)
        .writeStream.format("delta").outputMode("append").trigger(availableNow=True)
        .option("checkpointLocation", str(out / "checkpoint")).start(str(out / "table"))
    )  # fmt: skip
    told = -1
    with (out / "progress.jsonl").open("a") as file:
        while True:
            time.sleep(0.2)
            ended = not running.isActive
            for each in running.recentProgress:
                if each["batchId"] > told:
                    told = each["batchId"]
                    file.write(json.dumps(json.loads(each.json)) + "\n")
                    file.flush()
            if ended:
                break
    running.awaitTermination()  # raises what it ended with
    spark.stop()
    return 0


def sessions_of(spark: SparkSession, servers: str, topic: str, batch: str) -> DataFrame:
    """What the query is: as plain a script as there can be, for events that come once."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    read = spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger=batch).load()
    event = F.from_json(F.col("value").cast("string"), "user_id string, event_time timestamp")
    rows = read.select(event.alias("event")).select("event.*").where("user_id IS NOT NULL")
    gap = f"{PAUSE // timedelta(microseconds=1) + 1} microseconds"  # one pause long is still the same session
    return (
        rows.withWatermark("event_time", WATERMARK)
        .groupBy(F.session_window("event_time", gap), "user_id")
        .agg(F.min("event_time").alias("session_start"), F.max("event_time").alias("session_end"),
             F.count(F.lit(1)).alias("events"))
        .drop("session_window")
    )  # fmt: skip


def _until_it_goes_on(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """Until the process has done a batch."""
    log = folder / "progress.jsonl"
    before = log.stat().st_size if log.exists() else 0
    while process.poll() is None and (not log.exists() or log.stat().st_size == before):
        time.sleep(0.1)


def _figures(took: Sequence[float], table: Path, wanted: Counter[Session]) -> dict[str, Any]:
    found: Counter[Session] = Counter(
        (str(row["user_id"]), _micros(row["session_start"]), _micros(row["session_end"]), int(row["events"]))
        for row in rows_of(table)
    )
    return {
        "batches": len(took),
        "seconds_of_a_batch": _median(took),
        "sessions_right": (found & wanted).total(),
        "sessions_wrong": (found - wanted).total(),
        "sessions_missing": (wanted - found).total(),
        "events_missing": sum(n * each[3] for each, n in wanted.items())
        - sum(n * each[3] for each, n in found.items()),
    }


def _median(seconds: Sequence[float]) -> float:
    return round(statistics.median(seconds[len(seconds) // 3 :]), 2)  # the first ones warm the engine


def _micros(at: datetime) -> int:
    return (at.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
