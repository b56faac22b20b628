"""Who is meant by an entity's key: one text for each value, whoever writes it, and never somebody else's."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pandera.pyspark as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from lakehouse.contracts import Features, Input
from lakehouse.errors import OnlineError, UsageError
from lakehouse.online.keys import entity_id, text_of, written
from lakehouse.online.sets import FeatureSet
from lakehouse_tests.features.making import nothing
from lakehouse_tests.fixtures.making import model, table
from lakehouse_tests.online.test_store import USERS

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
# By Spark's name of a type, forms of one value each: as Delta has it first, then as readers do.
SAME: dict[str, list[Any]] = {
    "string": ["17841", 17841, np.int64(17841)],
    "bigint": [17841, "17841", "+017841", 17841.0, np.int64(17841), np.float64(17841), Decimal("17841.0")],
    "int": [-7, "-7", -7.0],
    "decimal(10,3)": [Decimal("1.500"), "1.5", 1.5, Decimal("1.50"), "1.5000"],
    "decimal(38,18)": [Decimal("0E-18"), "0", 0, 0.0, "-0.0"],
    "decimal(38,0)": [Decimal("9" * 38), "9" * 38, int("9" * 38)],
    "date": [date(2026, 3, 1), "2026-03-01", pd.Timestamp("2026-03-01"), datetime(2026, 3, 1)],  # noqa: DTZ001
    "boolean": [True, "true", "True", np.bool_(True)],
    "timestamp": [NOON, "2026-03-01T12:00:00Z", NOON.astimezone(timezone(timedelta(hours=5))), "2026-03-01 12:00:00"],
}
NONE_OF_IT: dict[str, list[Any]] = {
    "string": [17841.0, b"17841", "\ud800", True, ["17841"], {"17841": 1}],
    "bigint": [17841.5, "17841.0", "", "a", "1_0", True, float("nan"), float("inf"), 2.0**60, [1]],
    "decimal(10,3)": [Decimal("1.5001"), "x", float("nan"), "", None],
    "date": ["2026-02-30", NOON, 20260301, "yesterday", pd.Timestamp("2026-03-01", tz="Asia/Tokyo")],
    "boolean": ["yes", 2, "", [True]],
    "timestamp": ["noon", date(2026, 3, 1), 0],
}


def of(kind: str, value: Any) -> str:
    text = text_of(kind)
    assert text is not None
    return written("driver", kind, text, value)


@pytest.mark.parametrize("kind", SAME)
def test_whatever_form_a_value_has_it_is_the_same_entity(kind: str) -> None:
    """Without it, who asks for 17841.0, as pandas has it, or for 1.5 of a price of 1.500, would be told of nobody."""
    first, *others = [of(kind, value) for value in SAME[kind]]
    assert others == [first] * len(others)


@pytest.mark.parametrize("kind", NONE_OF_IT)
def test_what_is_no_value_of_the_column_is_refused(kind: str) -> None:
    """Without it, it would be an entity that is missing, as one is that nothing is known of."""
    for value in NONE_OF_IT[kind]:
        with pytest.raises(UsageError, match="An entity's driver is"):
            of(kind, value)


def test_what_is_refused_is_not_told() -> None:
    """Without it, a person who was asked for would be in the logs of whoever asks."""
    with pytest.raises(UsageError) as refused:
        of("bigint", "ann@example.com")
    assert "ann" not in str(refused.value)


@given(st.lists(st.lists(st.text(max_size=4), min_size=2, max_size=2), min_size=2, max_size=2))
def test_no_two_entities_share_a_key(pair: list[list[str]]) -> None:
    one, two = pair
    assert (entity_id(one) == entity_id(two)) == (one == two)
    both = replace(USERS, key={"a": "string", "b": "string"})
    assert list(both.parts_of(both.redis_key(one))) == one


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**6), max_value=10**6))
def test_a_decimal_is_written_as_its_column_has_it(value: Decimal) -> None:
    text = of("decimal(10,3)", value)
    assert Decimal(text) == value
    assert text == of("decimal(10,3)", str(value.normalize())) == of("decimal(10,3)", text)


def test_nobody_is_refused() -> None:
    with pytest.raises(UsageError, match="null"):
        USERS.redis_key([None])


def test_a_key_that_is_no_name_of_anybody_is_refused() -> None:
    """Without it, 0.1 + 0.2 would be looked for under a name that 0.3 has."""
    kinds = {"place": T.DoubleType, "day": T.DateType, "visits": T.LongType}
    columns = {name: (kind(), pa.Field()) for name, kind in kinds.items()}
    said = Features(entity="place", key=("place",), ttl=timedelta(days=1))
    inputs = {"rows": Input("silver.rows")}
    made = table("gold.places", model("Places", **columns), nothing, inputs, key=("place", "day"), features=said)
    with pytest.raises(OnlineError, match=r"gold.places: the key column place is of type double"):
        FeatureSet.of(made)
