"""A query is checked as a tree, and what runs is made from that tree: names where they are names, and only reading."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from lakehouse.query.checked_query import check_query
from lakehouse.query.sql_allowed import FUNCTIONS
from lakehouse.query.sql_text import QueryError
from lakehouse_tests.query.queries import HOSTILE

KNOWN = [
    "bronze.events",
    "bronze.orders",
    "silver.transactions",
    "silver.orders",
    "gold.user_features",
    "silver.transactions_quarantine",
]
LAYERS = ("bronze", "silver", "gold")
T, R = "`lake__silver__transactions` AS `transactions`", "`lake__silver__orders` AS `orders`"


def made(text: str) -> str:
    return check_query(text, KNOWN, LAYERS).spark_sql()


@pytest.mark.parametrize(
    ("statement", "run"),
    [
        ("select * from silver.transactions", f"SELECT * FROM {T}"),
        ("select * from silver.transactions;", f"SELECT * FROM {T}"),
        ("SELECT 1 FROM Silver . `Transactions`", f"SELECT 1 FROM {T}"),
        ("select * from silver.transactions_quarantine", "SELECT * FROM `lake__silver__transactions_quarantine` AS `transactions_quarantine`"),
        ("select 'silver.orders', \"gold.nope\" from silver.orders", f"SELECT 'silver.orders', 'gold.nope' FROM {R}"),
        ("select 'it''s \\' silver.orders' from silver.orders", f"SELECT 'it\\'s \\' silver.orders' FROM {R}"),
        ("select r'\\', 1 from silver.orders where x = 'b'", f"SELECT '\\\\', 1 FROM {R} WHERE `x` = 'b'"),
        ("select '\\u0041\\101\\d\\v' 'b'", "SELECT 'AAdvb'"),
        ("select 1 -- gold.nope\nfrom silver.orders", f"SELECT 1 FROM {R}"),
        ("select 1 /* gold.nope /* */ drop */ from silver.orders", f"SELECT 1 FROM {R}"),
        ("select /*+ BROADCAST(o) */ 1 from silver.orders o", "SELECT 1 FROM `lake__silver__orders` AS `o`"),
        ("select silver.orders.amount from silver.orders", f"SELECT `orders`.`amount` FROM {R}"),
        ("select orders.amount from silver.orders", f"SELECT `orders`.`amount` FROM {R}"),
        ("select orders.a from silver.orders orders", f"SELECT `orders`.`a` FROM {R}"),
        ("with orders as (select 1) select orders.a from orders", "WITH `orders` AS (SELECT 1) SELECT `orders`.`a` FROM `orders`"),
        ("select silver.amount from silver.orders silver", "SELECT `silver`.`amount` FROM `lake__silver__orders` AS `silver`"),
        ("select a from silver.orders as (a, b)", f"SELECT `a` FROM {R}(`a`, `b`)"),
        ("from silver.orders select count(*)", f"SELECT count(*) FROM {R}"),
        ("select `delete`, update from silver.orders", f"SELECT `delete`, `update` FROM {R}"),
        ("values (1), (2)", "SELECT * FROM VALUES (1), (2)"),
        ("select time'10:00:00', cast('10:00' as time)", "SELECT CAST('10:00:00' AS TIME), CAST('10:00' AS TIME)"),
        ("select current_date - interval 1 day 2 hours", "SELECT CURRENT_DATE - (INTERVAL '1' DAY + INTERVAL '2' HOURS)"),
        ("with a as (select 1 x), b as (with a as (select 2 x) select x from a) select a.x, b.x from a, b",
         "WITH `a` AS (SELECT 1 AS `x`), `b` AS (WITH `a` AS (SELECT 2 AS `x`) SELECT `x` FROM `a`) SELECT `a`.`x`, `b`.`x` FROM `a`, `b`"),
        ("select * from silver.orders a, silver.orders b right join silver.orders c on b.x = c.x",
         "SELECT * FROM `lake__silver__orders` AS `a`, `lake__silver__orders` AS `b` RIGHT JOIN `lake__silver__orders` AS `c` ON `b`.`x` = `c`.`x`"),
    ],
)  # fmt: skip
def test_what_runs_is_made_from_the_tree(statement: str, run: str) -> None:
    assert made(statement) == run


def test_tables_of_one_name_are_told_apart() -> None:
    text = made("select silver.orders.a, bronze.orders.b from silver.orders join bronze.orders using (a)")
    assert text.startswith(
        "SELECT `lake__silver__orders`.`a`, `lake__bronze__orders`.`b` FROM `lake__silver__orders` AS"
    )


def test_versions_are_views_of_their_own() -> None:
    query = check_query(
        "select * from silver.orders version as of 3 a join silver.orders TIMESTAMP AS OF '2011-03-01' b "
        "join silver.orders",
        KNOWN,
        LAYERS,
    )
    names = [node.name for node in query.tree.find_all(exp.Table)]
    assert sorted(names) == sorted(use.view for use in query.uses)
    assert {(use.option, use.value) for use in query.uses} == {
        ("versionAsOf", "3"),
        ("timestampAsOf", "2011-03-01"),
        (None, None),
    }
    with pytest.raises(QueryError, match="expected a number or a time"):
        made("select * from silver.orders version as of (select 1)")


@pytest.mark.parametrize("statement", HOSTILE)
def test_only_one_query_over_known_tables_is_taken(statement: str) -> None:
    """Without it, `lakehouse sql` could write, read any file, start a program or print the environment with the PII key."""
    with pytest.raises(QueryError):
        made(statement)


@pytest.mark.parametrize("statement", ["", " -- nothing\n", "/* nothing */", ";"])
def test_nothing_is_no_query(statement: str) -> None:
    with pytest.raises(QueryError, match="There is no statement"):
        made(statement)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("select * from silver.order", r"There is no table silver\.order\. Did you mean silver\.orders"),
        ("select * from transactions", r"There is no table transactions\. Did you mean silver\.transactions\?"),
        ("select substrin(a, 1) from silver.orders", r"The function substrin is not on the list .* Did you mean substring"),
        ("select * from explod(a)", r"explod\(\) cannot stand for a table\. Did you mean explode"),
        ("drop table silver.orders", "This command only reads"),
        ("select (1", "The query cannot be read"),
        ("select 1; select 2", "one statement at a time"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_to_do(statement: str, told: str) -> None:
    with pytest.raises(QueryError, match=told):
        made(statement)


def test_a_name_of_the_query_holds_where_it_was_given() -> None:
    assert made("with a as (select 1 x), b as (select * from a) select * from b, (select * from a)")
    for statement in (
        "with a as (select * from a) select * from a",
        "with b as (select * from a), a as (select 1) select * from b",
        "select * from (with a as (select 1) select * from a) join a",
        "with a as (select 1) select * from a version as of 1",
    ):
        with pytest.raises(QueryError, match="There is no table a|has no versions"):
            made(statement)


def test_variables_of_the_machine_stay_text() -> None:
    """Without it, Spark would put an environment variable in the place of `${env:…}`, even within a text literal."""
    assert (
        made("select '${env:LAKEHOUSE_PII_KEY}', '\\\\${a}'")
        == "SELECT '\\u0024{env:LAKEHOUSE_PII_KEY}', '\\\\\\u0024{a}'"
    )


@pytest.mark.parametrize(
    "name", sorted(FUNCTIONS - {"any", "extract", "if", "overlay", "position", "substr", "trim", "exists"})
)
def test_a_call_stays_what_it_was(name: str) -> None:
    """Without it, a parser's idea of a function could change its name, its arguments or their order."""
    text = made(f"select {name}(a)[0], {name}(a, 'b') from silver.orders").replace("`", "").lower()
    assert text == f"select {name}(a)[0], {name}(a, 'b') from lake__silver__orders as orders"


@given(st.text().filter(lambda text: "\\" not in text))
def test_what_is_quoted_stays_as_it_is(text: str) -> None:
    """Any text in a literal comes through unchanged, names in it included."""
    query = check_query("select '" + text.replace("'", "''") + " silver.orders' x", KNOWN, LAYERS)
    (literal,) = query.tree.find_all(exp.Literal)
    assert literal.this == f"{text} silver.orders"
    assert not query.uses


@given(st.text(alphabet="'\"`\\/*-;${} \nsu0x(),.reflct silver.orders", max_size=60))
def test_whatever_comes_through_reads_tables_and_calls_functions_of_the_lists(text: str) -> None:
    """Whatever signs are mixed into a query, they end in a literal, in a name, or in a refusal."""
    for statement in (f"select '{text}' from silver.orders", f"select `{text}` from silver.orders", f"select {text}"):
        try:
            query = check_query(statement, KNOWN, LAYERS)
        except QueryError:
            continue
        assert {node.name for node in query.tree.find_all(exp.Table) if isinstance(node.this, exp.Identifier)} <= {
            use.view for use in query.uses
        }
        assert {str(node.this).lower() for node in query.tree.find_all(exp.Anonymous)} <= FUNCTIONS
        assert "${" not in query.spark_sql()
