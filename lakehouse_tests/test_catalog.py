"""All tables are found by their files, in an order in which they can be built."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakehouse_tests.fixtures.shop.gold as gold_layer
from lakehouse.catalog import agree, declared, forget_tables, get_table, tables
from lakehouse.errors import ContractError, SettingsError, UnknownTableError
from lakehouse_tests.fixtures import shop
from lakehouse_tests.fixtures.making import reading


def test_every_file_of_a_layer_is_a_table_and_upstream_comes_first() -> None:
    """Without it, a new file could be overlooked, or a table be built before what it reads."""
    found = declared()
    folder = Path(shop.__file__).parent
    files = {f"{layer}.{p.stem}" for layer in ("bronze", "silver", "gold") for p in (folder / layer).glob("[!_]*.py")}
    assert set(found) == files
    order = list(found)
    for name, each in found.items():
        assert name == each.id
        assert all(order.index(i.table) < order.index(name) for i in each.upstream.values())


def test_an_input_that_is_no_table_is_named_with_the_nearest() -> None:
    """Without it, a misspelt input would be read as a table that was never built, and every day be empty."""
    found = {each.id: each for each in (reading("gold.a", "silver.trnsactions"), reading("silver.transactions"))}
    with pytest.raises(ContractError) as caught:
        agree(found)
    assert str(caught.value) == (
        "gold/a.py: inputs: expected a table, got 'silver.trnsactions'. Did you mean 'silver.transactions'?"
    )


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    """Without it, a typing mistake on the command line would be a traceback."""
    assert get_table("silver.orders").id == "silver.orders"
    with pytest.raises(UnknownTableError, match=r"no table 'silver\.order'\. Did you mean silver\.orders"):
        get_table("silver.order")
    with pytest.raises(UnknownTableError, match=r"no table 'xyzzy'\. Tables: bronze\."):
        get_table("xyzzy")


def test_a_package_without_tables_is_named() -> None:
    """Without it, a misspelt package would be an import error with no hint of the setting."""
    with pytest.raises(SettingsError, match="LAKEHOUSE_TABLES=nowhere.lake: expected a package .* got no nowhere;"):
        declared("nowhere.lake")
    with pytest.raises(SettingsError, match="LAKEHOUSE_TABLES=lakehouse.spark: .* got no lakehouse.spark.bronze;"):
        declared("lakehouse.spark")


@pytest.fixture
def new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that is in the gold layer for the time of a test."""
    monkeypatch.setattr(gold_layer, "__path__", [*gold_layer.__path__, str(tmp_path)])
    forget_tables()
    yield tmp_path / "made_by_a_test.py"
    sys.modules.pop(f"{gold_layer.__name__}.made_by_a_test", None)
    forget_tables()


def test_a_file_without_its_table_is_refused_by_name(new_file: Path) -> None:
    """Without it, a table whose function was renamed would silently be gone."""
    new_file.write_text("wrong_name = 1\n")
    with pytest.raises(ContractError) as caught:
        tables()
    assert str(caught.value) == (
        "lakehouse_tests/fixtures/shop/gold/made_by_a_test.py:1: @table: expected a function made_by_a_test, got none. "
        "One file of gold is one table."
    )
