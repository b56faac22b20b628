"""Deterministic web-shop events, one arrival day at a time, with faults on request.

Everything follows from `(seed, day, rows, faults)`. What an event holds is drawn from a hash of its own place (day,
order, line), so any day can be made alone, and a later day can cancel an earlier day's order or repeat one of its lines
after working out only how that day was laid out.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate
from random import Random

from lakehouse.errors import GeneratorError
from lakehouse.sample.faults import Event, Faults, damage, to_line

LOOK_BACK_DAYS = 10
"""A cancellation or a re-sent event refers to an order placed at most this many days earlier."""

_USERS = 20_000
_GUESTS = 0.2
_CANCELLED = 0.03
_BASKETS, _BASKET_WEIGHTS = (1, 2, 3, 4, 5), (28, 26, 20, 14, 12)  # lines of an order
_ROWS_AN_ORDER = 2.6  # a little over the baskets' mean: the rest is cancellations
_HOURS = tuple(accumulate((4, 2, 1, 1, 1, 2, 5, 10, 16, 22, 26, 28, 31, 29, 26, 25, 26, 29, 33, 38, 40, 33, 21, 10)))
_COUNTRIES = (  # name as in the `online_retail` source, currency, its units for a euro, weight
    ("United Kingdom", "GBP", 0.86, 34),
    ("Germany", "EUR", 1.0, 16),
    ("France", "EUR", 1.0, 11),
    ("USA", "USD", 1.1, 9),
    ("Netherlands", "EUR", 1.0, 8),
    ("Spain", "EUR", 1.0, 6),
    ("Poland", "PLN", 4.3, 5),
    ("Sweden", "SEK", 11.3, 4),
    ("Switzerland", "CHF", 0.95, 3),
    ("Denmark", "DKK", 7.5, 2),
    ("Japan", "JPY", 165.0, 2),
)
_COUNTRY_WEIGHTS = tuple(accumulate(weight for *_, weight in _COUNTRIES))
_PAYMENT_METHODS = ("card", "card", "card", "card", "paypal", "paypal", "invoice", "bank_transfer", "gift_card")
_CENTS = (195, 295, 425, 595, 795, 995, 1250, 1495, 1995, 2495, 2995, 3995, 4995, 6995, 9995, 14900, 24900, 49900)
_FIRST_YEAR, _LAST_YEAR = 1971, 2037  # leaves times before the epoch out, and 2038 to the faults
_HOUR, _DAY = 3_600_000_000, 86_400_000_000  # microseconds


@dataclass(frozen=True)
class Truth:
    """What one arrival day holds, known by construction.

    Attributes:
        faults: Lines by kind of fault, zeros included. All other lines are sound.
        variants: The same lines by kind and variant: `nulls.amount`, `duplicates.resent`, `malformed.empty`, …
        good: Event id → event day (UTC) of each distinct event that passes the row rules of `silver.transactions`,
            where a value that does not fit its column counts as missing. Late and re-sent events are among them: united
            over the landed days, this is what should be in the table or among its late rows, once each.
    """

    faults: Mapping[str, int]
    variants: Mapping[str, int]
    good: Mapping[str, date]


@dataclass(frozen=True)
class EventDay:
    """One arrival day of events: the lines without line ends, roughly in order of time, and what is true of them."""

    day: date
    lines: tuple[bytes, ...]
    truth: Truth


def generate_events(
    day: date, rows: int, seed: int, faults: Faults | None = None, *, earliest: date | None = None
) -> EventDay:
    """Make the lines of one arrival day: exactly `rows` of them, blank and broken ones included.

    The days before belong to the same world (same seed, rows and faults): their orders are cancelled and re-sent here
    whether or not those days were ever landed. Sound lines of equal event id are equal, whatever `rows` and `faults`.

    Args:
        day: Arrival date, 1971 to 2037. Sound events happen on it, UTC.
        rows: Lines wanted, 0 or more.
        seed: Picks the shop, its customers and their orders.
        faults: Share of faulty lines, none by default. Counts are rounded up or down by chance, so that over many small
            days a rare fault appears as often as it should.
        earliest: No event is dated before this day: the shop had not opened. None: late and re-sent events may be.

    Raises:
        GeneratorError: `rows` is negative, or the day is out of range.
    """
    if rows < 0:
        raise GeneratorError(f"events of {day}: expected 0 rows or more, got {rows}")
    if not _FIRST_YEAR <= day.year <= _LAST_YEAR:
        raise GeneratorError(f"events of {day}: expected a day of {_FIRST_YEAR} to {_LAST_YEAR}; choose one of those")
    world = _World(seed, rows, faults or Faults())
    layout = _layout(world, day)
    chance = world.chance(day, "damage")
    variants: Counter[str] = Counter()
    good: dict[str, date] = {}
    placed: list[_Placed] = []
    sound: list[_Placed] = []
    for slot, event in enumerate(_sound_events(world, day, layout)):
        fault = layout.faults.get(slot)
        happened: date | None = day
        if fault is None:
            line = to_line(event)
        else:
            variant, line, happened = damage(fault, event, day, chance, earliest)
            variants[f"{fault}.{variant}"] += 1
        if happened is not None:
            good[_id(event)] = happened
        placed.append((event["event_time"], slot, line))
        if fault is None and slot < layout.starts[-1]:
            sound.append(placed[-1])
    if rows > len(placed):
        placed += _repeats(world, day, rows - len(placed), sorted(sound or placed), good, variants, earliest)
    counts = dict.fromkeys(Faults.names(), 0)
    for name, count in variants.items():
        counts[name.partition(".")[0]] += count
    return EventDay(day, tuple(line for *_, line in sorted(placed)), Truth(counts, dict(variants), good))


_Placed = tuple[str, int, bytes]  # what the day is sorted by, and a line


@dataclass(frozen=True)
class _World:
    """What all days have in common."""

    seed: int
    rows: int
    faults: Faults

    def chance(self, day: date, purpose: str) -> Random:
        """A generator of its own for each purpose of a day, so that one draw more here changes nothing there."""
        return Random(_digest(f"{self.seed}|{day}|{purpose}"))

    def size(self, day: date) -> tuple[int, int]:
        """Lines before repeats are added, and orders. Free of look-back, which is what keeps look-back bounded."""
        repeats = _rounded(self.rows * self.faults.duplicates, self.chance(day, "size"))
        base = self.rows - min(repeats, max(self.rows - 1, 0))
        return base, -int(-base // _ROWS_AN_ORDER)


@dataclass(frozen=True)
class _Layout:
    """One day by numbers. Its slots are the lines before repeats: purchases, order by order, then cancellations."""

    baskets: bytes  # lines of each order
    starts: array[int]  # first slot of each order, and the first cancellation's
    cancelled: tuple[tuple[date, int], ...]  # day and number of the orders cancelled on this day
    faults: Mapping[int, str]  # by slot


@dataclass(frozen=True, slots=True)
class _Order:
    placed: int  # microseconds of the day
    cents: tuple[int, ...]  # of the first line, the second … as many as a basket may have
    common: Event  # fields that are the same on all lines


def _digest(key: str, size: int = 64) -> bytes:
    return blake2b(key.encode(), digest_size=size).digest()


def _rounded(number: float, chance: Random) -> int:
    return int(number) + (chance.random() < number - int(number))


@lru_cache(maxsize=4 * LOOK_BACK_DAYS)
def _cancelled_later(world: _World, day: date) -> tuple[tuple[int, ...], ...]:
    """The numbers of the day's orders that are cancelled on the same day, a day later, and so on."""
    chance = world.chance(day, "cancellations")
    _, orders = world.size(day)
    by_lag: list[list[int]] = [[] for _ in range(LOOK_BACK_DAYS + 1)]
    for number in chance.sample(range(orders), _rounded(orders * _CANCELLED, chance)):
        by_lag[int(len(by_lag) * chance.random() ** 1.5)].append(number)
    return tuple(map(tuple, by_lag))


