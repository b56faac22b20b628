"""Chunks of a backfill: each day of each table once, none before what it reads, and the same tables whatever the order.

The last is checked on a lake of numbers: what a table holds for a day is a hash of what it read when its run was on.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import date, timedelta

import pandera.pyspark as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

from lakehouse.catalog import declared
from lakehouse.contracts import Input, Table
from lakehouse.orchestration.chunks import Chunk, asked_for, chunks_of, next_of, one_by_one
from lakehouse.orchestration.pieces import Piece
from lakehouse_tests.fixtures.making import model, table

FIRST = date(2011, 3, 1)
DAYS = [FIRST + timedelta(days=n) for n in range(40)]


def made(name: str, reads: str, days_before: int = 0, days_after: int = 0) -> Table:
    """A gold table, so that there are tables behind an upsert table and behind a window."""
    contract = model("Made", day=(T.DateType(), pa.Field()))
    return table(name, contract, lambda read: read, {"read": Input(reads, days_before, days_after)})


# The lake's own tables (late events, a window, upserts, a database), and what could stand behind them.
TABLES: dict[str, Table] = {
    **declared(),
    "gold.of_orders": made("gold.of_orders", "silver.orders"),
    "gold.of_features": made("gold.of_features", "gold.user_features", 2),
    "gold.of_both": made("gold.of_both", "gold.of_features"),
    "gold.of_visits": made("gold.of_visits", "silver.transactions", 1, 1),
    "gold.of_later": made("gold.of_later", "gold.of_visits", 0, 2),
}
Wanted = Mapping[str, Collection[date]]
Content = dict[tuple[str, date], str]


@st.composite
def backfills(draw: st.DrawFn) -> tuple[Wanted, int]:
    """Days by table, gapless or not and the same for all tables or not, and most days of a run."""
    names = draw(st.lists(st.sampled_from(sorted(TABLES)), min_size=1, unique=True))
    first = draw(st.integers(0, 30))
    days = DAYS[first : first + draw(st.integers(1, 10))]
    some = st.just(days) if draw(st.booleans()) else st.lists(st.sampled_from(days), unique=True)
    return {name: draw(some) for name in names}, draw(st.integers(1, 6))


def reads(name: str, day: date, wanted: Wanted) -> set[tuple[str, date]]:
    """What must be built before a day of a table, of what is built at all: said from the contracts anew."""
    found = set()
    for each in TABLES[name].upstream.values():
        source = TABLES[each.table]
        elsewhere = source.upsert or source.taken or len(source.partition_by) > 1
        days = wanted.get(each.table, ())
        window = {day + timedelta(days=n) for n in range(-each.days_before, each.days_after + 1)}
        found |= {(each.table, read) for read in days if elsewhere or read in window}
    return found


@settings(max_examples=200, deadline=None)
@given(backfills(), st.randoms(use_true_random=False))
def test_each_day_once_and_none_before_what_it_reads(backfill: tuple[Wanted, int], chance: random.Random) -> None:
    """Without it, a window would be computed on days that are not there yet, or a day be built twice or not at all."""
    wanted, most = backfill
    chunks = chunks_of(wanted, TABLES, most)
    built = Counter((name, day) for chunk in chunks for name in chunk.piece.tables for day in chunk.piece.days)
    assert built == Counter((name, day) for name, days in wanted.items() for day in set(days))
    several = len(chunks) > 1
    for place, chunk in enumerate(chunks):
        extracts = any(TABLES[name].taken for name in chunk.piece.tables)
        assert len(chunk.piece.days) <= most or extracts
        before = {pair for n in _behind(chunks, place) for pair in _pairs(chunks[n].piece)}
        for name, day in _pairs(chunk.piece) if several else ():
            assert reads(name, day, wanted) <= before | set(_pairs(chunk.piece)), (name, day)
            window = any(each.days_before or each.days_after for each in TABLES[name].upstream.values())
            assert not window or not reads(name, day, wanted) & set(_pairs(chunk.piece)), "its own run is too early"
    assert Counter(one_by_one(chunks)) == Counter(chunk.piece for chunk in chunks), "a chunk would never start"


def _pairs(piece: Piece) -> list[tuple[str, date]]:
    return [(name, day) for name in piece.tables for day in piece.days]


def _behind(chunks: Sequence[Chunk], place: int) -> set[int]:
    found: set[int] = set()
    left = [*chunks[place].waits_for]
    while left:
        if (one := left.pop()) not in found:
            found.add(one)
            left += chunks[one].waits_for
    return found


@settings(max_examples=200, deadline=None)
@given(backfills())
def test_runs_of_an_upsert_table_are_never_on_together(backfill: tuple[Wanted, int]) -> None:
    """Without it, each would find that the other has changed the table, and compute everything again."""
    chunks = chunks_of(*backfill[:1], TABLES, backfill[1])
    for name in (name for name, each in TABLES.items() if each.upsert):
        own = [n for n, chunk in enumerate(chunks) if name in chunk.piece.tables]
        for place, one in enumerate(own):
            assert set(own[:place]) <= _behind(chunks, one)


def run_at_once(chunks: Sequence[Chunk], at_once: int, chance: random.Random) -> Content:
    """Build the lake of numbers: runs start as they may, take any time, and read what is there at first or at last."""
    content: Content = {}
    over: set[int] = set()
    running: dict[int, Content | None] = {}
    while len(over) < len(chunks):
        while len(running) < at_once and (place := next_of(chunks, over | running.keys(), over)) is not None:
            running[place] = _built(chunks[place].piece, content) if chance.random() < 0.5 else None
        assert running, "nothing runs, and nothing may start"
        ended = chance.choice(sorted(running))
        content |= running.pop(ended) or _built(chunks[ended].piece, content)
        over.add(ended)
    return content


def _built(piece: Piece, content: Content) -> Content:
    made: Content = {}
    for name in piece.tables:
        made |= {(name, day): _computed(name, day, content | made) for day in piece.days}
    return made


def _computed(name: str, day: date, content: Content) -> str:
    read = [name, day.isoformat()]
    for each in TABLES[name].upstream.values():
        source = TABLES[each.table]
        late = 3 if len(source.partition_by) > 1 else 0  # days of an arrival that hold rows of the day
        elsewhere = sorted(d for t, d in content if t == each.table) if source.upsert or source.taken else ()
        days = [day + timedelta(days=n) for n in range(-each.days_before, late + each.days_after + 1)]
        read += [content.get((each.table, d), "") for d in (*days, *elsewhere)]
    return hashlib.sha256("|".join(read).encode()).hexdigest()[:8]


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(backfills(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_tables_come_out_as_from_one_run(backfill: tuple[Wanted, int], at_once: int, chance: random.Random) -> None:
    """Without it, what a backfill gives would depend on how many runs were on and which was quicker."""
    wanted, most = backfill
    days = sorted({day for each in wanted.values() for day in each})
    if any(set(each) != set(days) for each in wanted.values()):
        wanted = dict.fromkeys(wanted, days)  # of days that differ by table there is no one run to compare with
    whole = [Chunk(Piece(tuple(n for n in TABLES if n in wanted), days[0], days[-1]))] if days else []
    if whole and len(days) != len(whole[0].piece.days):
        return
    assert run_at_once(chunks_of(wanted, TABLES, most), at_once, chance) == run_at_once(whole, 1, chance)


def test_the_lake_in_chunks_of_a_month() -> None:
    """Without it, nobody could see what the rules come to: bronze, then the rest; orders in turn; features behind."""
    names = [name for name in TABLES if name.split(".")[1] not in ("orders", "order_status", "of_orders")]
    wanted = {name: DAYS[:20] for name in [*names, "silver.orders"] if not name.startswith("gold.of_")}
    chunks = chunks_of(wanted, TABLES, 10)
    told = [
        (",".join(chunk.piece.tables), chunk.piece.first.day, sorted(chunk.waits_for))
        for chunk in chunks
    ]  # fmt: skip
    bronze = "bronze.events,bronze.online_retail"
    assert told == [
        (bronze, 1, []),
        ("silver.transactions,gold.daily_revenue", 1, [0, 4]),
        ("silver.orders", 1, [1]),
        ("gold.user_features", 1, [1]),
        (bronze, 11, []),
        ("silver.transactions,gold.daily_revenue", 11, [0, 4]),
        ("silver.orders", 11, [2, 5]),
        ("gold.user_features", 11, [1, 5]),
    ]


def test_a_database_is_asked_once() -> None:
    """Without it, every chunk would take a batch of its own, each of them a scan of the source's table."""
    chunks = chunks_of({"bronze.orders": DAYS[:20], "silver.order_status": DAYS[:20]}, TABLES, 5)
    assert [chunk.piece for chunk in chunks if "bronze.orders" in chunk.piece.tables] == [
        Piece(("bronze.orders",), DAYS[0], DAYS[19])
    ]
    assert len(chunks) == 1 + 4


