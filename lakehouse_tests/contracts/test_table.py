"""What a table file may declare, what is refused by name, and when its code counts as changed."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
import pytest
from dagster._core.definitions.utils import is_valid_owner
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from lakehouse.catalog import tables
from lakehouse.contracts import (
    Anomalies,
    BronzeModel,
    Clock,
    Count,
    Extract,
    Freshness,
    Input,
    Landing,
    Layout,
    Privacy,
    Quality,
    Quarantine,
    Sum,
    Table,
    Volume,
)
from lakehouse.contracts import table as declare
from lakehouse.errors import ContractError
from lakehouse_tests.fixtures.making import model, table

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


KNOWN = "a column of Sales (id, day, shop, amount, _event_days)"
ONE = "Write one of these."


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"partition_by": "date"}, f"partition_by: expected {KNOWN}, got 'date'. {ONE}"),
        ({"partition_by": ("day", "till")}, f"partition_by: expected {KNOWN}, got 'till'. {ONE}"),
        ({"partition_by": "shop"}, ("partition_by: expected a date as the first column: the day of a row, got shop "
         "(string). Name the day column first.")),
        ({"key": ("id", "ID")}, f"key: expected {KNOWN}, got 'ID'. {ONE}"),
        ({"key": ("id", "dya")}, f"key: expected {KNOWN}, got 'dya'. Did you mean 'day'?"),
        ({"key": "id"}, "key: expected a tuple of names, got 'id'. A tuple of one has a comma: ('id',)."),
        ({"reads": "rates.csv"}, ("reads: expected a tuple of names, got 'rates.csv'. A tuple of one has a comma: "
         "('rates.csv',).")),
        ({"key": ("id",), "keep_first_by": ("arrived",)}, f"keep_first_by: expected {KNOWN}, got 'arrived'. {ONE}"),
        ({"keep_first_by": ("amount",)}, ("keep_first_by: expected a key beside it, got none. Say what two rows have in "
         "common.")),
        ({"max_null_rate": {"shopp": 0.1}}, (f"quality.max_null_rate: expected {KNOWN}, got 'shopp'. Did you mean "
         "'shop'?")),
        ({"profile": ("anount",)}, f"quality.profile: expected {KNOWN}, got 'anount'. Did you mean 'amount'?"),
        ({"profile": ("shop",), "pii": ("shop",)}, ("quality.profile: expected no personal data, whose values are kept "
         "with each commit, got shop. Take it out.")),
        ({"max_shares": {"amount": ("amuont", 0.1)}}, (f"quality.max_shares: expected {KNOWN}, got 'amuont'. Did you mean "
         "'amount'?")),
        ({"max_shares": {"amount": ("shop", 0.1)}}, ("quality.max_shares: expected a numeric column, which has a sum, got "
         "shop (string). Name another column.")),
        ({"pii": ("email",)}, f"privacy.further: expected {KNOWN}, got 'email'. {ONE}"),
        ({"person": ("user",)}, f"privacy.person: expected {KNOWN}, got 'user'. {ONE}"),
        ({"tokens": ("user",)}, f"privacy.tokens: expected {KNOWN}, got 'user'. {ONE}"),
        ({"pii": ("shop",), "partition_by": ("day", "shop")}, ("partition_by: expected no personal data, whose values "
         "are in file names, got shop. Take it out.")),
        ({"lineage": {"total": ()}}, f"lineage: expected {KNOWN}, got 'total'. {ONE}"),
        ({"lineage": {"amount": "other.amount"}}, ("lineage: expected a column of an input for amount, got "
         "'other.amount'. Write rows.amount.")),
        ({"lineage": {"amount": ("rows.amount", 5)}}, ("lineage: expected a tuple of names, got ('rows.amount', 5). "
         'Write it as ("a", "b"), of one name as ("a",).')),
        ({"reconciles": {"amuont": "amount"}}, f"reconciles: expected {KNOWN}, got 'amuont'. Did you mean 'amount'?"),
        ({"reconciles": {"shop": "amount"}}, ("reconciles: expected a numeric column, which has a sum, got shop "
         "(string). Name another column.")),
        ({"reconciles": {"amount": ("silver.rows", "amount")}}, ("reconciles: expected one column of an input for amount, "
         "got ('silver.rows', 'amount'). Write the column of the input whose sum it has to equal.")),
        ({"reconciles": {"amount": "other.amount"}}, ("reconciles: expected a column of an input for amount, got "
         "'other.amount'. Write rows.amount.")),
        ({"owner": ""}, "owner: expected team:… or an e-mail address, got nothing. Say who is asked about it."),
        ({"grain": ""}, 'grain: expected what one row is, got nothing. Say it in words: "one order".'),
        ({"schema_version": 0}, ("schema_version: expected a whole number, 1 or more, got 0. Fix the number, or leave "
         "it out.")),
        ({"compatibility": "backwards"}, ("compatibility: expected one of backward, forward, full, none, got "
         "'backwards'. Leave it out for backward.")),
        ({"upsert": True}, "upsert: expected a key beside it, got none. Say which rows are versions of one."),
        ({**UNIQUE, "unique_within": "all"}, ("unique_within: expected a time after which no row is sent again, got "
         "'all'. Each day would have to read the keys of all others, and each late file would make all days stale. "
         "Write timedelta(days=n), or declare upsert, where a key has one row in all days.")),
        *(
            ({**UNIQUE, "unique_within": within}, ('unique_within: expected "day" or a timedelta of whole days, 1 or '
             f"more, got {within!r}. Write timedelta(days=1)."))
            for within in ("week", timedelta(hours=36), timedelta(0), timedelta(days=-1))
        ),
        ({**UNIQUE, "keep_first_by": ()}, ("unique_within: expected key and keep_first_by beside it, got none. Say what "
         "a repeat is, and which row is kept.")),
        ({**UNIQUE, "key": ("id", "day")}, ("unique_within: expected a key without the day (day), got id, day. Rows of "
         "different days are no repeats then: leave unique_within out.")),
        ({**UNIQUE, "partition_by": ("day", "shop")}, ("unique_within: expected a key with all further partition "
         "columns, so that a day's rows of it lie together, got no shop. Add them to the key.")),
        ({**UNIQUE, "upsert": True}, ("unique_within: expected a table that reads tables and is no upsert, got "
         "silver.sales. Leave it out.")),
        ({"figures": {"sold": Sum("nothing")}}, f"figures: expected {KNOWN}, got 'nothing'. {ONE}"),
        ({"figures": {"sold": Sum("id")}}, ("figures: expected a decimal or whole-number column for the Sum sold, got "
         "id (string). Sum another column, or Count.")),
        ({"figures": {"sold": Sum("amount", by="day")}}, ("figures: expected a text column that is no partition column "
         "for by= of the Sum sold, got day (date). Leave by= out, or name another column.")),
        ({"figures": {"Sold!": Count()}}, ("figures: expected a name of small letters, digits and _, and none that the "
         "asset has (checks, commit_version, duplicates, preview, quarantined, report, rows_in, status), got 'Sold!'. "
         "Choose another name.")),
        ({"figures": {"status": Count()}}, ("figures: expected a name of small letters, digits and _, and none that the "
         "asset has (checks, commit_version, duplicates, preview, quarantined, report, rows_in, status), got 'status'. "
         "Choose another name.")),
        *(
            ({"pii": (column,), "figures": {"sold": figure}}, ("figures: expected no personal data, since figures are "
             f"kept with each commit, got {column}. Take it out."))
            for column, figure in (("amount", Sum("amount")), ("id", Count("id")), ("shop", Sum("amount", by="shop")))
        ),
    ],
)  # fmt: skip
def test_policy_that_does_not_fit_is_refused_by_name(policy: dict[str, Any], message: str) -> None:
    """Without it, a misspelt column would be found by Spark in the middle of a run, or never."""
    with pytest.raises(ContractError) as caught:
        declared(**policy)
    assert f"silver/sales.py: {message}" in str(caught.value).splitlines()


ONE_NAME: Any = "user_id"
SHARE = "expected a share from 0 to 1, got {}. Write 5 % as 0.05."
NUMBER = "expected a whole number, {} or more, got {}. Fix the number, or leave it out."


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Quality(max_null_rate={"shop": 5}), f"quality.max_null_rate: {SHARE.format(5)}"),
        (lambda: Quality(max_late=1.5), f"quality.max_late: {SHARE.format(1.5)}"),
        (lambda: Quality(min_rows=-1), f"quality.min_rows: {NUMBER.format(0, -1)}"),
        (lambda: Quality(min_rows=9, max_rows=8), f"quality.max_rows: {NUMBER.format(9, 8)}"),
        (lambda: Quality(profile=ONE_NAME), ("quality.profile: expected a tuple of names, got 'user_id'. A tuple of one "
         "has a comma: ('user_id',).")),
        (lambda: Quarantine(max_share=-0.1), f"quarantine.max_share: {SHARE.format(-0.1)}"),
        (lambda: Quarantine(max_rows=-5), f"quarantine.max_rows: {NUMBER.format(0, -5)}"),
        (lambda: Quarantine(max_age=timedelta(days=-1)), ("quarantine.max_age: expected a time that is not negative, "
         "got -1 day, 0:00:00. Write it as timedelta(days=30).")),
        (lambda: Quarantine(max_ages={"r": timedelta(days=-1)}), ("quarantine.max_ages: expected times that are not "
         "negative, got -1 day, 0:00:00. Write them as timedelta(days=1).")),
        (lambda: Freshness(within=timedelta(0)), ("freshness.within: expected a time above zero, got 0:00:00. Write it "
         "as timedelta(hours=36).")),
        (lambda: Freshness(budget=5), f"freshness.budget: {SHARE.format(5)}"),
        (lambda: Privacy(person=ONE_NAME), ("privacy.person: expected a tuple of names, got 'user_id'. A tuple of one "
         "has a comma: ('user_id',).")),
        (lambda: Layout(files_per_day=0), f"layout.files_per_day: {NUMBER.format(1, 0)}"),
        (lambda: Volume(min_ratio=2), ("volume: expected min_ratio from 0 to 1 and max_ratio 1 or more, got (2, 4.0). A "
         "day of the usual size has the ratio 1.")),
        (lambda: Anomalies(history=2), f"history: {NUMBER.format(4, 2)}"),
        (lambda: Input("silver.rows", days_before=-1), f"days_before: {NUMBER.format(0, -1)}"),
        (lambda: Input("silver.rows", days_after=-1), f"days_after: {NUMBER.format(0, -1)}"),
        (lambda: Clock("at", back=timedelta(hours=1)), ("clock.back: expected whole days, 1 or more, got 1:00:00. Write "
         "it as timedelta(days=400).")),
        (lambda: Landing("sales", "parquet", ("a",)), ("inputs: expected a format, csv or jsonl, got 'parquet'. Have the "
         "source sent in one of these.")),
        (lambda: Landing("sales", "csv", ("at",), time="att"), ("inputs: expected a field of landing/sales (at), got "
         "'att'. Did you mean 'at'?")),
        (lambda: Landing("sales", "csv", ("a",), producer="x"), ("inputs: expected a pattern whose first group is the "
         "producer, got 'x'. Put it in brackets.")),
        (lambda: Landing("sales", "csv", ("a",), producer="("), ("inputs: expected a pattern for the producer, got '(' "
         "(missing ), unterminated subpattern at position 0). Fix the pattern.")),
        (lambda: Extract("s", "t", ("id", "updated_at"), times=("updated_at",), key=("idd",)), ("inputs: expected a "
         "column of t (id, updated_at), got 'idd'. Did you mean 'id'?")),
    ],
)  # fmt: skip
def test_a_value_of_the_vocabulary_checks_itself(make: Callable[[], object], message: str) -> None:
    """Without it, a bound that no day can meet, or every day does, would be found by nobody."""
    with pytest.raises(ContractError) as caught:
        make()
    assert str(caught.value) == message


def test_all_mistakes_are_told_together() -> None:
    """Without it, a file with three of them would be fixed in three rounds."""
    with pytest.raises(ContractError) as caught:
        declared(owner="", grain="", compatibility="x")
    assert [line.split(": ")[1] for line in str(caught.value).splitlines()] == ["owner", "grain", "compatibility"]


@pytest.mark.parametrize("owner", ["wards", "team:", "ann@example"])
def test_an_owner_that_dagster_does_not_take_is_refused(owner: str) -> None:
    """Without it, the file is taken for whole, and the next build ends in a traceback through Dagster's code."""
    with pytest.raises(ContractError, match=f"owner: expected team:… or an e-mail address, got {owner}. Say who is"):
        declared(owner=owner)
    assert not is_valid_owner(owner)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"lines": Input("silver.rows")}, ("inputs: expected the parameters of sales (rows), got lines. Name each input "
         "as the parameter that it is for.")),
        ({"rows": Input("silver.rows"), "more": Input("silver.more")}, ("inputs: expected the parameters of sales (rows), "
         "got rows, more. Name each input as the parameter that it is for.")),
    ],
)  # fmt: skip
def test_inputs_that_do_not_fit_are_refused(inputs: Any, message: str) -> None:
    """Without it, a transform would be called with parameters it does not have, once the engine runs."""
    with pytest.raises(ContractError) as caught:
        declared(inputs=inputs)
    assert str(caught.value) == f"silver/sales.py: {message}"


