"""What a server tells of a query reaches who watches, in numbers alone, and can do a query no harm. No engine needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from pyspark.sql.connect.shell.progress import StageInfo

from lakehouse.spark.progress import LONG, Progress, Queries, Seldom

DAY = 24 * 3600


@dataclass
class Clock:
    """A clock that a test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.now


@dataclass
class Watching:
    """Keeps what it is told."""

    told: list[Progress | None] = field(default_factory=list)

    def __call__(self, progress: Progress | None) -> None:
        """Take note."""
        self.told.append(progress)


def stages(done: int) -> list[StageInfo]:
    """Two stages, of four and eight tasks, of which so many are done."""
    first = min(done, 4)
    return [StageInfo(7, 4, first, first * 1_000_000, first == 4), StageInfo(8, 8, done - first, 0, done == 12)]


def test_a_query_is_told_of_while_it_is_on() -> None:
    """Without it, the bar would go on showing the stage of a query that is over."""
    clock, watching = Clock(), Watching()
    queries = Queries(clock)
    queries.handle(stages(1), 2, "unwatched", False)
    with queries.watched(watching):
        queries.handle(stages(2), 2, "a", False)
        clock.now += 4
        queries.handle(stages(6), 2, "a", False)
        queries.handle(None, 0, "a", True)
        queries.handle(None, 0, "short", True)
    queries.handle(stages(6), 2, "b", False)
    assert watching.told == [Progress(2, 0, 12, 2, 2_000_000, 0), Progress(2, 1, 12, 6, 4_000_000, 4), None]
    assert str(watching.told[1]) == "stage 2 of 2, 6 of 12 tasks, 4 MB read"


def test_who_watches_cannot_fail_a_query() -> None:
    """Without it, a log that is full would fail the run whose progress it was to show."""

    def broken(progress: Progress | None) -> None:
        raise OSError(progress)

    queries, watching = Queries(Clock()), Watching()
    with queries.watched(broken), queries.watched(watching):
        queries.handle(stages(2), 2, "a", False)
        queries.handle([object()], 2, "a", False)  # of another version of pyspark
        queries.handle(None, 0, "a", True)
    assert [each is None for each in watching.told] == [False, True]


def test_a_log_is_told_of_long_queries_and_ever_more_seldom() -> None:
    """Without it, a run of hours would fill Dagster's database, and a short one say what nobody asks."""
    clock, lines = Clock(), list[str]()
    seldom, began = Seldom(lines.append, clock), clock.now
    while clock.now - began < DAY:
        seldom(Progress(2, 1, 12, 6, 4_000_000, seconds=20))  # one short query after the other
        seldom(None)
        clock.now += 20
    assert lines == []

    seldom, began, told = Seldom(lines.append, clock), clock.now, list[float]()
    while clock.now - began < DAY:
        before = len(lines)
        seldom(Progress(2, 1, 12, 6, 4_000_000, seconds=clock.now - began))
        told += [clock.now - began] * (len(lines) - before)
        clock.now += 2
    assert lines[0] == "A query has run for 30 s: stage 2 of 2, 6 of 12 tasks, 4 MB read."
    assert told[:3] == [LONG, 2 * LONG, 3 * LONG]
    assert 60 < len(lines) < 80, "of a whole day"
    assert max(late - early for early, late in pairwise(told)) < DAY / 9, "never silent for long"
