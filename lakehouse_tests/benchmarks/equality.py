"""One definition serves files and messages, at full size: three lakes are built from the same events and compared.

By files in one range; by the files again, a few days at a time in random order; and by a stream of shuffled, repeated
and late messages, which is killed at random points. Rows of every table behind bronze are compared, as counts and
hashes. What only a stream knows, when hours were closed and what corrected them since, is left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from pathlib import Path

from pydantic import SecretStr

from lakehouse.build.build import build
from lakehouse.build.stale import stale_days
from lakehouse.catalog import declared
from lakehouse.contracts import Table
from lakehouse.kafka.sending import send
from lakehouse.read.lake import Lake, table_path
from lakehouse.runs.stream import Pace, turns
from lakehouse.sample.disorder import Disorder, disordered, message_of, partition_of
from lakehouse.sample.web_events import made_up_lines, retail_lines
from lakehouse.settings import Settings
from lakehouse.spark.session import start
from lakehouse_tests.fixtures.kafka import Kafka, serving
from lakehouse_tests.fixtures.making import rows_of
from lakehouse_tests.fixtures.streaming import in_batches

PARTITIONS, MOST, MADE_UP_DAYS = 3, 25_000, 5
TOPIC, SOURCE = "web-events", "event_stream"
KILLED_AT = ("before-stage", "after-stage", "before-commit", "after-commit")  # of every build
KILLED_IN = ("bronze.event_stream", "silver.transactions", "silver.sessions", "gold.daily_revenue")
NOT_COMPARED = {"_ingested_run", "_code_version", "closed_at_watermark", "corrections"}
EMPTY = (0, f"{0:064x}")
DISORDER = Disorder(lateness=0.02, late_by=timedelta(days=3), shuffle=500, duplicates=0.02)


def main(arguments: Sequence[str]) -> int:
    """Build all three and compare them; JSON to standard output, progress to standard error."""
    parser = argparse.ArgumentParser(prog="python -m lakehouse_tests.benchmarks equality", description=__doc__)
    parser.add_argument("--source", type=Path, help="folder of Online Retail files; default: made-up events")
    parser.add_argument("--days", type=int, help="only the first ones")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stream", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.stream:
        return _stream(*given.stream)
    os.environ["LAKEHOUSE_PII_KEY"] = "tokens are the same in all three"
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory(prefix="lakehouse-bench-") as name:
        folder = Path(name)
        days = {day: list(lines) for day, lines in _days(given.source, given.days)}
        events = sum(map(len, days.values()))
        for root in (folder / "range", folder / "shuffled"):
            _land(root, days)
        with _timed("files, in one range"):
            _by_files(folder / "range", [list(days)])
        with _timed("files, in random order"):
            order = chance.sample(list(days), len(days))
            _by_files(folder / "shuffled", [order[n : n + 20] for n in range(0, len(order), 20)])
        with _timed("stream"), serving(folder / "kafka") as kafka:
            lines = [line for each in days.values() for line in each]
            killed = _by_stream(folder / "stream", kafka, lines, chance, given.kills)
        wanted = _content(folder / "range")
        found = {way: _content(folder / way) for way in ("shuffled", "stream")}
    names = sorted(set().union(wanted, *found.values()))  # one that has no rows may not be there
    differing = {way: [t for t in names if each.get(t, EMPTY) != wanted.get(t, EMPTY)] for way, each in found.items()}
    report = {"events": events, "days": len(days), "killed": killed, "rows": {t: n for t, (n, _) in wanted.items()},
              "differing": differing, "equal": not any(differing.values())}  # fmt: skip
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0 if report["equal"] and len(killed) == given.kills else 1


def _days(source: Path | None, most: int | None) -> Iterator[tuple[date, Iterator[bytes]]]:
    most = most or (MADE_UP_DAYS if source is None else sys.maxsize)
    last = datetime.now(UTC).date() - timedelta(days=2)  # messages of years ago are taken for wrong clocks
    if source is None:
        lines = made_up_lines(last - timedelta(days=most - 1), 2000, 7)
    else:
        newest = max(date.fromisoformat(each.name[:10]) for each in source.glob("????-??-??.csv*"))
        lines = retail_lines(source, shift=(last - newest).days)
    for number, (day, several) in enumerate(groupby(lines, key=_day_of)):
        if number == most:
            return
        yield day, several


def _day_of(line: bytes) -> date:
    return date.fromisoformat(json.loads(line)["event_time"][:10])


def _land(root: Path, days: Mapping[date, Sequence[bytes]]) -> None:
    for day, lines in days.items():
        path = root / "landing" / "events" / str(day) / "events.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"\n".join(lines) + b"\n")


@contextmanager
def _timed(what: str) -> Iterator[None]:
    """Says how long a block took."""
    began = time.perf_counter()
    yield
    sys.stderr.write(f"{what}: {time.perf_counter() - began:.0f} s\n")


def _tables() -> dict[str, Table]:
    """The sample's, but old events are no late ones: all of them arrive today."""
    found = dict(declared("lakehouse"))
    found["silver.transactions"] = replace(found["silver.transactions"], allowed_lateness=None)
    found["bronze.event_stream"] = in_batches(found["bronze.event_stream"], MOST)
    return found


