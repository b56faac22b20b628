"""Where batches of messages end: what is read next, what is noticed to be missing, and how far the watermark goes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from lakehouse.build.intake.ends import (
    Ends,
    Position,
    accepted,
    bounded,
    carried_on,
    ends_of,
    expected,
    is_idle,
    problems,
    spans_after,
    waiting_again,
)
from lakehouse.delta.commit import append_batch, ensure_table
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import WITHDRAWN, fingerprint
from lakehouse.delta.target import Commit
from lakehouse.sources.spans import Found, Part, Span
from lakehouse_tests.fixtures.making import target_of

MINUTE = 60_000_000
IDLE = timedelta(minutes=2)
ID = fingerprint(["id"])


@dataclass(frozen=True)
class Log:
    """A log in which nothing is ever taken back; of what was committed under a name, the last counts."""

    committed: dict[str, int]

    def transactions(self) -> dict[str, int]:
        """Without those that were withdrawn."""
        return {name: value for name, value in self.committed.items() if value != WITHDRAWN}


def found(*parts: tuple[int, int], topic_id: str = "id") -> dict[str, Found]:
    """The topic `t` with partitions of these first offsets and ends."""
    return {"t": Found(topic_id, {number: Part(*each) for number, each in enumerate(parts)})}


def ends(*offsets: int, **kwargs: int) -> Ends:
    """Where a batch ended that took the topic `t` up to these offsets."""
    return Ends(
        1, kwargs.get("watermark"), {"t": ID}, {("t", n): Position(each, of=ID) for n, each in enumerate(offsets)}
    )


def test_a_batch_begins_where_the_last_one_ended() -> None:
    """Without it, messages would be skipped or taken twice; a new partition is read from its beginning."""
    assert spans_after(ends(3, 10), found((0, 5), (0, 10), (2, 4)), None) == [Span("t", 0, 3, 5), Span("t", 2, 2, 4)]


def test_later_batches_of_an_intake_end_where_the_first_one_saw_the_end() -> None:
    """Without it, an intake beside a busy producer would never end."""
    until = {("t", 0): 5}
    assert spans_after(ends(3), found((0, 50), (0, 9)), until) == [Span("t", 0, 3, 5)]


def test_a_large_backlog_is_shared_out() -> None:
    """Without it, one batch would hold all of it, or a small partition would wait for ever behind a large one."""
    spans = [Span("t", 0, 0, 1_000_000), Span("t", 1, 5, 7)]
    cut = bounded(spans, 1000)
    assert cut == [Span("t", 0, 0, 999), Span("t", 1, 5, 6)]
    assert bounded(spans[1:], 2) == spans[1:]


@given(
    sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=20),
    most=st.integers(1, 10**5),
)
def test_cut_batches_end_and_leave_nothing_out(sizes: list[int], most: int) -> None:
    """Without it, rounding could leave a batch of nothing, and the stream would stand still."""
    spans = [Span("t", n, 0, size) for n, size in enumerate(sizes)]
    cut = bounded(spans, most)
    assert all(0 < each.end <= whole.end for each, whole in zip(cut, spans, strict=True))
    assert sum(each.end for each in cut) <= max(most, len(spans)) + len(spans)


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        (found((4, 9)), "1 message(s) of t/0 were deleted before they were taken: 3–3"),
        (found((0, 2)), "t/0 ends at offset 2, but messages up to 2 were taken from it"),
        (found((0, 9), topic_id="other"), "the topic t was deleted and made anew since the last batch"),
        ({"t": Found("id", {})}, "t/0 is gone; the last batch ended at its offset 3"),
    ],
    ids=["retention", "cut short", "made anew", "fewer partitions"],
)
def test_what_is_missing_is_noticed(topic: dict[str, Found], said: str) -> None:
    """Without it, messages nobody took would be skipped in silence, or those of another topic be taken for new."""
    (why,) = problems(ends(3), topic)
    assert why.startswith(said)
    after, told = accepted(ends(3), topic)
    assert told == [why]
    assert problems(after, topic) == [] or "gone" in why
    assert after.batch == 2


def test_where_offsets_begin_again_is_counted() -> None:
    """Without it, a message would be taken for another one, of the same offset before that."""
    cut, _ = accepted(ends(3), found((0, 2)))
    anew, _ = accepted(cut, found((0, 2), topic_id="other"))
    kept, _ = accepted(anew, found((1, 9), topic_id="other"))
    assert [each.restarts for each in (cut, anew, kept)] == [{"t": 1}, {"t": 2}, {"t": 2}]


def test_nothing_is_given_up_where_nothing_is_missing() -> None:
    """Without it, accepting by mistake would read everything again."""
    after, told = accepted(ends(3), found((0, 9)))
    assert told == []
    assert after.positions == ends(3).positions


def after(before: Ends, newest: dict[int, int], *, end: int = 5, begun: int = 100 * MINUTE) -> Ends:
    """The ends after a batch up to offset 5 of each partition whose rows have these newest event times, as minutes."""
    parts = {("t", n): (at * MINUTE, begun) for n, at in newest.items()}
    count = max([*newest, *(n for _, n in before.positions)]) + 1
    spans = [Span("t", n, 0, 5) for n in newest]
    return carried_on(before, found(*[(0, end)] * count), spans, parts, begun, IDLE)


def test_the_slowest_partition_holds_the_watermark() -> None:
    """Without it, rows of a partition that is read more slowly would all be late."""
    assert after(Ends(), {0: 50, 1: 40}).watermark == 40 * MINUTE


def test_the_watermark_never_goes_back() -> None:
    """Without it, a window that was closed would be open again."""
    first = after(Ends(), {0: 50, 1: 40})
    assert after(first, {0: 30, 1: 20}, begun=101 * MINUTE).watermark == 40 * MINUTE


def test_an_idle_partition_holds_back_nothing_and_its_burst_is_not_late() -> None:
    """Without it, one quiet partition would keep every window open, or lose its rows when it comes back."""
    first = after(Ends(), {0: 50, 1: 40})
    second = after(first, {0: 90}, begun=103 * MINUTE)
    assert second.positions["t", 1].idle == 1
    assert second.watermark == 90 * MINUTE
    assert expected(second, "t", 0) == 90 * MINUTE
    assert expected(second, "t", 1) == 40 * MINUTE  # its own newest event: the burst goes on from there
    third = after(second, {1: 60}, begun=104 * MINUTE)
    assert third.positions["t", 1].idle == 0
    assert third.watermark == 90 * MINUTE
    assert expected(third, "t", 1) == 60 * MINUTE  # a burst of several batches, too
    fourth = after(third, {1: 95}, begun=105 * MINUTE)
    assert expected(fourth, "t", 1) == 90 * MINUTE  # it has caught up: as any other


def test_messages_that_arrive_while_a_batch_is_begun_count_as_taken() -> None:
    """Without it, an hour's last messages would count as corrections of it, though the batch that closed it has them."""
    ahead = {("t", 0): (50 * MINUTE, 101 * MINUTE)}
    ended = carried_on(Ends(), found((0, 5)), [Span("t", 0, 0, 5)], ahead, 100 * MINUTE, IDLE)
    assert (ended.arrived, ended.positions["t", 0].arrived) == (101 * MINUTE, 100 * MINUTE)
    # A clock that was put back, or a batch without messages: what was taken stays taken.
    assert after(ended, {0: 60}, begun=100 * MINUTE).arrived == 101 * MINUTE
    assert carried_on(ended, found((0, 5)), [], {}, 200 * MINUTE, IDLE).arrived == 101 * MINUTE


