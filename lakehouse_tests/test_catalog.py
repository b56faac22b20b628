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
from lakehouse_tests.fixtures.packages import written


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


TABLE = """
import time
from pathlib import Path
import pandera.pyspark as pa
from pyspark.sql import DataFrame, types as T
from lakehouse.contracts import Landing, table

from changing_shop import helper

WORD = helper.WORD

HELPER = Path(__file__).parents[1] / "helper.py"
if {when}:
    HELPER.write_text(f"WORD = {{{new}!r}}  # as it is from now on")

class Sales(pa.DataFrameModel):
    day: T.DateType() = pa.Field(description=WORD)

@table(model=Sales, inputs={{"rows": Landing("s", "csv", ("day",))}}, partition_by="day", owner="team:x", grain="a sale")
def sales(rows: DataFrame) -> DataFrame:
    return rows
"""


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[Path]:
    """A package whose table file can change the helper that it has imported."""
    with written(tmp_path / "changing_shop", {"helper.py": "WORD = 'before'"}) as home:
        yield home


def test_files_that_change_while_they_are_loaded_are_loaded_again(changing: Path) -> None:
    """Without it, at a `git checkout` old code ran under the version of the new, and its days were never stale."""
    (changing / "bronze" / "sales.py").write_text(TABLE.format(when="WORD == 'before'", new="'after'"))
    made = declared(changing.name)["bronze.sales"]
    assert made.schema["day"].metadata["comment"] == "after"
    assert made.changed_on_disk() == []


def test_files_that_change_at_each_load_are_refused(changing: Path) -> None:
    """Without it, the tables would be of no state of the files."""
    (changing / "bronze" / "sales.py").write_text(TABLE.format(when="True", new="WORD + '!'"))
    with pytest.raises(ContractError, match=r"stay as they are .* got changes of changing_shop\.helper\. Run it again"):
        declared(changing.name)
