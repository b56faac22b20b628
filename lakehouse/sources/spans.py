"""Topics as their brokers have them, and parts of them, as offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """One partition of a topic, as its broker has it: offsets from `first` on, up to and without `end`."""

    first: int
    end: int


@dataclass(frozen=True)
class Found:
    """One topic as its brokers have it.

    Attributes:
        id: given once: a topic that was deleted and made anew has another.
        parts: by number.
    """

    id: str
    parts: Mapping[int, Part]


@dataclass(frozen=True)
class Span:
    """Messages of one partition of a topic: offsets from `start` on, up to and without `end`."""

    topic: str
    partition: int
    start: int
    end: int


def messages_in(spans: Iterable[Span]) -> int:
    """How many offsets some spans hold: their messages, and those that are not there any more."""
    return sum(span.end - span.start for span in spans)