def test_a_partition_that_is_behind_is_not_idle() -> None:
    """Without it, a slow reader would take what it has not read for silence."""
    first = after(Ends(), {0: 50, 1: 40})
    second = after(first, {0: 90}, end=500, begun=200 * MINUTE)
    assert second.positions["t", 1].idle == 0
    assert second.watermark == 40 * MINUTE


def test_where_all_are_idle_all_of_them_count() -> None:
    """Without it, what an old topic holds would have no watermark."""
    quiet = {("t", 0): (50 * MINUTE, 1 * MINUTE), ("t", 1): (40 * MINUTE, 1 * MINUTE)}
    spans = [Span("t", n, 0, 5) for n in range(2)]
    ended = carried_on(Ends(), found((0, 5), (0, 5)), spans, quiet, 100 * MINUTE, IDLE)
    assert {position.idle for position in ended.positions.values()} == {1}
    assert ended.watermark == 40 * MINUTE


@given(
    batch=st.integers(1, 2**40),
    watermark=st.none() | st.integers(0, 2**60),
    positions=st.dictionaries(
        st.tuples(st.sampled_from(["web-events", "a.b_c"]), st.integers(0, 999)),
        st.builds(
            Position,
            st.integers(0, 2**60),
            st.none() | st.integers(0, 2**60),
            st.none() | st.integers(0, 2**60),
            st.sampled_from([0, 1]),
            st.just(0),
        ),
        max_size=4,
    ),
)
def test_ends_are_read_as_they_were_written(
    batch: int, watermark: int | None, positions: dict[tuple[str, int], Position]
) -> None:
    """Without it, a restart could begin somewhere else."""
    ids = {topic: fingerprint([topic]) for topic, _ in positions}
    held = {key: replace(each, of=ids[key[0]]) for key, each in positions.items()}
    written = Ends(batch, watermark, ids, held, watermark, restarts=dict.fromkeys(ids, batch))
    log = Log(written.transactions("shop") | {"intake/other/batch": 7, "day/2026-01-01": 1})
    assert ends_of(log, "shop") == written  # type: ignore[arg-type]


