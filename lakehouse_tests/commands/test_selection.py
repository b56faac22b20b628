"""Which tables and days: Dagster's grammar, plain names, and as few runs as possible."""

from datetime import date, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.catalog import tables
from lakehouse.days import contiguous
from lakehouse.errors import UnknownTableError
from lakehouse.orchestration.pieces import pieces_of
from lakehouse.runs.selection import select_tables
from lakehouse.texts import days_text

GOLD = ["gold.daily_revenue", "gold.user_features"]
DAY = date(2011, 3, 1)
days = st.sets(st.integers(0, 25).map(lambda n: DAY + timedelta(days=n)), max_size=12)


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (None, list(tables())),
        ("*", list(tables())),
        ('key:"gold/*"', GOLD),
        ("group:gold", GOLD),
        ("gold.user_features", ["gold.user_features"]),
        ("gold/user_features", ["gold.user_features"]),
        ("gold.user_features or gold.daily_revenue", GOLD),
        (
            'tag:pii=true and not key:"bronze/*"',
            ["silver.transactions", "silver.orders", "gold.user_features"],
        ),
        ("silver.transactions+", ["silver.transactions", "silver.orders", *GOLD]),
        ('1+key:"silver/orders"', ["silver.transactions", "silver.orders"]),
    ],
)
def test_selections(selection: str | None, chosen: list[str]) -> None:
    assert select_tables(None if selection is None else [selection]) == chosen


def test_several_selections_are_all_selected() -> None:
    """Without it, `-s a -s b` would build `b` alone and say that all is done."""
    assert select_tables(["group:gold", "silver.orders"]) == ["silver.orders", *GOLD]
    with pytest.raises(UnknownTableError, match="group:gould"):
        select_tables(["silver.orders", "group:gould"])


@pytest.mark.parametrize("selection", ['key:"gold/nothing"', "group:gould", "gold.user_feature", "((", ""])
def test_a_selection_that_matches_nothing_is_an_error(selection: str) -> None:
    with pytest.raises(UnknownTableError, match="matches no table"):
        select_tables([selection])


def test_a_misspelt_name_is_told_its_neighbours() -> None:
    with pytest.raises(UnknownTableError, match=r"Did you mean gold\.user_features"):
        select_tables(["gold.user_feature"])


@given(days)
def test_ranges_are_gapless_and_complete(wanted: set[date]) -> None:
    spans = contiguous(wanted)
    covered = [first + timedelta(days=n) for first, last in spans for n in range((last - first).days + 1)]
    assert covered == sorted(wanted)
    assert all((after[0] - before[1]).days > 1 for before, after in pairwise(spans))


def test_days_are_told_as_ranges() -> None:
    assert days_text([DAY, DAY + timedelta(days=1), DAY + timedelta(days=3)]) == "2011-03-01 … 2011-03-02, 2011-03-04"


@given(st.dictionaries(st.sampled_from(GOLD), days))
def test_pieces_cover_exactly_what_is_wanted(wanted: dict[str, set[date]]) -> None:
    pieces = pieces_of(wanted, GOLD)
    covered = [(table, day) for piece in pieces for table in piece.tables for day in piece.days]
    assert sorted(covered) == sorted((table, day) for table, each in wanted.items() for day in each)
    assert [piece.first for piece in pieces] == sorted(piece.first for piece in pieces)


def test_one_range_of_all_tables_is_one_run() -> None:
    wanted = {name: {DAY + timedelta(days=n) for n in range(9)} for name in GOLD}
    (piece,) = pieces_of(wanted, GOLD)
    assert (piece.tables, piece.first, piece.last) == (tuple(GOLD), DAY, DAY + timedelta(days=8))
