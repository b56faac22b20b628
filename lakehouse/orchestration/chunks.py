"""Many runs for one backfill: days cut into chunks, and which of them wait for which.

However many are built at once and in whatever order, the tables come out as from one run over all days.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from lakehouse.days import shifted
from lakehouse.orchestration.pieces import Piece, pieces_of

if TYPE_CHECKING:
    from lakehouse.contracts import Input, Table


@dataclass(frozen=True)
class Chunk:
    """One run, and the places in the list of chunks of those that must be over before it starts."""

    piece: Piece
    waits_for: frozenset[int] = frozenset()


def chunks_of(wanted: Mapping[str, Collection[date]], tables: Mapping[str, Table], days_per_run: int) -> list[Chunk]:
    """Runs of at most so many days that together build every wanted day of every table once.

    A table that reads days of other chunks is built in runs of its own, which wait for these: a window looks back or
    ahead, and late rows make each arrival day a part of any event day. Runs of an upsert table, which would exclude
    each other, wait for one another. What takes one batch from a database, whatever the days, is not cut.

    Args:
        wanted: days by table.
        tables: contracts, upstream first, of the wanted tables and more.
        days_per_run: most days of one run, and the grid on which all tables are cut.
    """
    names = [name for name in tables if wanted.get(name)]
    days = sorted(set[date]().union(*(wanted[name] for name in names)))
    # One run that fits needs no order: Dagster keeps it within the run.
    if len(one := pieces_of(wanted, names)) <= 1 and len(days) <= days_per_run:
        return [Chunk(piece) for piece in one]
    placed: list[tuple[int, int, Piece]] = []
    for number, group in enumerate(_groups(names, tables)):
        cuts = _cut({name: wanted[name] for name in group}, tables, days[0], days_per_run)
        # By span and by group: all tables of early days come before any of later ones.
        placed += [(span, number, piece) for span, cut in cuts.items() for piece in pieces_of(cut, group)]
    # Early days get as far as they can before later ones begin.
    pieces = [piece for *_, piece in sorted(placed, key=lambda each: (each[0], each[1], each[2].first))]
    return [Chunk(piece, waits) for piece, waits in zip(pieces, _waits(pieces, tables), strict=True)]


def asked_for(
    wanted: Mapping[str, Collection[date]], tables: Mapping[str, Table], days_per_run: int | None
) -> list[Chunk]:
    """As few runs as possible, unless there is a limit to their days.

    Args:
        wanted: days by table.
        tables: contracts, upstream first, of the wanted tables and more.
        days_per_run: most days of one run; None: any number.
    """
    if days_per_run is not None:
        return chunks_of(wanted, tables, days_per_run)
    pieces = pieces_of(wanted, [name for name in tables if name in wanted])
    looks_ahead = any(each.days_after for name in wanted for each in tables[name].upstream.values())
    if len(pieces) > 1 and looks_ahead:  # then it is not enough that earlier days come first
        return chunks_of(wanted, tables, (max(each.last for each in pieces) - pieces[0].first).days + 1)
    return [Chunk(piece) for piece in pieces]


def next_of(chunks: Sequence[Chunk], started: Collection[int], over: Collection[int]) -> int | None:
    """The place of the next chunk that may start; None where there is none, or none yet.

    Args:
        chunks: all of them.
        started: places of those that have been started.
        over: places of those that have ended, well or not.
    """
    ended = frozenset(over)
    left = (n for n in range(len(chunks)) if n not in started)
    return next((n for n in left if chunks[n].waits_for <= ended), None)


def one_by_one(chunks: Sequence[Chunk]) -> list[Piece]:
    """The pieces of all chunks, each behind those it waits for."""
    done: dict[int, None] = {}
    while (place := next_of(chunks, done, done)) is not None:
        done[place] = None
    return [chunks[place].piece for place in done]


def _groups(names: Sequence[str], tables: Mapping[str, Table]) -> list[tuple[str, ...]]:
    """Tables that one run builds together: what reads other chunks' days of a table is in a later group than it."""
    level: dict[str, int] = {}
    groups: dict[tuple[int, str], list[str]] = {}
    for name in names:
        table = tables[name]
        inputs = [each for each in table.upstream.values() if each.table in level]
        level[name] = max((level[each.table] + _reads_others(table, each, tables) for each in inputs), default=0)
        # Its runs wait for each other or are not cut, so no other table shall have to wait with it.
        alone = name if table.upsert or table.taken is not None else ""
        groups.setdefault((level[name], alone), []).append(name)
    return [tuple(groups[key]) for key in sorted(groups)]


def _reads_others(table: Table, each: Input, tables: Mapping[str, Table]) -> bool:
    return each.reads_other_days or table.unique_days > 0 or _moves(tables[each.table])


def _moves(table: Table) -> bool:
    """Whether a run over some days can change what the table holds for other days, as those who read it see days."""
    return table.upsert or table.taken is not None or table.content_day_column != table.day_column


def _cut(
    wanted: Mapping[str, Collection[date]], tables: Mapping[str, Table], begin: date, days_per_run: int
) -> dict[int, dict[str, list[date]]]:
    """Days by table and by span of the one grid, so that runs of different tables end on the same days."""
    spans: dict[int, dict[str, list[date]]] = {}
    for name, days in wanted.items():
        for day in days:
            # One batch, whatever the days: it is taken by the first run, and the others would find nothing new.
            span = 0 if tables[name].taken is not None else (day - begin).days // days_per_run
            spans.setdefault(span, {}).setdefault(name, []).append(day)
    return spans


def _waits(pieces: Sequence[Piece], tables: Mapping[str, Table]) -> Iterator[frozenset[int]]:
    by_table: dict[str, list[int]] = {}
    for place, piece in enumerate(pieces):
        for name in piece.tables:
            by_table.setdefault(name, []).append(place)
    whole: dict[frozenset[str], frozenset[int]] = {}  # shared, since it may be long
    for place, piece in enumerate(pieces):
        moving: set[str] = set()
        some: set[int] = set()
        for name in piece.tables:
            # What is not built here is read as it is; what moves rows to any day has to be over as a whole.
            read = [each for each in tables[name].upstream.values() if each.table in by_table]
            moving |= {each.table for each in read if _moves(tables[each.table])}
            for each in (each for each in read if each.table not in moving):
                beside = tables[name].unique_days
                before, after = each.days_before + beside, each.days_after + beside
                some.update(_holding(pieces, by_table[each.table], piece, before, after))
            if tables[name].upsert:  # of its runs each waits for the one before
                some.update(by_table[name][: by_table[name].index(place)][-1:])
        key = frozenset(moving)
        if key not in whole:
            whole[key] = frozenset(n for name in moving for n in by_table[name])
        some.discard(place)
        yield whole[key] | some if some else whole[key]


def _holding(pieces: Sequence[Piece], places: Sequence[int], piece: Piece, before: int, after: int) -> Iterator[int]:
    """Those of some pieces that hold days of a piece, or of some days before and after it."""
    first, last = shifted(piece.first, -before), shifted(piece.last, after)
    return (n for n in places if pieces[n].first <= last and pieces[n].last >= first)
