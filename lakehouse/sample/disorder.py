"""What happens to events between a shop and a topic: they come late, twice, out of order, broken, in one partition.

Everything follows from the seed and the events, in bounded memory. Whatever happens, every event is sent.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import islice
from random import Random
from zlib import crc32

from lakehouse.errors import GeneratorError
from lakehouse.sample.faults import Event, damage

APART = 1_000
"""An event that is sent twice is sent again within so many messages."""

KNOWN = 250_000
"""So many events are remembered at least: more than any source takes to repeat one."""

_DURATION = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        key: by which its partition is chosen; None: it has none.
        value: its bytes.
        event: id of its event; None: the event has none, or it is no event.
        moment: when the event happened, seconds since 1970; 0: that cannot be read.
        malformed: it is no JSON object.
        late: it was held back, and an event that happened later was sent before it.
    """

    key: bytes | None
    value: bytes
    event: str | None = None
    moment: float = 0.0
    malformed: bool = False
    late: bool = False


@dataclass(frozen=True)
class Disorder:
    """How much of it there is: shares of the events, 0 to 1.

    Attributes:
        lateness: held back until later events have been sent.
        late_by: most that a held back one is late, in event time.
        shuffle: messages of which each run is shuffled; 0 or 1: none.
        duplicates: sent twice, within `APART` messages.
        malformed: followed by a message that is no event.
        skew: share of the keys whose messages all go to the first partition, beside its own.

    Raises:
        GeneratorError: a share is outside 0..1, or `shuffle` is negative.
    """

    lateness: float = 0.0
    late_by: timedelta = timedelta(days=1)
    shuffle: int = 0
    duplicates: float = 0.0
    malformed: float = 0.0
    skew: float = 0.0

    def __post_init__(self) -> None:
        for name in ("lateness", "duplicates", "malformed", "skew"):
            if not 0 <= (share := getattr(self, name)) <= 1:
                raise GeneratorError(f"{name}: expected a share from 0 to 1, got {share:g}; 0.01 is one in 100")
        if self.shuffle < 0:
            raise GeneratorError(f"shuffle: expected 0 messages or more, got {self.shuffle}")


@dataclass
class Sent:
    """What was produced.

    Attributes:
        messages: all of them.
        events: distinct ones, by event id.
        duplicates: messages of an event that was sent before, by the source too.
        late: messages that were held back until an event that happened later had been sent.
        skewed: messages that went to the first partition for their key's sake, and not by chance.
        malformed: messages that are no JSON object.
        nameless: events without an id.
    """

    messages: int = 0
    events: int = 0
    duplicates: int = 0
    late: int = 0
    skewed: int = 0
    malformed: int = 0
    nameless: int = 0


class Tally:
    """Counts messages as they are sent; of a repeat more than `KNOWN` events later nobody knows that it is one."""

    def __init__(self) -> None:
        self.sent = Sent()
        self._new: set[bytes] = set()
        self._old: set[bytes] = set()

    def count(self, message: Message, *, skewed: bool) -> None:
        """Take in one message.

        Args:
            message: the message.
            skewed: it goes to the first partition for its key's sake.
        """
        sent = self.sent
        sent.messages += 1
        sent.late += message.late
        sent.skewed += skewed
        if message.malformed:
            sent.malformed += 1
        elif message.event is None:
            sent.nameless += 1
        elif self._is_new(message.event):
            sent.events += 1
        else:
            sent.duplicates += 1

    def _is_new(self, event: str) -> bool:
        short = blake2b(event.encode(), digest_size=8).digest()
        if short in self._new or short in self._old:
            return False
        if len(self._new) == KNOWN:
            self._old, self._new = self._new, set()
        self._new.add(short)
        return True


def parse_duration(text: str) -> timedelta:
    """Read `90s`, `15m`, `6h` or `3d`.

    Raises:
        GeneratorError: it is none of these.
    """
    if not (found := _DURATION.fullmatch(text)):
        raise GeneratorError(f"expected a time such as 90s, 15m, 6h or 3d, got {text!r}")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def message_of(line: bytes) -> Message:
    """The message of an event's line, by its user, or else its order; what is no event has no key."""
    event = _parsed(line)
    if event is None:
        return Message(None, line, malformed=True)
    key = next((str(event[name]) for name in ("user_id", "order_id") if event.get(name) is not None), None)
    try:
        found = datetime.fromisoformat(str(event.get("event_time")))
        moment = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        moment = 0.0
    name = event.get("event_id")
    return Message(None if key is None else key.encode(), line, name if isinstance(name, str) else None, moment)