def test_columns_of_inputs_are_written_short() -> None:
    """Without it, each line of a table file would repeat the name of its only input."""
    one = declared(lineage={"amount": ("price", "rows.pieces"), "shop": ()}, reconciles={"amount": "price"})
    assert one.lineage == {"amount": (("silver.rows", "price"), ("silver.rows", "pieces")), "shop": ()}
    assert one.reconciles == {"amount": ("silver.rows", "price")}
    assert one.profiled == ("amount",)


def test_privacy_names_each_personal_column_once() -> None:
    """Without it, an id that is also a token would be hidden and told twice."""
    made = declared(person=("id",), tokens=("id", "shop"), pii=("amount",))
    assert made.pii == ("id", "shop", "amount")


def test_keys_are_unique_within_a_day_or_as_many_as_are_said() -> None:
    """Without it, a table that says nothing would read its neighbours, or one that says so would not."""
    assert declared(key=("id",), keep_first_by=("amount",)).unique_days == 0
    assert declared(**UNIQUE).unique_days == 1
    assert declared(**{**UNIQUE, "partition_by": ("day", "shop"), "key": ("shop", "id")}).unique_days == 1


def test_landed_files_are_the_only_input_of_a_table() -> None:
    """Without it, a table of two sources would build from one of them."""

    def both(lines: DataFrame, rows: DataFrame) -> DataFrame:
        return lines

    text = (
        "bronze/both.py: inputs: expected tables, or one landed source, one database table or one Topic, and nothing else, "
        "got lines, rows. Read each source in a bronze table of its own."
    )
    with pytest.raises(ContractError, match=re.escape(text)):
        table("bronze.both", model("Sales", **SALES), both, {"lines": Landing("s", "csv", ("a",)), **INPUT})


