"""Which tables read which, however the files are named, and whatever of a lake is there."""

from __future__ import annotations

import pytest

from lakehouse.contracts import Table
from lakehouse.contracts.graph import all_downstream, all_upstream, upstream_first
from lakehouse.errors import ContractError
from lakehouse_tests.fixtures.making import reading


def by_name(*tables: Table) -> dict[str, Table]:
    """Tables as a lake has them."""
    return {each.id: each for each in tables}


DIAMOND = by_name(
    reading("gold.d", "silver.b", "silver.c"),
    reading("silver.c", "bronze.a"),
    reading("silver.b", "bronze.a"),
    reading("bronze.a"),
)


def test_order_does_not_depend_on_names() -> None:
    """Without it, tables would be in order only as long as their names happen to be."""
    chain = by_name(reading("gold.a", "silver.z"), reading("silver.z", "bronze.m"), reading("bronze.m"))
    assert list(upstream_first(chain)) == ["bronze.m", "silver.z", "gold.a"]
    assert list(upstream_first(DIAMOND)) == ["bronze.a", "silver.b", "silver.c", "gold.d"]


def test_a_circle_is_shown_whole() -> None:
    """Without it, loading would end in a recursion error that names no table."""
    ring = by_name(reading("gold.a", "gold.b"), reading("gold.b", "gold.c"), reading("gold.c", "gold.a"))
    with pytest.raises(ContractError, match=r"circle: gold\.a → gold\.b → gold\.c → gold\.a"):
        upstream_first(ring)
    with pytest.raises(ContractError, match=r"circle: gold\.a → gold\.a"):
        upstream_first({"gold.a": reading("gold.a", "gold.a")})


def test_what_a_table_reads_and_what_reads_it_is_told_however_far() -> None:
    """Without it, a day that is stale would not be built again further down, or a replay be asked of one table alone."""
    assert all_upstream(DIAMOND, DIAMOND["gold.d"]) == {"silver.b", "silver.c", "bronze.a"}
    assert all_upstream(DIAMOND, DIAMOND["bronze.a"]) == set()
    assert all_downstream(DIAMOND, "bronze.a") == ["gold.d", "silver.c", "silver.b"]
    assert all_downstream(DIAMOND, "gold.d") == []


def test_an_input_that_is_not_there_is_left_out() -> None:
    """Without it, a lake of some tables could not tell which of its days are open."""
    some = {name: each for name, each in DIAMOND.items() if name != "silver.b"}
    assert all_upstream(some, DIAMOND["gold.d"]) == {"silver.c", "bronze.a"}