def disordered(messages: Iterable[Message], disorder: Disorder, seed: int) -> Iterator[Message]:
    """The messages as they are sent: every one of them, and those that are added.

    Args:
        messages: in order of time.
        disorder: what happens to them.
        seed: the same seed, messages and disorder give the same.
    """
    found = iter(messages)
    if disorder.malformed:
        found = _with_malformed(found, disorder.malformed, _chance(seed, "malformed"))
    if disorder.duplicates:
        found = _repeated(found, disorder.duplicates, _chance(seed, "duplicates"))
    if disorder.lateness:
        found = _held_back(found, disorder.lateness, disorder.late_by.total_seconds(), _chance(seed, "lateness"))
    if disorder.shuffle > 1:
        found = _shuffled(found, disorder.shuffle, _chance(seed, "shuffle"))
    return found


def partition_of(message: Message, partitions: int, skew: float = 0.0) -> tuple[int, bool]:
    """Which partition a message goes to, and whether that is for the skew's sake.

    A key has one partition, so that what is sent of it stays in order.

    Args:
        message: the message.
        partitions: that there are.
        skew: share of the keys that go to the first one.
    """
    text = message.value if message.key is None else message.key
    usual = crc32(text) % partitions
    skewed = message.key is not None and crc32(b"skew|" + text) < skew * 2**32
    return (0, usual != 0) if skewed else (usual, False)


def _chance(seed: int, purpose: str) -> Random:
    """A generator of its own for each purpose, so that more of one changes nothing in another."""
    return Random(blake2b(f"{seed}|{purpose}".encode()).digest())


def _with_malformed(messages: Iterator[Message], share: float, chance: Random) -> Iterator[Message]:
    for each in messages:
        yield each
        if chance.random() < share and (event := _parsed(each.value)) is not None:
            texts: Event = {name: json.dumps(value) for name, value in event.items()}
            day = datetime.fromtimestamp(0, UTC).date()  # says nothing in what is no event
            yield Message(each.key, damage("malformed", texts, day, chance)[1], None, each.moment, malformed=True)


def _repeated(messages: Iterator[Message], share: float, chance: Random) -> Iterator[Message]:
    waiting: list[tuple[int, int, Message]] = []  # sorted by the place at which they are sent again
    place = 0
    for place, each in enumerate(messages):
        yield each
        if not each.malformed and chance.random() < share:
            heapq.heappush(waiting, (place + chance.randint(0, APART), place, each))
        while waiting and waiting[0][0] <= place:
            yield heapq.heappop(waiting)[2]
    while waiting:
        yield heapq.heappop(waiting)[2]


def _held_back(messages: Iterator[Message], share: float, seconds: float, chance: Random) -> Iterator[Message]:
    waiting: list[tuple[float, int, Message]] = []  # sorted by the event time after which they are sent
    now = newest = 0.0  # event time of what was read, and of what was sent
    for place, each in enumerate(messages):
        now = max(now, each.moment)
        if each.moment and not each.malformed and chance.random() < share:
            heapq.heappush(waiting, (each.moment + seconds * chance.random(), place, each))
        else:
            yield each
            newest = max(newest, each.moment)
        while waiting and waiting[0][0] <= now:
            held = heapq.heappop(waiting)[2]
            yield replace(held, late=held.moment < newest)
            newest = max(newest, held.moment)
    while waiting:
        held = heapq.heappop(waiting)[2]
        yield replace(held, late=held.moment < newest)
        newest = max(newest, held.moment)


def _shuffled(messages: Iterator[Message], run: int, chance: Random) -> Iterator[Message]:
    while waiting := list(islice(messages, run)):
        chance.shuffle(waiting)
        yield from waiting


def _parsed(line: bytes) -> dict[str, object] | None:
    """An event's fields; None for what is no JSON object."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
