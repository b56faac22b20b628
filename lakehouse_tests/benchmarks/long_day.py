"""What a turn of a stream costs when its day has many rows already: late in the day, or where much comes.

A day is filled, and then a few messages at a time come to it. Small files add up meanwhile: merging them must take no
turn much longer than another.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from lakehouse.kafka.sending import send
from lakehouse.read.lake import Lake
from lakehouse.runs.stream import Pace, Turn, turns
from lakehouse.spark.warm import leave
from lakehouse_tests.benchmarks.stream import PARTITIONS, in_batches, lake_of, lines, spread
from lakehouse_tests.fixtures.kafka import Kafka, serving

BATCH = 200_000


def few_at_a_time(kafka: Kafka, lake: Lake, rows: int, number: int, each: int) -> Iterator[Turn]:
    """The turns that took a few messages, once the day had so many.

    Args:
        kafka: where they are sent.
        lake: the sample's tables up to silver.
        rows: of the day, at first.
        number: of turns.
        each: messages of a turn.
    """
    topic, stop, today = kafka.topic(PARTITIONS, "web-events"), threading.Event(), datetime.now(UTC).date()
    source = in_batches(lake.table("bronze.event_stream"), BATCH)
    lake.tables = {**lake.tables, source.id: source}
    send(kafka.address, topic, spread(lines(rows, today)))
    more = (_named(line, n) for n, line in enumerate(lines(number * each, today)))
    is_full = False
    for turn in turns(lake, [source], "bench", stop, pace=Pace(0, 3600)):
        if is_full and turn.messages:
            yield turn
        if turn.left:
            continue
        is_full, piece = True, list(islice(more, each))
        if piece:
            send(kafka.address, topic, spread(piece))
        else:
            stop.set()


def _named(line: bytes, number: int) -> bytes:
    """An event of its own: those of the day have the ids of the same generator."""
    try:
        return json.dumps({**json.loads(line), "event_id": f"more-{number}"}).encode()
    except ValueError:
        return line


def main(arguments: Sequence[str]) -> int:
    """Print the seconds of the turns as JSON: half of them, and the slowest, at first and at last."""
    parser = argparse.ArgumentParser(prog="python -m lakehouse_tests.benchmarks long_day", description=__doc__)
    parser.add_argument("--rows", type=int, default=600_000, help="of the day, before the turns that are timed")
    parser.add_argument("--turns", type=int, default=120)
    parser.add_argument("--each", type=int, default=100, help="messages of a turn")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lakehouse-bench-") as name, serving(Path(name) / "kafka") as kafka:
        lake = lake_of(Path(name), kafka, Path(name) / "engines")
        took = [each.seconds for each in few_at_a_time(kafka, lake, given.rows, given.turns, given.each)]
        leave()
    warm = took[len(took) // 4 :]
    report: dict[str, Any] = {
        "rows": given.rows,
        "turns": len(took),
        "half_of_them": round(statistics.median(warm), 2),
        "slowest": round(max(warm), 2),
        "slowest_to_half": round(max(warm) / statistics.median(warm), 2),
        "last_third_to_first": round(
            statistics.median(warm[-len(warm) // 3 :]) / statistics.median(warm[: len(warm) // 3]), 2
        ),
    }
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0