@pytest.mark.parametrize(("most", "runs"), [(None, 1), (4, 3), (5, 2)])
def test_a_range_is_one_run_unless_there_is_a_limit(most: int | None, runs: int) -> None:
    """Without it, a range would be a run for every day, or the limit be taken for something else."""
    chunks = asked_for({"bronze.events": DAYS[:10]}, TABLES, most)
    assert len(chunks) == runs
    assert [day for chunk in chunks for day in chunk.piece.days] == DAYS[:10]
    assert asked_for({}, TABLES, most) == []


def test_days_that_differ_by_table_wait_too() -> None:
    """Without it, `--failed-only --days-per-run 2` would build windows before the days that they look back on."""
    wanted = {"silver.transactions": DAYS[:1], "gold.user_features": DAYS[1:7]}
    first, second = asked_for(wanted, TABLES, 7)
    assert (first.piece.tables, second.piece.tables) == (("silver.transactions",), ("gold.user_features",))
    assert second.waits_for == {0}


def test_without_a_limit_a_day_that_looks_ahead_waits() -> None:
    """Without it, `--failed-only` would build a day before the day after it, and leave it stale."""
    wanted = {"silver.transactions": DAYS[:2], "gold.of_visits": DAYS[:1], "gold.daily_revenue": DAYS[1:2]}
    order = [name for chunk in one_by_one(asked_for(wanted, TABLES, None)) for name in chunk.tables]
    assert order[-1] == "gold.of_visits"
    assert len(asked_for(dict.fromkeys(wanted, DAYS[:9]), TABLES, None)) == 1, "within a run there is an order"


@pytest.mark.slow
def test_ten_thousand_days_are_planned_at_once() -> None:
    """Without it, runs of a day over years of history would take minutes to plan."""
    days = [FIRST + timedelta(days=n) for n in range(1500)]
    chunks = chunks_of({name: days for name in TABLES if not name.startswith("gold.of_")}, TABLES, 1)
    assert len(chunks) > 4 * len(days)
    assert next_of(chunks, (), ()) == 0
