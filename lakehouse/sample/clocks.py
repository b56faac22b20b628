"""Producers of generated events, and what is wrong with their clocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lakehouse.errors import GeneratorError

_OFFSET = re.compile(r"([+-])(\d{1,6})([smhd])", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_NAME = re.compile(r"(?!part$)[A-Za-z][A-Za-z0-9_.-]{0,39}", re.ASCII)
_TIME = re.compile(rb'"event_time":"(\d{4}-[^"]+)"')


def _text(moment: datetime) -> str:
    return f'"{moment:%Y-%m-%dT%H:%M:%S.%fZ}"'


def _mixed(moment: datetime) -> str:
    """Seconds that were read as milliseconds: January 1970."""
    return _text(datetime.fromtimestamp(moment.timestamp() / 1000, UTC))


CLOCKS: Mapping[str, Callable[[datetime], str]] = {
    "epoch": lambda _: '"1970-01-01T00:00:00.000000Z"',
    "2038": lambda _: '"2038-01-19T03:14:08.000000Z"',
    "seconds": lambda moment: str(int(moment.timestamp())),
    "milliseconds": lambda moment: str(int(moment.timestamp() * 1000)),
    "mixed": _mixed,
}
"""What a broken clock writes in place of an event time, as JSON."""


@dataclass(frozen=True)
class Producer:
    """A producer of events; `clock` is empty where it is right, an offset such as `+20m`, or one of `CLOCKS`."""

    name: str
    clock: str = ""


def parse_producers(text: str) -> tuple[Producer, ...]:
    """Read `web,app=+20m,till=epoch`.

    Raises:
        GeneratorError: For a name that cannot be part of a file's, one that is named twice, or an unknown clock.
    """
    found = [
        Producer(name.strip(), clock.strip())
        for name, _, clock in (part.partition("=") for part in text.split(",") if part.strip())
    ]
    for each in found:
        if not _NAME.fullmatch(each.name) or sum(other.name == each.name for other in found) > 1:
            raise GeneratorError(
                f"producers: expected names of letters, digits, _, . and -, once each, not part; got {each.name!r}"
            )
        if each.clock and each.clock not in CLOCKS and not _OFFSET.fullmatch(each.clock):
            known = ", ".join(CLOCKS)
            raise GeneratorError(
                f"producer {each.name}: expected a clock such as +20m, -3h or +1d, or {known}; got {each.clock!r}"
            )
    return tuple(found)


def redated(line: bytes, clock: str) -> bytes:
    """An event's line as a producer with that clock would have written it; a line without a time stays as it is."""
    if not clock:
        return line
    if offset := _OFFSET.fullmatch(clock):
        return moved(line, timedelta(seconds=int(f"{offset[1]}{offset[2]}") * _UNITS[offset[3]]))
    return _rewritten(line, CLOCKS[clock])


def moved(line: bytes, by: timedelta) -> bytes:
    """An event's line with another time; a line without one stays as it is."""
    return _rewritten(line, lambda moment: _text(moment + by))


def _rewritten(line: bytes, write: Callable[[datetime], str]) -> bytes:
    def written(found: re.Match[bytes]) -> bytes:
        return b'"event_time":' + write(datetime.fromisoformat(found[1].decode())).encode()

    try:
        return _TIME.sub(written, line, count=1)
    except (ValueError, OverflowError):  # no time, or one that no clock can move
        return line