@lru_cache(maxsize=2 * LOOK_BACK_DAYS)
def _layout(world: _World, day: date) -> _Layout:
    base, orders = world.size(day)
    recent = [(day - timedelta(days=lag), lag) for lag in range(LOOK_BACK_DAYS + 1)]
    cancelled = [(ordered, number) for ordered, lag in recent for number in _cancelled_later(world, ordered)[lag]]
    del cancelled[base - orders :]  # matters on days of a few lines only: each order keeps a purchase
    purchases = base - len(cancelled)
    chance = world.chance(day, "baskets")
    baskets = bytearray(chance.choices(_BASKETS, _BASKET_WEIGHTS, k=orders))
    missing = purchases - sum(baskets)
    while missing:
        number, step = chance.randrange(orders), 1 if missing > 0 else -1
        if baskets[number] + step in _BASKETS:
            baskets[number] += step
            missing -= step
    counts = {name: _rounded(world.rows * rate, chance) for name, rate in asdict(world.faults).items()}
    flipped = chance.sample(range(purchases, base), min(counts.pop("positive_cancellations"), len(cancelled)))
    kinds = [name for name, count in counts.items() for _ in range(count) if name != "duplicates"]
    slots = chance.sample(range(purchases), min(len(kinds), purchases))
    faults = dict(zip(slots, kinds, strict=False)) | dict.fromkeys(flipped, "positive_cancellations")
    return _Layout(bytes(baskets), array("L", accumulate(baskets, initial=0)), tuple(cancelled), faults)


