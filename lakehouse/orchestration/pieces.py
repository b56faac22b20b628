"""Days as runs: gapless ranges of days, with the tables that are built over them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise

from lakehouse.days import contiguous, days_between

WIDEST_BRIDGE = 7  # days; a longer gap is two runs


@dataclass(frozen=True)
class Piece:
    """One Dagster run: tables, and a gapless range of days."""

    tables: tuple[str, ...]
    first: date
    last: date

    @property
    def days(self) -> list[date]:
        """Every day of the range."""
        return days_between(self.first, self.last)


def pieces_of(wanted: Mapping[str, Collection[date]], order: Sequence[str]) -> list[Piece]:
    """As few runs as possible for days that differ by table: one for each gapless range with the same tables.

    Earlier days come first, because a window looks back.

    Args:
        wanted: days by table.
        order: all tables, upstream first.
    """
    by_tables: dict[tuple[str, ...], list[date]] = {}
    for day in sorted({day for days in wanted.values() for day in days}):
        names = tuple(name for name in order if day in wanted.get(name, ()))
        by_tables.setdefault(names, []).append(day)
    pieces = [Piece(names, first, last) for names, days in by_tables.items() for first, last in contiguous(days)]
    return sorted(pieces, key=lambda piece: piece.first)


def bridged(days: Collection[date], leave: Collection[date]) -> set[date]:
    """The days, and those between that are up to date: a run over them leaves them alone, and costs less than two runs.

    Args:
        days: what to build.
        leave: days that must not be part of a run.
    """
    whole = set(days)
    ordered = sorted(days)
    for one, next_one in pairwise(ordered):
        between = {one + timedelta(days=n) for n in range(1, (next_one - one).days)}
        if len(between) <= WIDEST_BRIDGE and not between & set(leave):
            whole |= between
    return whole
