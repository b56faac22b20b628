"""What a table file may declare, what is refused by name, and when its code counts as changed."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from lakehouse.catalog import tables
from lakehouse.contracts import BronzeModel, Count, Input, Landing, Sum, Table
from lakehouse.contracts import table as declare
from lakehouse.errors import ContractError
from lakehouse_tests.making import model, table

SALES = {
    "id": (T.StringType(), pa.Field(description="Identifies the sale")),
    "day": (T.DateType(), pa.Field()),
    "shop": (T.StringType(), pa.Field(nullable=True)),
    "amount": (T.DecimalType(18, 2), pa.Field(nullable=True, ge=0)),
    "_event_days": (T.ArrayType(T.DateType()), pa.Field(nullable=True)),
}
INPUT = {"rows": Input("silver.rows")}


def sales(rows: DataFrame) -> DataFrame:
    """A transform that is never run."""
    return rows


def declared(name: str = "silver.sales", inputs: Any = None, columns: Any = None, **policy: Any) -> Table:
    """A sound table, but for the policy given."""
    return table(name, model("Sales", **(columns or SALES)), sales, inputs or INPUT, **policy)


def test_a_table_knows_its_names_and_columns() -> None:
    """Without it, folders, asset keys and SQL names could come apart from the file that declares the table."""
    made = declared(partition_by=("day", "shop"), key=("id",))
    assert (made.id, made.quarantine_id, made.day_column) == ("silver.sales", "silver.sales_quarantine", "day")
    assert made.columns == ("id", "day", "shop", "amount", "_event_days")
    assert made.required == {"id", "day"}
    assert made.schema["id"].metadata == {"comment": "Identifies the sale"}
    assert all(each.nullable for each in made.schema)
    assert [each.name for each in made.rules] == ["id_present", "amount_at_least_minimum"]


def test_technical_columns_come_last() -> None:
    """Without it, what a base contract adds would stand before the columns people look for."""

    class Raw(BronzeModel):
        a: T.StringType = pa.Field(nullable=True)

    made = declared("bronze.sales", columns=None, inputs={"rows": Landing("sales", "csv", ("a",))})
    raw = Table("bronze", "raw", Raw, sales, made.inputs, owner="", grain="", partition_by=("_arrival_date",))
    assert raw.columns[0] == "a"
    assert all(name.startswith("_") for name in raw.columns[1:])


UNIQUE: dict[str, Any] = {"key": ("id",), "keep_first_by": ("amount",), "unique_within": timedelta(days=1)}


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"partition_by": "date"}, "partition_by names date, not a column of Sales (id, day"),
        ({"partition_by": ("day", "till")}, "partition_by names till"),
        ({"partition_by": "shop"}, "the day column shop must be a date"),
        ({"key": ("id", "ID")}, "key names ID"),
        ({"key": ("id",), "keep_first_by": ("arrived",)}, "keep_first_by names arrived"),
        ({"keep_first_by": ("amount",)}, "keep_first_by needs a key"),
        ({"max_null_rate": {"shopp": 0.1}}, "max_null_rate names shopp"),
        ({"max_null_rate": {"shop": 5}}, "shares from 0 to 1"),
        ({"max_quarantined": -0.1}, "shares from 0 to 1"),
        ({"pii": ("email",)}, "pii names email"),
        ({"pii": ("shop",), "partition_by": ("day", "shop")}, "a PII column cannot be a partition column"),
        ({"lineage": {"total": ()}}, "lineage names total"),
        ({"lineage": {"amount": (("silver.other", "amount"),)}}, "lineage names silver.other, which is no input"),
        ({"files_per_day": 0}, "files_per_day must be 1 or more"),
        ({"schema_version": 0}, "schema_version must be 1 or more"),
        ({"compatibility": "backwards"}, "compatibility is one of backward, forward, full, none"),
        ({"upsert": True}, "upsert needs a key"),
        ({**UNIQUE, "unique_within": "all"}, 'unique_within="all" is not offered: each day would have to read'),
        ({**UNIQUE, "unique_within": "week"}, "whole days, 1 or more, not 'week'"),
        ({**UNIQUE, "unique_within": timedelta(hours=36)}, "whole days, 1 or more, not datetime.timedelta(days=1, s"),
        ({**UNIQUE, "unique_within": timedelta(0)}, "whole days, 1 or more"),
        ({**UNIQUE, "unique_within": timedelta(days=-1)}, "whole days, 1 or more"),
        ({**UNIQUE, "keep_first_by": ()}, "unique_within beyond a day needs key and keep_first_by"),
        ({**UNIQUE, "key": ("id", "day")}, "says nothing where the key holds the day (day)"),
        ({**UNIQUE, "partition_by": ("day", "shop")}, "needs further partition columns (shop) to be part of the key"),
        ({**UNIQUE, "upsert": True}, "is for tables that read tables and are no upserts"),
        ({"colour": "red"}, "@table has no attribute colour"),
        ({"figures": {"sold": Sum("nothing")}}, "figures names nothing, not a column of Sales"),
        ({"figures": {"sold": Sum("id")}}, "a Sum is of a decimal or whole-number column"),
        ({"figures": {"sold": Sum("amount", by="day")}}, "a Sum is by a text column that is no partition column"),
        ({"figures": {"Sold!": Count()}}, "a figure is named by small letters"),
        ({"figures": {"status": Count()}}, "no key of the asset's own"),
        ({"pii": ("amount",), "figures": {"sold": Sum("amount")}}, "a PII column has no figures"),
        ({"pii": ("id",), "figures": {"people": Count("id")}}, "a PII column has no figures"),
        ({"pii": ("shop",), "figures": {"sold": Sum("amount", by="shop")}}, "a PII column has no figures"),
    ],
)
def test_policy_that_does_not_fit_is_refused_by_name(policy: dict[str, Any], message: str) -> None:
    """Without it, a misspelt column would be found by Spark in the middle of a run, or never."""
    with pytest.raises(ContractError, match=re.escape(message)) as caught:
        declared(**policy)
    assert str(caught.value).startswith("silver/sales.py: ")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"lines": Input("silver.rows")}, "parameters ['rows'] must be the inputs ['lines']"),
        ({"rows": Input("silver.rows"), "more": Input("silver.more")}, "must be the inputs ['more', 'rows']"),
        ({"rows": Input("silver.rows", days_before=-1)}, "days_before must be 0 or more"),
        ({"rows": Landing("sales", "parquet", ("a",))}, "the format of a landed source is one of csv, jsonl"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: Any, message: str) -> None:
    """Without it, a transform would be called with parameters it does not have, once the engine runs."""
    with pytest.raises(ContractError, match=re.escape(message)):
        declared(inputs=inputs)


def test_keys_are_unique_within_a_day_or_as_many_as_are_said() -> None:
    """Without it, a table that says nothing would read its neighbours, or one that says so would not."""
    assert declared(key=("id",), keep_first_by=("amount",)).unique_days == 0
    assert declared(**UNIQUE).unique_days == 1
    assert declared(**{**UNIQUE, "partition_by": ("day", "shop"), "key": ("shop", "id")}).unique_days == 1


def test_landed_files_are_the_only_input_of_a_table() -> None:
    """Without it, a table of two sources would build from one of them."""

    def both(lines: DataFrame, rows: DataFrame) -> DataFrame:
        return lines

    with pytest.raises(ContractError, match="or one landed source and nothing else"):
        table("bronze.both", model("Sales", **SALES), both, {"lines": Landing("s", "csv", ("a",)), **INPUT})


def test_upsert_needs_one_input_and_the_days_of_its_events() -> None:
    """Without it, an upsert would fail, or find too few days, at its second run."""
    columns = {n: c for n, c in SALES.items() if n != "_event_days"}
    with pytest.raises(ContractError, match="upsert needs a column _event_days"):
        declared(columns=columns, key=("id",), upsert=True)
    with pytest.raises(ContractError, match="upsert needs exactly one input, a table without days_before"):
        declared(inputs={"rows": Input("silver.rows", days_before=3)}, key=("id",), upsert=True)
    assert declared(key=("id",), upsert=True).upsert


@pytest.mark.parametrize("name", ["route", "_failed_rules", "_copies"])
def test_column_names_that_staging_uses_are_refused(name: str) -> None:
    """Without it, a shop's `route` column would be overwritten by the route of the row."""
    with pytest.raises(ContractError, match=r"column name\(s\) route, .* are taken"):
        declared(columns={**SALES, name: (T.StringType(), pa.Field(nullable=True))})