def _order(seed: int, day: date, number: int) -> _Order:
    hour, moment, guest, user, method, *draws, name = struct.unpack("<16I", _digest(f"{seed}|{day}|{number}"))
    is_guest = guest < _GUESTS * 2**32
    who = (
        f"guest-{name:08x}" if is_guest else f"u{int(_USERS * (user / 2**32) ** 2.5):06d}"
    )  # few customers order often
    country, currency, level = _home(seed, who)
    opens = bisect_right(_HOURS, hour * _HOURS[-1] >> 32) * _HOUR
    return _Order(
        placed=min(opens + (moment * _HOUR >> 32), _DAY - 2_000_000),  # leaves room for the last lines before midnight
        cents=tuple(
            round(_CENTS[price * len(_CENTS) >> 32] * level) * (1 + (pieces * pieces >> 62))
            for price, pieces in zip(draws[::2], draws[1::2], strict=True)
        ),
        common={
            "user_id": "null" if is_guest else f'"{who}"',
            "order_id": f'"W{day:%Y%m%d}-{number:06d}"',
            "currency": currency,
            "payment_method": f'"{_PAYMENT_METHODS[method * len(_PAYMENT_METHODS) >> 32]}"',
            "email": f'"{who}@example.com"',
            "country": country,
        },
    )


@lru_cache(maxsize=_USERS)
def _home(seed: int, who: str) -> tuple[str, str, float]:
    draw = int.from_bytes(_digest(f"{seed}|{who}", 4)) * _COUNTRY_WEIGHTS[-1] >> 32
    country, currency, level, _ = _COUNTRIES[bisect_right(_COUNTRY_WEIGHTS, draw)]
    return f'"{country}"', f'"{currency}"', level


def _event(key: str, kind: str, moment: str, cents: int, common: Event) -> Event:
    sign, size = ("-", -cents) if cents < 0 else ("", cents)
    return {
        "event_id": f'"{_digest(key, 16).hex()}"',
        "schema_version": "1",
        "user_id": common["user_id"],
        "event_type": f'"{kind}"',
        "event_time": moment,
        "order_id": common["order_id"],
        "amount": f"{sign}{size // 100}.{size % 100:02d}",
        "currency": common["currency"],
        "payment_method": common["payment_method"],
        "email": common["email"],
        "country": common["country"],
    }


