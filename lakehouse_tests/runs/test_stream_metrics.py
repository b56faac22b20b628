"""Figures of a stream for Prometheus: of batches what they took, and of each look where the stream is."""

from __future__ import annotations

import time

import pytest

from lakehouse.build.intake.ends import Ends, Position
from lakehouse.build.result import BuildResult
from lakehouse.delta.commit import append_batch, ensure_table
from lakehouse.delta.target import Commit
from lakehouse.read.lake import Lake
from lakehouse.read.targets import targets
from lakehouse.runs.stream import Turn
from lakehouse.runs.stream_metrics import StreamMetrics
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.streaming import SOURCE, streamed

MINUTE = 60_000_000
TABLE = {"table": "bronze.visits"}
FIRST, SECOND = (TABLE | {"topic": "web", "partition": number} for number in ("0", "1"))


@pytest.fixture
def shop(lake: LakeFactory) -> Lake:
    """Tables that a stream feeds."""
    return lake(*streamed())


def taken(lake: Lake, watermark: int, *positions: Position) -> None:
    """Commit a batch that ended so, in minutes, of a topic with these partitions."""
    ends = Ends(
        1, watermark * MINUTE, {"web": 7}, {("web", number): position for number, position in enumerate(positions)}
    )
    target, _ = targets(lake, lake.table("bronze.visits"))
    append_batch(target, ensure_table(target), [], Commit(ends.transactions(SOURCE), {}))


def position(offset: int, event: int, *, arrived: int | None = None, idle: int = 0) -> Position:
    """A partition up to there, with an event of that minute."""
    return Position(offset, event * MINUTE, (event if arrived is None else arrived) * MINUTE, idle, 7)


def look(lake: Lake, messages: int = 0, seconds: float = 1.5, **facts: object) -> Turn:
    """A turn that took so many."""
    told = {"batch/messages": messages, **{f"batch/{name}": value for name, value in facts.items()}}
    table = lake.table("bronze.visits")
    return Turn(1, {table.id: BuildResult(table, 0, {}, seconds={"plan": seconds}, facts=told)})


def test_a_look_without_messages_tells_where_the_stream_is(shop: Lake) -> None:
    """Without it, watermark and idle partitions would be told as they were, just when all falls quiet."""
    metrics = StreamMetrics()
    told = metrics.registry.get_sample_value
    metrics.add(shop, look(shop))
    assert told("lakehouse_stream_watermark_seconds", TABLE) is None, "nothing was taken yet"
    taken(shop, 40, position(5, 50), position(9, 40))
    metrics.add(shop, look(shop))
    assert told("lakehouse_stream_watermark_seconds", TABLE) == 40 * 60, "a stream that starts on a quiet topic"
    taken(shop, 50, position(5, 50), position(9, 40))
    metrics.add(shop, look(shop))
    assert told("lakehouse_stream_watermark_seconds", TABLE) == 50 * 60
    assert [told("lakehouse_stream_offset", each) for each in (FIRST, SECOND)] == [5, 9]


def test_only_batches_with_messages_are_timed(shop: Lake) -> None:
    """Without it, the looks of a quiet night would make all batches look quick."""
    metrics = StreamMetrics()
    for messages, seconds in ((0, 0.01), (7, 1.5), (0, 0.01)):
        metrics.add(shop, look(shop, messages, seconds))
    told = metrics.registry.get_sample_value
    assert told("lakehouse_stream_batch_seconds_count", TABLE) == 1
    assert told("lakehouse_stream_batch_seconds_sum", TABLE) == 1.5


def test_partitions_that_fall_quiet_all_at_once_are_told_as_idle(shop: Lake) -> None:
    """Without it, they would be told as ones that hold back the watermark for as long as nothing comes."""
    metrics, now = StreamMetrics(), int(time.time() // 60)

    def idle() -> list[float | None]:
        return [metrics.registry.get_sample_value("lakehouse_stream_idle", each) for each in (FIRST, SECOND)]

    taken(shop, 40, position(5, 50, arrived=now - 3), position(9, 40, arrived=now))
    metrics.add(shop, look(shop))
    assert idle() == [1, 0]
    metrics.add(shop, look(shop, 7, left=3))
    assert idle() == [0, 0], "one that has more is not quiet, however old what was taken of it is"