def test_file_function_and_layer_belong_together() -> None:
    """Without it, a table could be looked for under a name that is not its file's."""
    made: dict[str, Any] = {
        "model": model("Sales", **SALES),
        "inputs": INPUT,
        "partition_by": "day",
        "owner": "team:x",
        "grain": "row",
    }
    for module in ("lakehouse.silver.sale", "lakehouse.platinum.sales", "sales"):
        sales.__module__ = module
        with pytest.raises(ContractError, match="the function 'sales' must be named after its file, in one of bronze"):
            declare(**made)(sales)
    sales.__module__ = "lakehouse.silver.sales"
    assert declare(**made)(sales).id == "silver.sales"
    with pytest.raises(ContractError, match=r"silver/sales\.py: @table needs grain, owner"):
        declare(model=made["model"], inputs=INPUT, partition_by="day")(sales)


def test_a_contract_that_cannot_be_compiled_is_refused_when_declared() -> None:
    """Without it, the first run would fail, instead of the loading of the file."""
    columns = {**SALES, "amount": (T.DecimalType(18, 2), pa.Field(unique_values_eq=[1]))}
    with pytest.raises(ContractError, match="unique_values_eq"):
        declared(columns=columns)


# --- code version -----------------------------------------------------------------------------------------------------

FILES = {
    "shop/__init__.py": "",
    "shop/transforms/__init__.py": "",
    "shop/transforms/direct.py": "from shop.transforms.deep import rate\n\ndef net(x):\n    return x * rate()\n",
    "shop/transforms/deep.py": "def rate():\n    return 2\n",
    "shop/transforms/whole.py": "LIMIT = 1\n",
    "shop/transforms/dotted.py": "LIMIT = 1\n",
    "shop/transforms/near.py": "LIMIT = 1\n",
    "shop/transforms/unused.py": "LIMIT = 1\n",
    "shop/base.py": "class Base:\n    limit = 1\n",
    "shop/silver/__init__.py": "",
    "shop/silver/sales.py": (
        '"""Prose."""\n'
        "import shop.transforms.dotted as dotted\n"
        "from shop.transforms import whole\n"
        "from shop.transforms.direct import net\n"
        "from ..transforms.near import LIMIT\n"
        "from shop.base import Base\n\n"
        "class Sales(Base):\n"
        '    """Prose."""\n\n'
        "def sales(rows):\n"
        '    """Prose."""\n'
        "    return net(rows)  # why\n"
    ),
}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with a table file, and modules that it imports in every way there is."""
    for name, source in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [n for n in sys.modules if n.split(".")[0] == "shop"]:
        del sys.modules[name]


def version_of(shop: Path) -> str:
    """The code version of the table file as it is now."""
    importlib.invalidate_caches()
    for name in [n for n in sys.modules if n.split(".")[0] == "shop"]:
        del sys.modules[name]
    module = importlib.import_module("shop.silver.sales")
    made = Table("silver", "sales", module.Sales, module.sales, INPUT, "team:x", "row", ("day",))
    return made.code_version


def test_prose_and_formatting_are_no_change_of_code(shop: Path) -> None:
    """Without it, a corrected comment would rebuild years of partitions."""
    before = version_of(shop)
    path = shop / "shop/silver/sales.py"
    path.write_text(path.read_text().replace('"Prose."', '"Better prose."').replace("  # why", "  # why not\n\n"))
    assert version_of(shop) == before
    assert re.fullmatch("[0-9a-f]{12}", before)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("shop/silver/sales.py", "net(rows)", "net(rows) + 1"),
        ("shop/transforms/direct.py", "x * rate()", "x / rate()"),
        ("shop/transforms/deep.py", "2", "3"),
        ("shop/transforms/whole.py", "1", "2"),
        ("shop/transforms/dotted.py", "1", "2"),
        ("shop/transforms/near.py", "1", "2"),
        ("shop/base.py", "1", "2"),
    ],
)
def test_a_change_of_code_changes_the_version(shop: Path, file: str, old: str, new: str) -> None:
    """Without it, days computed by old code would be skipped: in the file, a helper, its helper, the contract's base."""
    before = version_of(shop)
    path = shop / file
    path.write_text(path.read_text().replace(old, new))
    assert version_of(shop) != before


def test_a_helper_that_is_not_imported_does_not_count(shop: Path) -> None:
    """Without it, any new helper would rebuild every table."""
    before = version_of(shop)
    (shop / "shop/transforms/unused.py").write_text("LIMIT = 2\n")
    assert version_of(shop) == before


def test_real_tables_have_versions_and_freshness() -> None:
    """Without it, a table without a source file or a freshness bound would be found only in production."""
    versions = {each.id: each.code_version for each in tables().values()}
    assert len(set(versions.values())) == len(versions)
    assert all(each.freshness.within > timedelta(0) for each in tables().values())
