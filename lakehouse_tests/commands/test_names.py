"""Table names in SQL are found where they are names, and nowhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.commands.console import UsageError
from lakehouse.commands.names import resolve_names

KNOWN = [
    "bronze.events",
    "silver.transactions",
    "silver.orders",
    "gold.user_features",
    "silver.transactions_quarantine",
]
LAYERS = ("bronze", "silver", "gold")
T, R = "lake__silver__transactions", "lake__silver__orders"


@pytest.mark.parametrize(
    ("statement", "resolved"),
    [
        ("select * from silver.transactions", f"select * from {T}"),
        ("select * from silver.transactions;", f"select * from {T}"),
        ("SELECT 1 FROM Silver . `Transactions`", f"SELECT 1 FROM {T}"),
        ("select * from silver.transactions_quarantine", f"select * from {T}_quarantine"),
        ("select 'silver.orders', \"gold.nope\" from silver.orders", f"select 'silver.orders', \"gold.nope\" from {R}"),
        ("select 'it''s \\' silver.orders' from silver.orders", f"select 'it''s \\' silver.orders' from {R}"),
        ("select r'\\', 1 from silver.orders where x = 'b'", f"select r'\\', 1 from {R} where x = 'b'"),
        ("select 1 -- gold.nope\nfrom silver.orders", f"select 1 -- gold.nope\nfrom {R}"),
        ("select 1 /* gold.nope */ from silver.orders", f"select 1 /* gold.nope */ from {R}"),
        ("select silver.orders.amount from silver.orders", f"select {R}.amount from {R}"),
        ("select orders.amount from silver.orders", f"select {R}.amount from {R}"),
        ("select orders.a from silver.orders orders", f"select orders.a from {R} orders"),
        ("with orders as (select 1) select orders.a from orders", "with orders as (select 1) select orders.a from orders"),
        ("select silver.amount from silver.orders silver", f"select silver.amount from {R} silver"),
        ("from silver.orders select count(*)", f"from {R} select count(*)"),
        ("select * from other.silver.orders", "select * from other.silver.orders"),
        ("select `delete`, update from silver.orders", f"select `delete`, update from {R}"),
        ("explain select * from silver.orders", f"explain select * from {R}"),
    ],
)  # fmt: skip
def test_names_become_views(statement: str, resolved: str) -> None:
    assert resolve_names(statement, KNOWN, LAYERS)[0] == resolved


def test_versions_are_views_of_their_own() -> None:
    text, uses = resolve_names(
        "select * from silver.orders version as of 3 a join silver.orders TIMESTAMP AS OF '2011-03-01' b "
        "join silver.orders",
        KNOWN,
        LAYERS,
    )
    assert text == f"select * from {R}_versionasof_3 a join {R}_timestampasof_2011_03_01 b join {R}"
    assert [(use.option, use.value) for use in uses] == [
        ("versionAsOf", "3"),
        ("timestampAsOf", "2011-03-01"),
        (None, None),
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "drop table silver.orders",
        "insert into silver.orders values (1)",
        "with x as (select 1) insert into silver.orders select * from x",
        "from silver.orders insert overwrite gold.user_features select *",
        "delete from silver.orders",
        "update silver.orders set amount = 0",
        "merge into silver.orders using x on 1 = 1",
        "create view v as select 1",
        "vacuum silver.orders",
        "set spark.sql.ansi.enabled = false",
        "/* select */ truncate table silver.orders",
        "select 1; drop table silver.orders",
        "",
        " -- nothing\n",
    ],
)
def test_only_one_query_is_taken(statement: str) -> None:
    with pytest.raises(UsageError):
        resolve_names(statement, KNOWN, LAYERS)


def test_an_unknown_name_is_told_its_neighbours() -> None:
    with pytest.raises(UsageError, match=r"There is no table silver\.order\. Did you mean silver\.orders"):
        resolve_names("select * from silver.order", KNOWN, LAYERS)


@given(st.text().filter(lambda text: "\\" not in text))
def test_what_is_quoted_stays_as_it_is(text: str) -> None:
    """Any text in a literal comes through unchanged, names in it included."""
    literal = "'" + text.replace("'", "''") + " silver.orders'"
    resolved, uses = resolve_names(f"select {literal} x", KNOWN, LAYERS)
    assert resolved == f"select {literal} x"
    assert not uses
