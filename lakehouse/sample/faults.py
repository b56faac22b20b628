"""Faults of generated events: how many of each kind, and what each does to a sound event."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, date, datetime, time, timedelta
from random import Random

from lakehouse.errors import GeneratorError

Event = dict[str, str]
"""One event: field name → JSON text of its value, so that an amount keeps two decimals and a fault can be any text."""


@dataclass(frozen=True)
class Faults:
    """How much of a day is faulty: for each kind of fault the share of the day's lines, 0 to 1, together at most 1.

    A line carries at most one fault. Most kinds damage purchases. `duplicates` adds exact repeats of sound purchases:
    next to the original, at the end of the day (so in another file, if there are several), or re-sent from one of the
    ten days before; or it sends one again after midnight, with the new time and the old id. `shared_orders` gives a
    purchase an order id that the retail system's sample uses on that day. `positive_cancellations` needs cancellations,
    about 1 % of a day, and stops when none are left.

    Raises:
        GeneratorError: A rate is outside 0..1, or they exceed 1 together.
    """

    duplicates: float = 0.0
    nulls: float = 0.0
    future: float = 0.0
    late: float = 0.0
    malformed: float = 0.0
    unknown_fields: float = 0.0
    wrong_types: float = 0.0
    negative_amounts: float = 0.0
    huge_amounts: float = 0.0
    positive_cancellations: float = 0.0
    unknown_currency: float = 0.0
    unknown_event_type: float = 0.0
    shared_orders: float = 0.0

    def __post_init__(self) -> None:
        rates = asdict(self)
        for name, rate in rates.items():
            if not 0 <= rate <= 1:
                raise GeneratorError(
                    f"fault {name}: expected a rate from 0 to 1, got {rate:g}; 0.01 is one line in 100"
                )
        if sum(rates.values()) > 1 + 1e-9:
            raise GeneratorError(f"faults: expected rates of at most 1 in all, got {sum(rates.values()):g}; lower some")

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """All kinds of fault."""
        return tuple(kind.name for kind in fields(cls))

    @classmethod
    def default(cls) -> Faults:
        """A bad but believable day: about one line in twenty."""
        rare = dict.fromkeys(cls.names(), 0.001)
        return cls(
            **rare | {"late": 0.02, "duplicates": 0.01, "nulls": 0.005, "unknown_fields": 0.005, "wrong_types": 0.002}
        )

    @classmethod
    def all(cls, rate: float = 0.02) -> Faults:
        """Every kind of fault at the same rate."""
        return cls(**dict.fromkeys(cls.names(), rate))

    @classmethod
    def parse(cls, text: str) -> Faults:
        """Read `duplicates=0.01,late=0.02`, a preset (`none`, `default`, `all`), or a preset with some rates changed.

        Raises:
            GeneratorError: An unknown name, a preset that is not first, or a rate that is no number or out of bounds.
        """
        presets: dict[str, Callable[[], Faults]] = {"none": cls, "default": cls.default, "all": cls.all}
        parts = [part.strip() for part in text.split(",") if part.strip()]
        faults = presets[parts.pop(0)]() if parts and parts[0] in presets else cls()
        rates: dict[str, float] = {}
        for part in parts:
            name, _, value = (piece.strip() for piece in part.partition("="))
            if name not in cls.names():
                expected = f"name=rate with one of {', '.join(cls.names())}, or first one of {', '.join(presets)}"
                raise GeneratorError(f"faults: expected {expected}; got {part!r}")
            try:
                rates[name] = float(value)
            except ValueError:
                raise GeneratorError(
                    f"fault {name}: expected a rate from 0 to 1, got {value!r}; write {name}=0.01"
                ) from None
        return replace(faults, **rates)


def damage(
    fault: str, event: Event, day: date, chance: Random, earliest: date | None = None
) -> tuple[str, bytes, date | None]:
    """Damage one event.

    Args:
        fault: A kind of fault, not `duplicates`.
        event: A sound event of the day, left as it is.
        day: Arrival date.
        chance: Decides the variant and its values.
        earliest: No late event is moved to before this day; None: none is held back.

    Returns:
        The variant, the damaged line, and the event's day (UTC) where it still passes the row rules.
    """
    variant = chance.choice(tuple(_VARIANTS[fault]))
    damaged = _VARIANTS[fault][variant](event, day, chance)
    if isinstance(damaged, bytes):
        return variant, damaged, None
    if earliest is not None and fault == "late":
        happened = max(damaged["event_time"][1:11], earliest.isoformat())
        damaged = damaged | {"event_time": f'"{happened}{damaged["event_time"][11:]}'}
    passes = fault in _HARMLESS or f"{fault}.{variant}" in _HARMLESS
    return variant, to_line(damaged), date.fromisoformat(damaged["event_time"][1:11]) if passes else None


def to_line(event: Event) -> bytes:
    """The event as one JSON object, without a line end."""
    return ("{" + ",".join([f'"{name}":{value}' for name, value in event.items()]) + "}").encode()


_Variant = Callable[[Event, date, Random], "Event | bytes"]


def _missing(name: str) -> tuple[str, _Variant]:
    def variant(event: Event, _day: date, chance: Random) -> Event:
        if event[name] != "null" and chance.getrandbits(1):
            return event | {name: "null"}
        return {key: value for key, value in event.items() if key != name}

    return name, variant


def _set(name: str, *values: str) -> _Variant:
    """Put one of some JSON texts into a field; `{}` in a text stands for the field's own, without quotes and sign."""
    return lambda event, _day, chance: event | {name: chance.choice(values).replace("{}", event[name].strip('"-'))}