def test_upsert_needs_one_input_and_the_days_of_its_events() -> None:
    """Without it, an upsert would fail, or find too few days, at its second run."""
    columns = {n: c for n, c in SALES.items() if n != "_event_days"}
    with pytest.raises(
        ContractError,
        match="model: expected a column _event_days of type array<date>, as upsert needs, got no such column. Add it",
    ):
        declared(columns=columns, key=("id",), upsert=True)
    windows = {"days_before": Input("silver.rows", days_before=3), "days_after": Input("silver.rows", days_after=3)}
    for side, read in windows.items():
        with pytest.raises(
            ContractError,
            match=f"exactly one input, a table without days_before or days_after, got rows with {side}=3. Join",
        ):
            declared(inputs={"rows": read}, key=("id",), upsert=True)
    assert declared(key=("id",), upsert=True).upsert


@pytest.mark.parametrize("name", ["route", "_failed_rules", "_copies"])
def test_column_names_that_staging_uses_are_refused(name: str) -> None:
    """Without it, a shop's `route` column would be overwritten by the route of the row."""
    with pytest.raises(
        ContractError, match=rf"none of the columns that staging adds \(route, .*\), got {name}\. Rename"
    ):
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
    for module, file in {
        "lakehouse.silver.sale": "silver/sale",
        "lakehouse.platinum.sales": "platinum/sales",
        "sales": "/sales",
    }.items():
        sales.__module__ = module
        with pytest.raises(ContractError) as caught:
            declare(**made)(sales)
        assert str(caught.value) == (
            f"{file}.py: @table: expected a function named after its file, in bronze, silver, gold, got sales in "
            f"{file}.py. One file is one table: rename one of them."
        )
    sales.__module__ = "lakehouse.silver.sales"
    assert declare(**made)(sales).id == "silver.sales"


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