def _lake(root: Path, url: str = "") -> Lake:
    urls = {SOURCE: SecretStr(url)} if url else {}
    settings = Settings(root=root, source_urls=urls, engine_minutes=0)
    return Lake(settings, _tables(), lambda: start(settings))


def _by_files(root: Path, chunks: Sequence[Sequence[date]]) -> None:
    """Each chunk through all tables; then what later chunks have made stale, until nothing is."""
    lake = _lake(root)
    for chunk in chunks:
        for table in lake.tables.values():
            build(lake, table, chunk, run_id="bench")
    while any(stale := [(table, days) for table in lake.tables.values() if (days := _stale(lake, table))]):
        for table, days in stale:
            build(lake, table, days, run_id="bench")
    lake.spark.stop()


def _stale(lake: Lake, table: Table) -> list[date]:
    return [] if table.topic else list(stale_days(lake, table))


def _by_stream(root: Path, kafka: Kafka, lines: Sequence[bytes], chance: random.Random, kills: int) -> list[str]:
    """Send and stream one portion after the other, each to a stream of its own; returns where those were killed."""
    kafka.topic(PARTITIONS, TOPIC)
    messages = list(disordered(map(message_of, lines), DISORDER, chance.randrange(1 << 30)))
    points = [f"{chance.choice(KILLED_IN)}:{chance.choice(KILLED_AT)}" for _ in range(kills)]
    each = -(-len(messages) // (kills + 1))
    killed = []
    for number, point in enumerate([*points, ""]):
        portion = messages[number * each : (number + 1) * each]
        send(kafka.address, TOPIC, ((partition_of(m, PARTITIONS)[0], m.key, m.value) for m in portion))
        # In which turn of those that the portion takes at least; the first builds what the killed one has left, too.
        turn = str(chance.randint(1, max(1, len(portion) // MOST)))
        command = [sys.executable, "-W", "ignore", "-m", "lakehouse_tests.benchmarks", "equality", "--stream"]
        done = subprocess.run([*command, str(root), kafka.url, point, turn], check=False)
        if done.returncode not in (0, -signal.SIGKILL):
            sys.exit(f"the stream ended with {done.returncode}")
        killed += [point] if done.returncode else []
        sys.stderr.write(f"{point or 'to the end'}: {'killed' if done.returncode else 'ended'}\n")
    return killed


def _stream(root: str, url: str, point: str, in_turn: str) -> int:
    """Stream all there is, or be killed at a point of a turn."""
    lake = _lake(Path(root), url)
    source = lake.table("bronze.event_stream")
    if in_turn == "1":
        os.environ["LAKEHOUSE_FAILPOINT"] = point
    for turn in turns(lake, [source], "bench", threading.Event(), pace=Pace(0), until_caught_up=True):
        sys.stderr.write(f"turn {turn.number}: {turn.messages} messages, {turn.seconds:.0f} s\n")
        for day, why in turn.failed.items():
            sys.stderr.write(f"  {day} was not published: {why}\n")
        if turn.number + 1 == int(in_turn):
            os.environ["LAKEHOUSE_FAILPOINT"] = point
    lake.spark.stop()
    return 0


def _content(root: Path) -> dict[str, tuple[int, str]]:
    """Of each table behind bronze how many rows, and a hash of them in whatever order they are."""
    found = {}
    for table in declared("lakehouse").values():
        path = table_path(root, table.id)
        if table.layer == "bronze" or table.id == "silver.order_status" or not path.exists():
            continue
        rows = rows_of(path)
        each = (repr(sorted((k, v) for k, v in row.items() if k not in NOT_COMPARED)) for row in rows)
        total = sum(int.from_bytes(hashlib.sha256(text.encode()).digest(), "big") for text in each)
        found[table.id] = (len(rows), f"{total % 2**256:064x}")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