def _moved(first: int, last: int, skew: float = 1.0) -> _Variant:
    """Move the event by `first` to `last` days, keeping its time of day; the higher the skew, the nearer to `first`."""

    def variant(event: Event, day: date, chance: Random) -> Event:
        happened = day + timedelta(days=first + int((last - first) * chance.random() ** skew))
        return event | {"event_time": f'"{happened}{event["event_time"][11:]}'}

    return variant


def _truncated(event: Event, _day: date, chance: Random) -> bytes:
    line = to_line(event)
    return line[: chance.randrange(1, len(line))]


def _hours_ahead(event: Event, day: date, chance: Random) -> Event:
    moment = datetime.combine(day, time.min, UTC) + timedelta(days=1, hours=chance.randint(1, 48), microseconds=1)
    return event | {"event_time": f'"{moment:%Y-%m-%dT%H:%M:%S.%fZ}"'}


def _epoch(units_a_second: int) -> _Variant:
    def variant(event: Event, _day: date, _chance: Random) -> Event:
        moment = datetime.fromisoformat(event["event_time"].strip('"'))
        return event | {"event_time": str(int(moment.timestamp() * units_a_second))}

    return variant


def first_invoice(day: date) -> int:
    """The first invoice of a day in the sample of the retail system: six digits, no number twice in over a year."""
    return 600_000 + day.toordinal() % 399 * 1_000


def _invoice(event: Event, day: date, chance: Random) -> Event:
    return event | {"order_id": f'"{first_invoice(day) + chance.randrange(5)}"'}


def _nested(event: Event, _day: date, chance: Random) -> Event:
    device = {"os": chance.choice(("ios", "android")), "app": {"version": f"4.{chance.randrange(10)}", "beta": False}}
    return event | {"device": json.dumps(device)}


_VARIANTS: Mapping[str, Mapping[str, _Variant]] = {
    "nulls": dict(
        map(
            _missing,
            ("event_id", "event_time", "event_type", "amount", "currency", "user_id", "payment_method", "email"),
        )
    ),
    "future": {
        "hours": _hours_ahead,  # beyond the quarter of an hour that clocks may differ
        "years": _moved(365, 3650),
        "beyond_32_bits": _set("event_time", '"2038-01-19T03:14:08.000000Z"'),
        "end_of_time": _set("event_time", '"9999-12-31T23:59:59.999999Z"'),
    },
    "late": {"days": _moved(-1, -31, skew=3)},
    "malformed": {
        "truncated": _truncated,
        "binary": lambda _event, _day, chance: b"\x00\xff" + chance.randbytes(40).translate(None, b"\r\n"),
        "not_object": lambda _event, _day, chance: chance.choice((b"[]", b"42", b"null", b"true", b'"text"')),
        "empty": lambda _event, _day, _chance: b"",
    },
    "unknown_fields": {
        "scalar": lambda event, _day, chance: event | {"campaign": f'"spring-{chance.randint(1, 5)}"'},
        "nested": _nested,
    },
    "wrong_types": {
        "amount_comma": lambda event, _day, _chance: event | {"amount": f'"{event["amount"].replace(".", ",")}"'},
        "amount_object": _set("amount", '{"value":{},"unit":"major"}'),
        "time_seconds": _epoch(1),
        "time_millis": _epoch(1000),
        "user_number": lambda event, _day, chance: event | {"user_id": str(chance.randrange(1, 100_000))},
    },
    "negative_amounts": {"purchase": _set("amount", "-{}")},
    "huge_amounts": {"beyond_bound": _set("amount", "9000000{}"), "beyond_decimal": _set("amount", "1e25")},
    "positive_cancellations": {"cancellation": _set("amount", "{}")},
    "unknown_currency": {"code": _set("currency", '"ZZZ"', '"BTC"', '"EURO"', '""')},
    "shared_orders": {"invoice": _invoice},
    "unknown_event_type": {"type": _set("event_type", '"page_view"', '"wish"', '"voucher"')},
}
_HARMLESS = {
    "late",
    "shared_orders",
    "unknown_fields",
    "nulls.user_id",
    "nulls.payment_method",
    "nulls.email",
    "wrong_types.user_number",
}
