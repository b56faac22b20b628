"""`lakehouse explain-row` and `lakehouse impact` as people and programs use them."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakehouse_tests.commands.conftest import FIRST, LAST, Cli, Result
from lakehouse_tests.fixtures.making import rows_of


def test_impact_of_a_column_needs_no_lake(cli: Cli, root: Path) -> None:
    """The question comes before a change is made, wherever that is."""
    said = cli("impact", "silver.transactions.amount")
    assert said.code == 0
    assert "gold.user_features.rolling_7d_amount" in said.out
    assert "team:ml" in said.out
    assert "purchase_amount_positive" in said.out
    facts = cli("impact", "silver.transactions.amount", "--json").json
    revenue = next(each for each in facts["columns"] if each["column"] == "net_revenue")
    assert (revenue["how"], revenue["via"]) == ("value", [["silver.transactions", "amount"]])
    assert [each["table"] for each in facts["tables"]][-1] == "gold.user_features"
    assert not root.exists()


def test_impact_of_tables_rules_and_landed_fields(cli: Cli) -> None:
    """A rule decides which rows there are, so that everything downstream depends on it."""
    whole = cli("impact", "silver.transactions", "--json").json
    rule = cli("impact", "silver.transactions.purchase_amount_positive", "--json").json
    assert whole["columns"] == rule["columns"]
    assert {each["table"] for each in rule["tables"]} == {
        *("silver.transactions", "silver.orders", "gold.daily_revenue", "gold.user_features")
    }
    assert "volume" in rule["tables"][0]["checks"]
    landed = cli("impact", "landing.events.email", "--json").json
    assert [each["column"] for each in landed["columns"]] == ["email_token", "email_token"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("silver.transactions.amonut", "Did you mean amount?"),
        ("silver.transaction", "Did you mean silver.transactions"),
        ("landing.events.mail", "Did you mean email?"),
        ("amount", "There is no 'amount'"),
    ],
)
def test_impact_of_what_is_not_there(cli: Cli, name: str, told: str) -> None:
    """An empty answer would mean that nothing depends on it."""
    said = cli("impact", name)
    assert (said.code, said.out) == (2, "")
    assert told in said.err


@pytest.mark.spark
@pytest.mark.slow
def test_a_row_is_explained_without_personal_data(built: Cli, first_backfill: tuple[Path, Result]) -> None:
    """The whole way down, proven, for people and for programs; tokens and ids of people stay where they are."""
    root = first_backfill[0]
    silver = DeltaTable(root / "tables" / "silver" / "transactions").to_pyarrow_table().to_pylist()
    user = next(row["user_id"] for row in silver if row["source"] == "events" and row["user_id"])
    rows = [r for r in rows_of(root / "tables" / "gold" / "user_features") if r["user_id"] == user]
    day = max(row["feature_date"] for row in rows)
    said = built("explain-row", "gold.user_features", f"user_id={user}", f"feature_date={day}", "--json")
    assert said.code == 0, said.err
    step, levels = said.json, []
    while step:
        assert step["recomputed"] == "equal", step
        assert step["commits"][0]["current_code"]
        assert step["commits"][0]["run_id"] == first_backfill[1].json["runs"][0]["run_id"]
        levels.append(step["table"])
        step = next(iter(step["made_of"]), None)
    assert levels[:2] == ["gold.user_features", "silver.transactions"]
    assert levels[2].startswith("bronze.")
    tokens = {row["email_token"] for row in silver} - {None}
    assert tokens
    assert not any(token in said.out for token in tokens)
    assert "user_id" not in said.json["rows"][0]
    text = built("explain-row", "gold.user_features", f"user_id={user}", f"feature_date={day}", "--limit", "1").out
    assert "computed again from these rows alone: equal" in text
    assert "computed again from the landed lines: equal" in text
    assert "landing/" in text
    assert user not in text


@pytest.mark.spark
@pytest.mark.slow
def test_a_quarantined_row_is_explained(built: Cli) -> None:
    """Its reason in words, and the line to fix."""
    shown = built("quarantine", "show", "silver.transactions", "--limit", "1", "--json").json[0]
    place = [f"{name}={shown[name]}" for name in ("_source_file", "_source_row")]
    said = built("explain-row", "silver.transactions_quarantine", *place)
    assert said.code == 0, said.out
    assert f"in quarantine since it breaks {shown['_failed_rules'].split(', ')[0]}: " in said.out
    assert f"{shown['_source_file']}:{shown['_source_row']}" in said.out


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("silver.orders", "order_date=2011-03-01"), "Which one? Add columns of these: source, order_id"),
        (("silver.orders", "order_id=none"), "silver.orders has no row with order_id=none"),
        (("gold.user_features", "user_id=secret"), "has no row with user_id=…"),
        (("silver.orders", "order=1"), "Did you mean order_id"),
        (("silver.orders", "order_id"), "is no filter; expected COLUMN=VALUE"),
        (("silver.orders", "order_date=yesterday"), "order_date is date; got 'yesterday'"),
        (("silver.orders", "_event_days=2011-03-01"), "rows cannot be chosen by it"),
        (("silver.transactions_quarantine", "_raw=x"), "is never shown and no filter"),
        (("silver.order", "order_id=1"), "Did you mean silver.orders"),
    ],
)
def test_a_row_that_is_not_named_well_starts_no_engine(
    built: Cli, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], told: str
) -> None:
    """What is wrong with the question is said at once, and never by a guess at the row."""
    monkeypatch.setattr("lakehouse.spark.session.start", lambda _: pytest.fail("an engine was started"))
    said = built("explain-row", *arguments)
    assert said.code == 2
    assert told in said.err
    assert "secret" not in said.err


@pytest.mark.spark
@pytest.mark.slow
def test_a_row_that_is_missing_is_looked_for_in_quarantine(built: Cli) -> None:
    """The next question is why it is not there."""
    shown = built("quarantine", "show", "silver.transactions", "--rule", "event_type_known", "--json").json
    row = next(each for each in shown if each["event_id"] and each["event_date"] in (str(FIRST), str(LAST)))
    said = built("explain-row", "silver.transactions", f"event_id={row['event_id']}")
    assert said.code == 2
    assert f"explain-row silver.transactions_quarantine event_id={row['event_id']}" in said.err
