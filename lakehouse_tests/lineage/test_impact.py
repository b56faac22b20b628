"""What depends on a column is found through every table, with the rules and checks that would tell of a change."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import SparkSession

from lakehouse.catalog import tables
from lakehouse.checks.audit import check_names
from lakehouse.contracts.lineage import grouping
from lakehouse.lineage.impact import ASKED, GROUPS, VALUE, Affected, checks_of_column, impact


def found(*asked: tuple[str, str]) -> dict[str, Affected]:
    return {f"{each.table}.{each.column}": each for each in impact(tables(), set(asked))}


def test_an_amount_reaches_revenue_and_features() -> None:
    """Whoever changes it has to hear of every figure made of it, and of nothing else."""
    hit = found(("bronze.events", "amount"))
    assert {name: each.how for name, each in hit.items()} == {
        "bronze.events.amount": ASKED,
        "silver.transactions.amount": VALUE,
        "silver.orders.amount": VALUE,
        "gold.daily_revenue.gross_revenue": VALUE,
        "gold.daily_revenue.cancelled_amount": VALUE,
        "gold.daily_revenue.net_revenue": VALUE,
        "gold.user_features.rolling_7d_amount": VALUE,
    }
    silver = hit["silver.transactions.amount"]
    assert silver.via == (("bronze.events", "amount"),)
    assert set(silver.rules) == {"amount_within_bounds", "purchase_amount_positive", "cancellation_amount_negative"}
    assert set(silver.checks) == {
        "null_rates",
        "row_rules",
        "quarantine_depth",
        "mean_shift",
        "gold.daily_revenue.reconciliation",
    }
    assert hit["gold.daily_revenue.net_revenue"].owner == "team:finance"
    assert "reconciliation" in hit["gold.daily_revenue.net_revenue"].checks


def test_what_a_key_is_made_of_decides_every_column() -> None:
    """Users that are named otherwise get other counts, though no count is computed from a name."""
    hit = found(("silver.transactions", "user_id"))
    features = {each.column: each.how for each in hit.values() if each.table == "gold.user_features"}
    assert features.pop("user_id") == VALUE
    assert set(features) == set(tables()["gold.user_features"].columns) - {"user_id"}
    assert set(features.values()) == {GROUPS}
    assert hit["silver.orders.user_id"].how == VALUE
    assert "silver.orders.amount" not in hit
    assert grouping(tables()["silver.transactions"], tables()) == (), "one row of it is made of one row"


def test_a_landed_field_is_followed_past_its_new_name() -> None:
    """Personal data has to be found under every name it gets."""
    assert set(found(("landing.events", "email"))) == {"bronze.events.email_token", "silver.transactions.email_token"}


@pytest.mark.parametrize("name", list(tables()))
def test_checks_of_columns_are_checks_of_tables(name: str) -> None:
    """A check that does not exist cannot tell of anything; a new kind of check has to be considered here."""
    table = tables()[name]
    of_rows = {"row_count", "row_conservation", "source_readable", "schema_drift", "lateness", "volume"}
    told = {
        check for column in table.columns for check in checks_of_column(table, column, tables()) if "." not in check
    }
    assert told <= set(check_names(table))
    assert set(check_names(table)) - of_rows - told <= {"row_rules", "quarantine_depth"}


def test_rules_know_their_columns(spark: SparkSession) -> None:
    """They are read off the rule's code; the expression it builds is the proof."""
    for table in tables().values():
        for rule in table.rules:
            named = set(re.findall(r"\w+", str(rule.holds())))
            columns = {*table.columns, "_arrival_date", "_error", "_raw"}
            assert rule.columns == named & columns, f"{table.id}.{rule.name}"
