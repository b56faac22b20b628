"""What a table may declare of its features, and what is refused by name."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.catalog import declared as all_tables
from lakehouse.contracts import Features, Input, Table
from lakehouse.contracts.code import POLICY
from lakehouse.contracts.features import feature_tables
from lakehouse.contracts.fitting import entity_mistakes
from lakehouse.errors import ContractError
from lakehouse_tests.contracts.test_table import sales
from lakehouse_tests.fixtures.making import model, table

COLUMNS = {
    "till": (T.StringType(), pa.Field()),
    "day": (T.DateType(), pa.Field()),
    "region": (T.StringType(), pa.Field(nullable=True)),
    "amount": (T.LongType(), pa.Field()),
}
TILL = Features(entity="till", key=("till",), ttl=timedelta(days=2))


def declared(name: str = "gold.sales", columns: Any = None, **policy: Any) -> Table:
    """A sound table of features, but for the policy given."""
    policy = {"key": ("till", "day"), "features": TILL, **policy}
    return table(
        name, model("Sales", **{**COLUMNS, **(columns or {})}), sales, {"rows": Input("silver.rows")}, **policy
    )


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            {"features": Features(entity="till", key=("til",), ttl=timedelta(1))},
            "features.key: expected a column of Sales (till, day, region, amount), got 'til'. Did you mean 'till'?",
        ),
        (
            {"key": ("till", "day", "amount")},
            "features.key: expected the table's key (till, day, amount) but for its day, day, which has to be in it, got till.",
        ),
        ({"key": ("till",)}, "features.key: expected the table's key (till) but for its day, day, which has to be in"),
        (
            {"features": Features(entity="till", key=(), ttl=timedelta(1))},
            "for its day, day, which has to be in it, got none. A row is of one entity and one day",
        ),
        (
            {"partition_by": ("day", "region")},
            "features: expected a table that is partitioned by its day alone, got day, region. Take the further columns",
        ),
        ({"key": ("till", "day", "region", "amount"), "features": Features(entity="t", key=("till", "region", "amount"), ttl=timedelta(1))},
         "features: expected a column beside the key, got none."),
    ],
)  # fmt: skip
def test_features_that_do_not_fit_the_table_are_refused(policy: dict[str, Any], message: str) -> None:
    """Without it, a join by time would find out at the first request, or join other rows."""
    with pytest.raises(ContractError, match=re.escape(message)):
        declared(**policy)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"entity": "Till"}, "features.entity: expected a name of small letters, digits and _, got 'Till'."),
        ({"key": "till"}, "features.key: expected a tuple of names, got 'till'. A tuple of one has a comma"),
        (
            {"ttl": timedelta(0)},
            "features.ttl: expected a time above zero, got 0:00:00. Write it as timedelta(days=7).",
        ),
        ({"ttl": 7}, "features.ttl: expected a time above zero, got 7."),
    ],
)
def test_a_word_that_is_wrong_by_itself_is_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError, match=re.escape(message)):
        Features(**{"entity": "till", "key": ("till",), "ttl": timedelta(1), **words})


def test_a_row_may_be_used_from_the_end_of_its_day() -> None:
    """Without it, a row could be used while its day still goes on: it knows the rest of the day."""
    made = declared()
    assert made.features is not None
    assert made.features.columns(made) == ("region", "amount")
    assert made.features.valid_from(date(2024, 12, 31)) == datetime(2025, 1, 1, tzinfo=UTC)
    assert made.features.valid_until(date(2024, 12, 31)) == datetime(2025, 1, 3, tzinfo=UTC)


def test_tables_of_one_entity_have_one_key() -> None:
    """Without it, two tables of one entity could not be joined to the same labels."""
    first = declared()
    other = declared("gold.tills", {"till": (T.LongType(), pa.Field())})
    found = {first.id: first, other.id: other, "x": declared("gold.plain", features=None)}
    assert [each.id for each in feature_tables(found.values(), "till")] == ["gold.sales", "gold.tills"]
    assert feature_tables(found.values(), "user") == []
    assert entity_mistakes(first, found) == entity_mistakes(found["x"], found) == []
    (mistake,) = entity_mistakes(other, found)
    assert "expected the key of till, as gold.sales has it (till string), got till bigint" in str(mistake)


@pytest.mark.parametrize("home", ["lakehouse", "lakehouse_tests.fixtures.shop"])
def test_the_feature_tables_say_so(home: str) -> None:
    """Without it, another number of days would make every published day stale, which it does not change."""
    found = feature_tables(all_tables(home).values(), "user")
    assert "gold.user_features" in [each.id for each in found]
    assert "features" in POLICY
