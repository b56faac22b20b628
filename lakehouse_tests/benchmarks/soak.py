"""Whether a stream that runs and runs stays as it is: memory, open files, logs and time of its turns, turn after turn.

`lakehouse stream run` is started as users start it, on a broker of its own. Each turn is given the events of the next half
hour of event time, so days pass in minutes. After each turn the process and its JVM are looked at. At the end the first
third of the turns, without those in which the engine gets warm, is compared with the last third: more memory, or more
processor time for a turn, than the bounds allow is a failure, as is an event that is not in silver once.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from lakehouse.kafka.sending import send
from lakehouse.sample.generator import generate_events
from lakehouse_tests.benchmarks.stream import PARTITIONS, spread
from lakehouse_tests.fixtures.kafka import Kafka, serving

PIECES = 48  # turns of a day of events
LEAD = timedelta(days=21)  # between the first event and now: an event of the future moves no watermark
HEAP_EVERY = 10  # turns between two looks at what the JVM's collector leaves
MB = 10**6
# Last third by first third, at most. A JVM's heap fills up before it is cleaned, so its resident memory says little
# early on; what is left after a collection says whether something is kept.
BOUNDS = {"python_mb": 1.25, "jvm_mb": 1.4, "quick_heap_mb": 1.25, "open_files": 1.25, "quick_cpu_seconds": 1.3}
# Told besides by their 10th percentile (`quick_`), which is of turns that nothing is built beside: features that look
# back on seven days have more to read with each day, until the seven are full.
QUICK = ("seconds", "cpu_seconds", "heap_mb")


@dataclass(frozen=True)
class Seen:
    """The stream after a turn.

    Attributes:
        seconds: of the turn, as the stream says.
        cpu_seconds: that process and JVM have used since the turn before.
        python_mb, jvm_mb: resident memory.
        heap_mb: of the JVM after a full collection; None where nobody asked.
        open_files: of both.
        log_mb, commits, files: of all tables: their logs, their versions, the files that these name.
    """

    seconds: float
    cpu_seconds: float
    python_mb: float
    jvm_mb: float
    heap_mb: float | None
    open_files: int
    log_mb: float
    commits: int
    files: int


class Watched:
    """A process and its JVM, as Linux tells of them."""

    def __init__(self, pid: int, root: Path) -> None:
        self._pid, self._root, self._jvm, self._used = pid, root, 0, 0.0

    def look(self, seconds: float, *, heap: bool) -> Seen:
        """At both, and at what they have written."""
        self._jvm = self._jvm or next(_children(self._pid, "java"))
        both = (self._pid, self._jvm)
        used, before = sum(map(_cpu, both)), self._used
        folders = list((self._root / "tables").glob("*/*/_delta_log"))  # what is staged below comes and goes meanwhile
        tables = [DeltaTable(path.parent) for path in folders]
        logs = [each.stat().st_size for path in folders for each in path.iterdir()]
        seen = Seen(
            seconds, round(used - before, 2), _resident(self._pid), _resident(self._jvm),
            _heap(self._jvm) if heap else None, sum(1 for pid in both for _ in Path(f"/proc/{pid}/fd").iterdir()),
            round(sum(logs) / MB, 3), sum(each.version() for each in tables), sum(len(each.file_uris()) for each in tables),
        )  # fmt: skip
        self._used = sum(map(_cpu, both))  # a look at the heap is not the stream's
        return seen


def _children(pid: int, name: str) -> Iterator[int]:
    """A process's descendants of a name."""
    for child in (int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        if Path(f"/proc/{child}/comm").read_text().strip() == name:
            yield child
        yield from _children(child, name)


def _resident(pid: int) -> float:
    [line] = [each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmRSS")]
    return round(int(line.split()[1]) * 1024 / MB, 1)


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _heap(jvm: int) -> float | None:
    """What a full collection leaves; None where Java's tools are not there."""
    try:
        told = subprocess.run(["jcmd", str(jvm), "GC.class_histogram"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return round(int(told.stdout.split()[-1]) / MB, 1)  # the line with the total


def pieces(per_turn: int) -> Iterator[Sequence[bytes]]:
    """Events of half an hour, then of the next one, for as long as there is time behind us."""
    first = datetime.now(UTC).date() - LEAD
    for day in range(LEAD.days):
        lines = generate_events(first + timedelta(days=day), per_turn * PIECES, day).lines
        yield from (lines[n : n + per_turn] for n in range(0, len(lines), per_turn))


def soak(kafka: Kafka, root: Path, per_turn: int, minutes: float, most: int) -> tuple[list[Seen], int, int]:
    """What was seen after each turn, how many events were sent, and how the stream ended.

    Args:
        kafka: where they are sent.
        root: of the lakehouse.
        per_turn: events of a turn.
        minutes: after which it is told to stop.
        most: events after which it is.
    """
    topic, seen, sent, taken = kafka.topic(PARTITIONS, "web-events"), list[Seen](), 0, 0
    command = [sys.executable, "-W", "ignore", "-m", "lakehouse.cli", "stream", "run", "--json", "--pause", "0.2"]
    more = {"ROOT": str(root), "TABLES": "lakehouse", "EVENT_STREAM_URL": kafka.url, "ENGINE_MINUTES": "0"}
    more |= {"SPARK_MEMORY": os.environ.get("LAKEHOUSE_SPARK_MEMORY", "1g")}
    environment = os.environ | {f"LAKEHOUSE_{name}": value for name, value in more.items()}
    left, ends = pieces(per_turn), time.monotonic() + minutes * 60
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as stream:
        assert stream.stdout is not None
        watched = Watched(stream.pid, root)
        for turn in map(json.loads, stream.stdout):
            taken += turn["taken"]["bronze.event_stream"]["messages"]
            if taken < sent:  # it looked before all of the events were there
                continue
            if sent:
                seen.append(watched.look(turn["seconds"], heap=len(seen) % HEAP_EVERY == 0))
                sys.stderr.write(f"turn {len(seen)}: {json.dumps(asdict(seen[-1]))}\n")
            piece = next(left, None)
            if piece is None or time.monotonic() > ends or sent >= most:
                stream.send_signal(signal.SIGTERM)
                break
            sent += send(kafka.address, topic, spread(piece))
        for _ in stream.stdout:  # what it still says
            pass
    return seen, sent, stream.returncode


def compared(seen: Sequence[Seen]) -> dict[str, Any]:
    """Medians of the first and the last third, and how they compare; the first tenth is to get warm."""
    warm = seen[max(1, len(seen) // 10) :]
    third = max(1, len(warm) // 3)
    found = {}
    for name in asdict(warm[0]):
        thirds = [
            sorted(value for each in part if (value := getattr(each, name)) is not None)
            for part in (warm[:third], warm[-third:])
        ]
        if not all(thirds):
            continue
        found[name] = _ratio(*(round(statistics.median(each), 3) for each in thirds))
        if name in QUICK:
            found[f"quick_{name}"] = _ratio(*(each[len(each) // 10] for each in thirds))
    return found


def _ratio(first: float, last: float) -> dict[str, Any]:
    return {"first": first, "last": last, "ratio": round(last / first, 3) if first else None}


def grown(figures: dict[str, Any]) -> list[str]:
    """What is beyond its bound."""
    return [
        f"{name}: {figures[name]['last']} after {figures[name]['first']}"
        for name, bound in BOUNDS.items()
        if name in figures and figures[name]["ratio"] is not None and figures[name]["ratio"] > bound
    ]


def main(arguments: Sequence[str]) -> int:
    """Stream and look; JSON to standard output, each turn to standard error. Ends with 1 where something grew."""
    parser = argparse.ArgumentParser(prog="python -m lakehouse_tests.benchmarks soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--events", type=int, default=10**9, help="most events")
    parser.add_argument("--per-turn", type=int, default=1000, help="events of half an hour, which are a turn's")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lakehouse-soak-") as name, serving(Path(name) / "kafka") as kafka:
        root = Path(name) / "root"
        seen, sent, code = soak(kafka, root, given.per_turn, given.minutes, given.events)
        silver = DeltaTable(root / "tables" / "silver" / "transactions").to_pyarrow_table(columns=["event_id"])
        aside = DeltaTable(root / "tables" / "silver" / "transactions_quarantine").to_pyarrow_table(
            columns=["event_id"]
        )
    figures = compared(seen)
    rows = {
        "sent": sent,
        "in_silver": silver.num_rows,
        "once": len(set(silver["event_id"].to_pylist())),
        "aside": aside.num_rows,
    }
    report = {
        "turns": len(seen),
        "hours_of_events": len(seen) * 24 / PIECES,
        "events": rows,
        "thirds": figures,
        "grown": grown(figures),
        "exit_code": code,
        "every_tenth": [asdict(each) for each in islice(seen, 0, None, HEAP_EVERY)],
    }
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    exact = rows["once"] == rows["in_silver"] == sent - rows["aside"]
    return 0 if exact and not report["grown"] and code == 0 else 1
