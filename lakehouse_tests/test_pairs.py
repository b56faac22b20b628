"""What is put together in pairs is what a chain gives, and not as deep."""

from __future__ import annotations

from functools import reduce
from operator import add, and_

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakehouse.pairs import in_pairs


@given(st.lists(st.text(max_size=2), min_size=1, max_size=40))
def test_it_gives_what_a_chain_gives_in_its_order(parts: list[str]) -> None:
    """Without it, a part could be left out or change places where their number is odd."""
    assert in_pairs(add, parts) == reduce(add, parts)


def test_a_hundred_parts_are_seven_deep() -> None:
    """Without it, all of this would be for nothing."""
    assert in_pairs(lambda one, other: 1 + max(one, other), [0] * 100) == 7


def test_of_nothing_it_gives_what_it_was_told_to() -> None:
    """Without it, a table with no column to compare would end with an index."""
    assert in_pairs(add, [], empty="none") == "none"
    with pytest.raises(ValueError, match="nothing to combine"):
        in_pairs(add, [])


def test_a_hundred_conditions_reach_the_engine(spark: SparkSession) -> None:
    """Without it, a table with fifty rules could be built by an engine in the same process, and by no warm one."""
    kept = spark.range(300).where(in_pairs(and_, [F.col("id") >= n for n in range(100)]))
    assert kept.count() == 201
