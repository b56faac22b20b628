"""kill -9 of a stream while a batch without a message closes hours: only the watermark has moved.

Such a batch changes no row of silver. What it does is one entry in bronze's log, and a build of days that nobody sent
anything for: a kill between the two must not leave hours open, and none may be closed by another watermark.
"""

from __future__ import annotations

import json
import shutil
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakehouse.build.intake.closings import closings_of
from lakehouse.build.intake.ends import Ends, ends_of
from lakehouse.delta.failpoints import POINTS
from lakehouse.delta.opening import open_snapshot
from lakehouse.read.lake import table_path
from lakehouse_tests.faults.laboratory import KILLED, EngineProcess, Laboratory
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.fixtures.making import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.crash]
BRONZE, SILVER, WINDOWS = "bronze.event_stream", "silver.transactions", "gold.event_windows"
TABLES = ("bronze.events", "bronze.online_retail", BRONZE, SILVER, WINDOWS)
DAY = datetime.now(UTC).date() - timedelta(days=5)
IDLE, NEVER = 1, 3600  # seconds after which a partition holds nothing back
PARTITIONS = 3
# What such a turn passes: one entry without rows, nothing in silver, and a build that sets nothing aside.
PASSED: dict[str, set[str]] = {BRONZE: {"before-commit", "after-commit"}, SILVER: set(), WINDOWS: set(POINTS)}


def event(number: int, day: date, hour: int) -> str:
    """A purchase in the middle of an hour."""
    said = {
        "event_id": f"e{number}", "schema_version": 1, "user_id": f"u{number % 3}", "event_type": "purchase", "order_id": f"o{number}",
        "event_time": f"{day}T{hour:02}:30:00Z", "currency": "GBP", "amount": 5 + number,
    }  # fmt: skip
    return json.dumps(said)


class Closing:
    """A stream on a topic of its own, up to where the next batch closes hours of `DAY`."""

    def __init__(self, process: EngineProcess, kafka: Kafka, folder: Path) -> None:
        self.laboratory, self.kafka, self.folder = Laboratory(process, "streaming"), kafka, folder
        self.root, self.topic = folder / "before", kafka.topic(PARTITIONS)

    def run(self, root: Path | None = None, point: str = "", idle: int = IDLE) -> Any:
        """The stream until it is caught up, or killed."""
        words: dict[str, Any] = {"sample": True, "most": 1000, "idle": idle, "only": TABLES}
        return self.laboratory.run(root or self.root, point, url=self.kafka.url, topic=self.topic, **words)

    def copy(self, name: str) -> Path:
        """The lakehouse as it is before that batch."""
        return Path(shutil.copytree(self.root, self.folder / name))

    def ends(self, root: Path) -> Ends:
        """Where the stream ended."""
        return ends_of(open_snapshot(table_path(root, BRONZE)), "event_stream")


def without_messages(closing: Closing) -> None:
    """A partition that has shown no event holds the watermark back; then it is idle, and a turn finds that alone."""
    kafka, topic = closing.kafka, closing.topic
    kafka.send(topic, [event(1, DAY, 8)])
    closing.run(idle=NEVER)
    kafka.send(topic, [event(hour, DAY, hour) for hour in range(9, 21)])
    kafka.send(topic, ["no event at all"], partition=2)
    sent = time.monotonic()
    closing.run(idle=NEVER)
    assert watermark(closing, closing.root) == datetime(DAY.year, DAY.month, DAY.day, 8, 30, tzinfo=UTC)
    time.sleep(max(0.0, sent + IDLE + 1 - time.monotonic()))


def watermark(closing: Closing, root: Path) -> datetime:
    """Of the stream's last batch."""
    found = closing.ends(root).watermark
    assert found is not None
    return datetime.fromtimestamp(found / 1e6, UTC)


def state(root: Path) -> dict[str, Any]:
    """Every row of every table, where the stream ended, and what closed which hours: nothing of it may differ."""
    snapshot = open_snapshot(table_path(root, BRONZE))
    rows = {name: sorted(map(repr, rows_of(table_path(root, name)))) for name in (BRONZE, SILVER, WINDOWS)}
    ends = ends_of(snapshot, "event_stream")
    return {
        **rows,
        "ends": {**ends.positions},
        "batch": ends.batch,
        "mark": ends.watermark,
        "closed": closings_of(snapshot, "event_stream"),
    }


def is_open(root: Path) -> dict[int, bool]:
    """By hour of `DAY`, whether it is open."""
    return {
        row["window_start"].hour: row["closed_at_watermark"] is None
        for row in rows_of(table_path(root, WINDOWS))
        if row["event_date"] == DAY
    }


def test_killed_while_a_turn_without_messages_closes_hours(
    engine_process: EngineProcess, kafka: Kafka, tmp_path: Path
) -> None:
    """Without it, hours of a quiet stream could stay open for ever after a kill, or be closed twice, by two watermarks."""
    closing = Closing(engine_process, kafka, tmp_path)
    without_messages(closing)
    assert any(is_open(closing.root).values())
    whole = closing.copy("whole")
    assert closing.run(whole)["messages"] == 0
    assert {hour for hour, still in is_open(whole).items() if not still} == set(range(8, 19))
    wanted = state(whole)
    assert wanted[SILVER] == state(closing.root)[SILVER]

    # What is not passed, all at once: where one of them is, the stream is killed.
    never = [f"{table}:{point}" for table in PASSED for point in POINTS if point not in PASSED[table]]
    assert_goes_on(closing, ",".join(never), wanted, killed=False)
    for table, passed in PASSED.items():
        for point in (each for each in POINTS if each in passed):
            assert_goes_on(closing, f"{table}:{point}", wanted, killed=True)


def assert_goes_on(closing: Closing, point: str, wanted: dict[str, Any], *, killed: bool) -> None:
    """On a lakehouse of its own: killed there or not, it ends as it should, and a further turn writes nothing."""
    root = closing.copy("again")
    assert (closing.run(root, point) == KILLED) == killed, point
    if killed:
        closing.run(root)
    assert state(root) == wanted, point
    versions = [open_snapshot(table_path(root, name)).version for name in (BRONZE, SILVER, WINDOWS)]
    assert closing.run(root) == {"turns": 1, "messages": 0}
    assert versions == [open_snapshot(table_path(root, name)).version for name in (BRONZE, SILVER, WINDOWS)]
    shutil.rmtree(root)