def test_the_log_keeps_the_ends(tmp_path: Path) -> None:
    """Without it, a checkpoint of the log could forget where the stream was."""
    target = target_of(tmp_path / "made", T.StructType([T.StructField("day", T.DateType())]))
    written = ends(3, 4, watermark=5)
    append_batch(target, ensure_table(target), [], Commit(written.transactions("shop"), {}))
    assert ends_of(open_snapshot(target.path), "shop") == written


def test_what_the_log_says_of_a_topic_that_is_gone_counts_no_more() -> None:
    """Without it, the new topic's messages below the old one's offset would be skipped."""
    before, anew = ends(3, 4), found((0, 9), topic_id="other")
    after, _ = accepted(before, anew)
    log = Log(before.transactions("shop") | after.transactions("shop"))
    read = ends_of(log, "shop")  # type: ignore[arg-type]
    assert spans_after(read, anew, None) == [Span("t", 0, 0, 9)]
    assert problems(read, anew) == []


def test_what_a_topic_that_is_gone_had_brought_moves_no_watermark_of_the_new_one() -> None:
    """Without it, days would be judged as a whole that a partition has brought dead letters of so far."""
    before = replace(ends(3), positions={("t", 0): Position(3, event=50 * MINUTE, arrived=60 * MINUTE, of=ID)})
    anew = found((0, 9), topic_id="other")
    first, _ = accepted(before, anew)
    assert first.restarts == {"t": 1}
    dead = {("t", 0): (None, 70 * MINUTE)}
    after = carried_on(first, anew, [Span("t", 0, 0, 2)], dead, 70 * MINUTE, IDLE)
    log = Log(before.transactions("shop") | first.transactions("shop") | after.transactions("shop"))
    assert ends_of(log, "shop") == after  # type: ignore[arg-type]


def test_a_topic_that_is_read_no_more_holds_no_watermark() -> None:
    """Without it, no hour of what is still read would ever close once a topic was given another name."""
    two = {**found((0, 5)), "old": Found("old", {0: Part(0, 5)})}
    spans, newest = [Span("t", 0, 0, 5), Span("old", 0, 0, 5)], {("t", 0): (20, 0), ("old", 0): (10, 0)}
    both = carried_on(Ends(), two, spans, newest, MINUTE, IDLE)
    assert both.watermark == 10
    one = carried_on(both, found((0, 9)), [Span("t", 0, 5, 9)], {("t", 0): (30, 0)}, MINUTE, IDLE)
    assert (one.watermark, one.positions["old", 0].offset) == (30, 5)
    quiet = carried_on(both, found((0, 9)), [Span("t", 0, 5, 9)], {("t", 0): (30, 0)}, 9 * MINUTE, IDLE)
    assert (quiet.positions["t", 0].idle, quiet.watermark) == (1, 30), "where all are idle, all count that are read"


def test_what_a_restore_takes_back_waits() -> None:
    """Without it, days would be judged as a whole before what was taken back is there again."""
    old, new = Log(ends(3, 1).transactions("shop")), Log(replace(ends(5, 4, 2), left=6).transactions("shop"))
    told = {"intake/shop/t/0/offset": 3, "intake/shop/left": 0}
    left = {"intake/shop/left": 13}
    assert waiting_again(told, new, old, "shop") == told | left  # type: ignore[arg-type]
    restored = Log(old.committed | left)
    assert waiting_again({}, restored, old, "shop") == {}, "again"  # type: ignore[arg-type]
    assert waiting_again({}, restored, new, "shop") == {"intake/shop/left": 6}, "undone"  # type: ignore[arg-type]


@given(offset=st.integers(1, 9), end=st.integers(1, 9), arrived=st.none() | st.integers(0, 9), now=st.integers(0, 9))
def test_a_partition_is_idle_when_the_next_batch_would_find_it_so(
    offset: int, end: int, arrived: int | None, now: int
) -> None:
    """Without it, people would be told otherwise than the watermark goes."""
    position = Position(offset, 0, None if arrived is None else arrived * MINUTE, of=ID)
    before = replace(ends(offset), positions={("t", 0): position})
    after = carried_on(before, found((0, end)), [], {}, now * MINUTE, IDLE)
    assert is_idle(position, now * MINUTE, IDLE, taken=offset >= end) == bool(after.positions["t", 0].idle)
