"""The stream: batch after batch of messages is taken, and what each one touched is built, until somebody says stop.

Nothing is kept here that would be missed: where a batch begins, the log of its table says. A process that is killed at
any point is simply started again.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date

from tenacity import Retrying

from lakehouse.build import open_days
from lakehouse.build.build import build
from lakehouse.build.followers import Which, each_built
from lakehouse.build.grow import FULL, may_grow
from lakehouse.build.intake.ends import Reach, ends_of, reach
from lakehouse.build.result import FAILED, PUBLISHED, BuildResult, kept_back, merged
from lakehouse.contracts import Table
from lakehouse.delta.maintenance import compact, mergeable
from lakehouse.errors import BadPartitionsError, PublishConflictError
from lakehouse.read.lake import Lake
from lakehouse.runs.attempts import Retried, retrying, with_engine
from lakehouse.runs.background import BackgroundBuilds
from lakehouse.sources.kafka import Brokers
from lakehouse.texts import days_text
from lakehouse.versions.upkeep import layouts


@dataclass(frozen=True)
class Pace:
    """How often what is done.

    Attributes:
        pause: seconds from the beginning of a turn without more messages to the next one, at least.
        refresh: seconds from one build of tables that are built whole (`lakehouse.build.grow`) to the next, at least;
            those that are added to are built in every turn.
        most_files: small files of a day; so many are merged to few. A batch leaves one or two, and reading many takes
            longer than what is in them; a day with `MOST_SMALL` is built whole.
    """

    pause: float = 0.5
    refresh: float = 15.0
    most_files: int = 32


@dataclass(frozen=True)
class Turn:
    """One turn of the stream, or what a try of one had committed when it failed.

    Attributes:
        number: from 1.
        taken: by table with a topic, the batch that was taken; one without news, too.
        built: by table that reads it, what was built.
        seconds: of the whole turn.
        begun: when it was begun, by the process's own clock.
        moved: whether a batch was added: one without messages, too, where the watermark went on.
    """

    number: int
    taken: Mapping[str, BuildResult]
    built: Mapping[str, BuildResult] = field(default_factory=dict)
    seconds: float = 0.0
    begun: float = 0.0
    moved: bool = False

    @property
    def messages(self) -> int:
        """How many were taken."""
        return sum(int(each.facts.get("batch/messages", 0)) for each in self.taken.values())

    @property
    def left(self) -> int:
        """How many were there and left for the next turn."""
        return sum(int(each.facts.get("batch/left", 0)) for each in self.taken.values())

    @property
    def failed(self) -> dict[str, str]:
        """By table and day, why days that were built were not published."""
        return kept_back(self.built)


class Refused:
    """The days whose newest build was not published: one that a later turn publishes is no failure any more."""

    def __init__(self) -> None:
        self._days: set[tuple[str, date]] = set()

    def add(self, built: Mapping[str, BuildResult]) -> None:
        """Take in what was built, turn after turn."""
        for name, each in built.items():
            self._days -= {(name, day) for day in each.days}
            self._days |= {(name, day) for day in each.with_status(FAILED)}

    def told(self) -> str:
        """The days by table, in words; empty where every day was published."""
        named = {name: sorted(day for of, day in self._days if of == name) for name, _ in sorted(self._days)}
        return "; ".join(f"{name} {days_text(days)}" for name, days in named.items())


def turns(
    lake: Lake,
    sources: Sequence[Table],
    run_id: str,
    stop: threading.Event,
    *,
    pace: Pace,
    until_caught_up: bool = False,
    beside: BackgroundBuilds | None = None,
    retried: Retried = lambda _error, _seconds: None,
) -> Iterator[Turn]:
    """Take what is new and build what it touched, turn after turn, until stopped.

    An error that may pass is tried again three times, with growing pauses, on another engine where the warm one has
    ended; a batch is then taken from where the last one ended. Any other error ends the stream at once, since another
    try would meet it again. What was committed before an error is told as a turn of its own, before the next try and
    before the end.

    Args:
        lake: where the tables are and what computes them.
        sources: tables with topics.
        run_id: recorded in the commits.
        stop: set to end after the present turn.
        pace: how often what is done.
        until_caught_up: end when every message was taken that was there when the stream began.
        beside: builds the tables that are built whole, so that no message waits for them, and is begun and ended by the
            caller. None: the turns build them, as in a stream that ends by itself.
        retried: told of each error that is tried again, and in how many seconds.

    Raises:
        BadPartitionsError: a batch failed a blocking check; it was not taken.
        SourceError: messages are gone, a topic was made anew, or the brokers did not answer for all tries.
    """
    again = retrying(stop, retried)
    goals = {each.id: again.copy()(_reached, lake, each) for each in sources} if until_caught_up else {}
    number, whole, closed = 0, _Whole(pace.refresh, beside), None
    while not stop.is_set():
        # At first: whoever was killed before may have taken a batch and built nothing of it. And a day that has closed
        # is stale, whether messages come or not.
        before, closed = closed, open_days.newest_closed(lake, open_days.present())
        for turn in _tried(again, lake, sources, run_id, number + 1, whole, owed=closed != before):
            number = turn.number
            yield replace(turn, built=merged(turn.built, beside.built())) if beside else turn
            if beside:
                beside.check()
        if until_caught_up and all(_is_taken(lake, each, goals[each.id]) for each in sources):
            if not whole.behind and closed == open_days.newest_closed(lake, open_days.present()):
                return
            whole.last = -math.inf
        _merge_touched(lake, sources, turn, pace.most_files)
        if not turn.left:
            stop.wait(max(0.0, turn.begun + pace.pause - time.monotonic()))


@dataclass
class _Whole:
    """When tables that are built whole are to be built again.

    Attributes:
        every: seconds, at least.
        beside: builds them; None: the turns do.
        behind: something was taken since the turns built them.
        last: when they were, by the process's own clock.
    """

    every: float
    beside: BackgroundBuilds | None = None
    behind: bool = False
    last: float = -math.inf

    def is_due(self) -> bool:
        """Whether the time has come for a turn to build them, be there something to build or not."""
        return self.beside is None and time.monotonic() >= self.last + self.every

    def turned(self, *, moved: bool, looked: bool) -> None:
        """After a turn, which looked for all that was stale of its own tables, or only for what it touched."""
        if self.beside is not None:
            if looked or moved:
                self.beside.touch()
            return
        self.behind = not looked and (self.behind or moved)
        self.last = time.monotonic() if looked else self.last


@dataclass
class _Try:
    """What a try of a turn has done so far, which holds whatever it meets next.

    Attributes:
        taken, built, moved, begun: see `Turn`.
        is_over: whether nothing is left to do.
    """

    taken: dict[str, BuildResult] = field(default_factory=dict)
    built: dict[str, BuildResult] = field(default_factory=dict)
    moved: bool = False
    begun: float = field(default_factory=time.monotonic)
    is_over: bool = False

    def turn(self, number: int) -> Turn:
        """As others see it."""
        return Turn(number, self.taken, self.built, time.monotonic() - self.begun, self.begun, self.moved)


def _tried(
    again: Retrying, lake: Lake, sources: Sequence[Table], run_id: str, number: int, whole: _Whole, *, owed: bool
) -> Iterator[Turn]:
    """A turn, tried again where its error may pass.

    A try that failed comes before it as a turn of its own if it has committed anything: of that, the next one finds
    nothing new.

    Args:
        again: how it is tried again.
        lake: see `turns`.
        sources: see `turns`.
        run_id: see `turns`.
        number: of the first turn that is told.
        whole: when the turns build tables that are built whole.
        owed: whether days may be stale though nothing comes.
    """
    due = whole.is_due()
    for attempt in again.copy():
        done = _Try()
        with attempt, with_engine(lake):
            owed |= attempt.retry_state.attempt_number > 1  # one that failed may have taken a batch
            which = Which.ALL if (owed or due) and whole.beside is None else Which.GROWING
            _turn(lake, sources, run_id, which, done, owed=owed or (whole.behind and due))
            whole.turned(moved=done.moved, looked=owed or due)
        if done.is_over or done.moved or done.built:
            yield done.turn(number)
            number += 1


def _merge_touched(lake: Lake, sources: Sequence[Table], turn: Turn, most: int) -> None:
    """Merge the small files of what a turn added to.

    After its builds, so that each file holds what they have seen, or what they have not: else days are built whole.
    """
    for source in sources:
        newest = max(lake.snapshot(source.id).by_day(source.day_column), default=None)
        merge_small(lake, source, [newest] if newest else [], most)
    for built in turn.built.values():
        if may_grow(built.table, lake):
            merge_small(lake, built.table, built.with_status(PUBLISHED), most)


def merge_small(lake: Lake, table: Table, days: Collection[date], most: int) -> None:
    """Merge the small files of some days of a table, and of its quarantine, where there are so many.

    No row changes, and no engine is asked. Files that are large already stay as they are, so that a day costs the same
    however much of it there is.
    """
    for name, layout in layouts(lake.settings.root, [table], ops=False).items():
        files = lake.snapshot(name).by_day(table.day_column)
        if many := [day.isoformat() for day in days if mergeable(files.get(day, ()), FULL) >= most]:
            with suppress(PublishConflictError):  # somebody else merged, or added: the next batch comes soon
                compact(replace(layout, full=FULL), values=many)


def _reached(lake: Lake, source: Table) -> Reach:
    """How far the topics of a table reach now."""
    url = lake.settings.source_url(source.topic.source) if source.topic else None
    if url is None or source.topic is None:
        return {}
    return reach(Brokers(url, source.topic).found())


def _is_taken(lake: Lake, source: Table, goal: Reach) -> bool:
    assert source.topic is not None
    positions = ends_of(lake.snapshot(source.id), source.topic.source).positions
    return all(key in positions and positions[key].offset >= end for key, end in goal.items())


def _turn(lake: Lake, sources: Sequence[Table], run_id: str, which: Which, done: _Try, *, owed: bool) -> None:
    for source in sources:
        before = lake.snapshot(source.id).version
        result = build(lake, source, [], run_id=run_id, one_batch=True)
        if broken := [each for each in result.outcomes if each.blocking and not each.passed]:
            day = broken[0].day
            raise BadPartitionsError(source.id, {day: "; ".join(f"{o.check}: {o.message}" for o in broken)}, 0)
        done.taken[source.id] = result
        done.moved |= (comes := result.version > before)
        if owed or comes:
            for each in each_built(lake, source, run_id, which):
                done.built = merged(done.built, {each.table.id: each})
    done.is_over = True
