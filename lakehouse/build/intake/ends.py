"""Where a batch of messages ended, how that is kept, and what follows for the next one: no Kafka, no Spark here.

Where the next batch begins is kept in application transactions: of each partition the next offset, its newest event
time and arrival, and the number of the topic's identity. So a batch that goes on from another end, or from another
topic of the same name, is seen and refused; no checkpoint lies beside the table that could be lost or be older.

**Watermark.** No event before it is expected any more: the least of the newest event times of the partitions that are
not idle. A partition is idle where all of it was taken and nothing has come for `idle_after`. What an idle partition
brings when it comes back is late only where it is behind its own newest event: the watermark went on without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from lakehouse.delta.snapshot import WITHDRAWN, Snapshot, fingerprint
from lakehouse.sources.spans import Found, Span, messages_in

_NUMBERS = ("offset", "event", "arrived", "idle", "of")
Newest = Mapping[tuple[str, int], tuple[int | None, int | None]]
"""By topic and partition, the newest event time and the newest arrival of some rows, in microseconds."""
Reach = Mapping[tuple[str, int], int]
"""By topic and partition, an offset up to which, and without which, messages are meant."""


@dataclass(frozen=True)
class Position:
    """How far a partition was taken.

    Attributes:
        offset: the next one.
        event: newest plausible event time, in microseconds; None before the first.
        arrived: newest arrival, in microseconds, not after its batch was begun; None before the first.
        idle: 1 where the partition held back no watermark.
        of: the number of its topic's identity: what the log still says of a topic that is gone counts no more.
    """

    offset: int
    event: int | None = None
    arrived: int | None = None
    idle: int = 0
    of: int = 0


@dataclass(frozen=True)
class Ends:
    """Where a batch ended, as the table's log has it.

    Attributes:
        batch: its number; 0 before the first.
        watermark: in microseconds; None before there was one.
        ids: by topic, the number of its identity.
        positions: by topic and partition.
        arrived: the newest arrival of all messages taken so far, in microseconds, by the brokers' clocks; None before
            the first.
        left: messages that were there, and are in a later batch.
        restarts: by topic, how often its offsets have begun again: it was made anew, or was cut; without others.
    """

    batch: int = 0
    watermark: int | None = None
    ids: Mapping[str, int] = field(default_factory=dict)
    positions: Mapping[tuple[str, int], Position] = field(default_factory=dict)
    arrived: int | None = None
    left: int = 0
    restarts: Mapping[str, int] = field(default_factory=dict)

    def transactions(self, source: str) -> dict[str, int]:
        """The ends as application transactions."""
        named = {each: getattr(self, each) for each in ("batch", "watermark", "arrived", "left")}
        named |= {f"{topic}/id": number for topic, number in self.ids.items()}
        named |= {f"{topic}/restarts": number for topic, number in self.restarts.items()}
        for (topic, partition), position in self.positions.items():
            numbers = {f"{topic}/{partition}/{name}": getattr(position, name) for name in _NUMBERS}
            # What is not known is said, too: else that of an earlier topic of the same name would stand on in the log.
            named |= {name: WITHDRAWN if value is None else value for name, value in numbers.items()}
        return {f"intake/{source}/{name}": value for name, value in named.items() if value is not None}


def ends_of(snapshot: Snapshot, source: str) -> Ends:
    """Where the last batch ended."""
    prefix = f"intake/{source}/"
    named = {k.removeprefix(prefix): v for k, v in snapshot.transactions().items() if k.startswith(prefix)}
    ids: dict[str, int] = {}
    restarts: dict[str, int] = {}
    positions: dict[tuple[str, int], dict[str, int]] = {}
    for name, value in named.items():
        # A topic's name has no slash.
        match name.split("/"):
            case [topic, "id"]:
                ids[topic] = value
            case [topic, "restarts"]:
                restarts[topic] = value
            case [topic, partition, number]:
                positions.setdefault((topic, int(partition)), {})[number] = value
    made = {key: Position(**each) for key, each in positions.items()}
    current = {key: position for key, position in made.items() if position.of == ids.get(key[0])}
    batch, left = (named.get(name, 0) for name in ("batch", "left"))
    return Ends(batch, named.get("watermark"), ids, current, named.get("arrived"), left, restarts)


def batch_of(snapshot: Snapshot, source: str) -> int:
    """The number of the last batch; 0 before the first."""
    return snapshot.transaction(f"intake/{source}/batch") or 0


def taken_until(snapshot: Snapshot, source: str) -> int | None:
    """Up to which event time all was taken, in microseconds, where messages were left for a later batch; else None.

    As a rule that is the watermark. It never goes back: what it went on without may bring older events, as a partition
    that was added or was idle, and those are taken only up to that partition's newest one. As long as one has brought
    dead letters alone, nothing since 1970 is passed.
    """
    if not snapshot.transaction(f"intake/{source}/left"):
        return None
    ends = ends_of(snapshot, source)
    return min([ends.watermark or 0, *(each.event or 0 for each in ends.positions.values() if not each.idle)])


def waiting_again(restored: Mapping[str, int], now: Snapshot, then: Snapshot, source: str) -> dict[str, int]:
    """The application transactions of a restore: messages that go wait again, whatever that version had left.

    Args:
        restored: those that go back, as that version has them.
        now: the table before.
        then: the version that comes back.
        source: of its topic.
    """
    before, after = ends_of(now, source), ends_of(then, source)
    again = sum(at.offset for at in before.positions.values()) - sum(at.offset for at in after.positions.values())
    name, left = f"intake/{source}/left", max(0, before.left + again)
    others = {each: value for each, value in restored.items() if each != name}
    return others if left == before.left else {**others, name: left}


def accepted(before: Ends, found: Mapping[str, Found]) -> tuple[Ends, list[str]]:
    """Where to go on from though messages are gone or topics were made anew, and in words what is given up.

    Args:
        before: where the last batch ended.
        found: the topics as they are.
    """
    told = problems(before, found)
    anew = _anew(before, found)
    again = set(anew)
    positions = {key: position for key, position in before.positions.items() if key[0] not in anew}
    for (name, number), position in positions.items():
        part = found[name].parts.get(number) if name in found else None
        if part is not None and not part.first <= position.offset <= part.end:
            # Behind what is left: on from there. Beyond the end: the topic was cut, and all that is left is unknown.
            again |= {name} if position.offset > part.end else set()
            positions[name, number] = replace(position, offset=part.first, idle=0)
    ids = dict(before.ids) | _ids(found)
    restarts = dict(before.restarts) | {name: before.restarts.get(name, 0) + 1 for name in again}
    return replace(before, batch=before.batch + 1, ids=ids, positions=positions, restarts=restarts), told


def problems(before: Ends, found: Mapping[str, Found]) -> list[str]:
    """In words, why no batch can go on from the last one: messages that are gone, and topics that are other ones."""
    return [*_other_topics(before, found), *_gaps(before, found)]


def taken_as(snapshot: Snapshot, source: str, found: Mapping[str, Found]) -> list[str]:
    """In words, the topics that a table has taken under other names of its source: all would be taken again.

    Args:
        snapshot: of the table.
        source: what it is called now.
        found: the topics as they are.
    """
    names = (name.split("/") for name in snapshot.transactions())
    others = {of for kind, of, *_ in names if kind == "intake"} - {source}
    ids, mine = _ids(found), ends_of(snapshot, source).ids
    return [
        f"the topic {topic} was taken as the source {other}, so all of it would be taken again as {source}"
        for other in sorted(others)
        for topic, number in sorted(ends_of(snapshot, other).ids.items())
        if ids.get(topic) == number and topic not in mine
    ]


def _ids(found: Mapping[str, Found]) -> dict[str, int]:
    return {name: fingerprint([one.id]) for name, one in found.items()}


def _anew(before: Ends, found: Mapping[str, Found]) -> set[str]:
    """The topics that are others than those of the last batch, of the same names."""
    return {name for name, number in _ids(found).items() if before.ids.get(name, number) != number}


def reach(found: Mapping[str, Found]) -> Reach:
    """How far topics reach, by topic and partition; of one that is empty, or was emptied, there is nothing to take."""
    parts = ((name, number, part) for name, one in found.items() for number, part in one.parts.items())
    return {(name, number): part.end for name, number, part in parts if part.end > part.first}


def _other_topics(before: Ends, found: Mapping[str, Found]) -> list[str]:
    anew = _anew(before, found)
    return [
        f"the topic {name} was deleted and made anew since the last batch (its id is now {one.id})"
        for name, one in found.items()
        if name in anew
    ]


def _gaps(before: Ends, found: Mapping[str, Found]) -> Iterable[str]:
    """In words, the messages that no batch took and that are not there any more."""
    anew = _anew(before, found)
    for (name, number), position in sorted(before.positions.items()):
        if name not in found or name in anew:
            continue
        part = found[name].parts.get(number)
        if part is None:
            yield f"{name}/{number} is gone; the last batch ended at its offset {position.offset}"
        elif position.offset < part.first:
            lost = part.first - position.offset
            gone = f"{position.offset}–{part.first - 1}"
            yield f"{lost} message(s) of {name}/{number} were deleted before they were taken: {gone}"
        elif position.offset > part.end:
            last = position.offset - 1
            yield f"{name}/{number} ends at offset {part.end}, but messages up to {last} were taken from it"


def spans_after(before: Ends, found: Mapping[str, Found], until: Reach | None) -> list[Span]:
    """All messages that were not taken yet; a partition that no batch knows is read from its beginning."""
    spans = []
    for name, one in sorted(found.items()):
        for number, part in sorted(one.parts.items()):
            position = before.positions.get((name, number))
            start = part.first if position is None else position.offset
            end = part.end if until is None else min(part.end, until.get((name, number), start))
            if end > start:
                spans.append(Span(name, number, start, end))
    return spans


def bounded(spans: Sequence[Span], most: int) -> list[Span]:
    """The first messages of each partition, as many as fit into a batch, shared out by how many there are."""
    total = messages_in(spans)
    if total <= most:
        return list(spans)
    # At least one of each, so that none waits for ever behind larger ones.
    shares = [max(1, (span.end - span.start) * most // total) for span in spans]
    return [Span(s.topic, s.partition, s.start, s.start + n) for s, n in zip(spans, shares, strict=True)]


def _watermark(before: int | None, positions: Iterable[Position]) -> int | None:
    """Never back; where one that is not idle has shown no event yet, it stays. Where all are idle, all count."""
    several = list(positions)
    counted = [p.event for p in several if not p.idle] or [p.event for p in several if p.event is not None]
    known = [each for each in counted if each is not None]
    if not known or len(known) < len(counted):
        return before
    return min(known) if before is None else max(before, min(known))


def carried_on(  # all that decides where a batch ends
    before: Ends, found: Mapping[str, Found], spans: Sequence[Span], newest: Newest, begun: int, idle_after: timedelta
) -> Ends:
    """Where a batch ends.

    Args:
        before: where the last one ended.
        found: the topics when it was begun.
        spans: its messages.
        newest: of its rows.
        begun: when it was begun, in microseconds.
        idle_after: a partition is idle where nothing has come for so long.
    """
    read = {(span.topic, span.partition): span.end for span in spans}
    # Of a topic that is not read any more nothing comes: it would hold the watermark, and days open, for ever.
    unread = {key: replace(each, idle=1) for key, each in before.positions.items() if key[0] not in found}
    positions, ids = {**before.positions, **unread}, dict(before.ids) | _ids(found)
    for topic, one in found.items():
        for number, part in one.parts.items():
            last = positions.get((topic, number), Position(part.first))
            event, arrived = newest.get((topic, number), (None, None))
            offset, arrival = read.get((topic, number), last.offset), _latest([last.arrived, arrived])
            # A clock that was ahead does not count: until its time, the partition would never be quiet.
            arrival = None if arrival is None else min(arrival, begun)
            position = Position(offset, _latest([last.event, event]), arrival, of=ids[topic])
            idle = is_idle(position, begun, idle_after, taken=offset >= part.end)
            positions[topic, number] = replace(position, idle=int(idle))
    arrivals = [
        before.arrived,
        *(position.arrived for position in positions.values()),
        *(arrived for _, arrived in newest.values()),
    ]
    watermark = _watermark(before.watermark, (each for key, each in positions.items() if key[0] in found))
    return Ends(before.batch + 1, watermark, ids, positions, _latest(arrivals), restarts=before.restarts)


def expected(before: Ends, topic: str, partition: int) -> int | None:
    """The time that rows of a partition are late behind, in microseconds; None: nothing is known yet.

    Args:
        before: where the last batch ended.
        topic: of the partition.
        partition: its number.
    """
    position, bound = before.positions.get((topic, partition)), before.watermark
    if position is None or position.event is None:
        return bound
    # One that was idle held back nothing: what it brings is judged by what was last included of it, batch after batch,
    # until it has caught up. Others are not behind the watermark.
    return position.event if bound is None else min(position.event, bound)


def is_idle(position: Position, now: int, idle_after: timedelta, *, taken: bool) -> bool:
    """Whether a partition is idle by a moment: where all fall quiet at once, no batch says it: none is added.

    Args:
        position: how far it was taken.
        now: the moment, in microseconds.
        idle_after: see `carried_on`.
        taken: whether it was taken as far as it reaches.
    """
    return taken and now - (position.arrived or 0) > idle_after // timedelta(microseconds=1)


def _latest(times: Iterable[int | None]) -> int | None:
    return max((each for each in times if each is not None), default=None)