def _moment(day: date, micros: int) -> str:
    seconds, micros = divmod(micros, 1_000_000)
    return f'"{day}T{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{micros:06d}Z"'


def _purchase(seed: int, day: date, number: int, line: int, order: _Order) -> Event:
    moment = _moment(day, order.placed + 40_000 * line)
    return _event(f"{seed}|{day}|{number}|{line}", "purchase", moment, order.cents[line], order.common)


def _cancellation(world: _World, day: date, ordered: date, number: int) -> Event:
    order = _order(world.seed, ordered, number)
    cents = sum(order.cents[: _layout(world, ordered).baskets[number]])
    key = f"{world.seed}|{ordered}|{number}|{cents} cancelled {day}"
    opens = order.placed + 1_000_000 if ordered == day else 0
    moment = opens + ((_DAY - opens) * int.from_bytes(_digest(f"{key}|moment", 4)) >> 32)
    return _event(key, "cancellation", _moment(day, moment), -cents, order.common)


def _sound_events(world: _World, day: date, layout: _Layout) -> Iterator[Event]:
    for number, lines in enumerate(layout.baskets):
        order = _order(world.seed, day, number)
        for line in range(lines):
            yield _purchase(world.seed, day, number, line, order)
    for ordered, number in layout.cancelled:
        yield _cancellation(world, day, ordered, number)


def _id(event: Event) -> str:
    return event["event_id"].strip('"')


def _repeats(
    world: _World,
    day: date,
    count: int,
    originals: list[_Placed],
    good: dict[str, date],
    variants: Counter[str],
    earliest: date | None,
) -> Iterator[_Placed]:
    """Repeats of the day's lines (`originals`, by time) and of earlier days', noted in `good` and `variants`."""
    chance = world.chance(day, "repeats")
    for number in range(count):
        kind = chance.choice(("near", "far", "resent", "midnight"))
        earlier = _undamaged_earlier(world, day, chance) if kind == "resent" else None
        if earlier is not None and (earliest is None or earlier[0] >= earliest):
            happened, event = earlier
            good[_id(event)] = happened
            yield _moment(day, chance.randrange(_DAY)), number, to_line(event)
        elif kind == "midnight" and (again := _after_midnight(day, chance, chance.choice(originals))):
            yield again
        elif kind == "far":  # the original is in the day's first quarter, the repeat at its end: "~" sorts after times
            yield "~", number, chance.choice(originals[: 1 + len(originals) // 4])[2]
        else:
            kind = "near"
            yield chance.choice(originals)
        variants[f"duplicates.{kind}"] += 1


def _after_midnight(day: date, chance: Random, original: _Placed) -> _Placed | None:
    """A line sent again after the day's end, as clocks that are some minutes ahead have it; None for a broken line."""
    moment, slot, line = original
    later = _moment(day + timedelta(days=1), chance.randrange(_HOUR // 6))
    again = line.replace(f'"event_time":{moment}'.encode(), f'"event_time":{later}'.encode())
    return None if again == line else ("~", slot, again)


def _undamaged_earlier(world: _World, day: date, chance: Random) -> tuple[date, Event] | None:
    """A purchase as one of the days before holds it; None where almost every line is damaged."""
    for _ in range(20):
        earlier = day - timedelta(days=1 + int(LOOK_BACK_DAYS * chance.random() ** 2))
        layout = _layout(world, earlier)
        number = chance.randrange(len(layout.baskets))
        line = chance.randrange(layout.baskets[number])
        if layout.starts[number] + line not in layout.faults:
            return earlier, _purchase(world.seed, earlier, number, line, _order(world.seed, earlier, number))
    return None
