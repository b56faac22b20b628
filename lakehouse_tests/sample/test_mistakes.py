"""Mistakes in a table file are told where the tables are loaded: by file, line and word, with what to do."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lakehouse.gold
from lakehouse.catalog import declared, forget_tables, tables
from lakehouse.contracts import schema_versions
from lakehouse.contracts.rules import _FIELD_CHECKS
from lakehouse.contracts.schema_versions import locked, read_lock, write_lock
from lakehouse.errors import ContractError
from lakehouse_tests.commands.conftest import run

SOUND = '''"""gold.sums: a table made by a test."""
from __future__ import annotations

from datetime import timedelta

import pandera.pyspark as pa
from pyspark.sql import types as T

from lakehouse.contracts import Freshness, Input, Layout, Privacy, Quality, Quarantine, SliceBy, table


class Sums(pa.DataFrameModel):
    """Sums of a day."""

    event_date: T.DateType() = pa.Field()
    order_id: T.StringType() = pa.Field(nullable=True)
    total: T.DecimalType(18, 2) = pa.Field(nullable=True)
    event_days: T.ArrayType(T.DateType()) = pa.Field(nullable=True, alias="_event_days")


@table(
    model=Sums,
    inputs={"transactions": Input("silver.transactions")},
    partition_by="event_date",
    key=("order_id",),
    owner="team:test",
    grain="one order",
    quality=Quality(
        max_null_rate={"order_id": 0.1},
    ),
    reconciles={"total": "amount"},
    lineage={
        "total": "amount",
    },
)
def sums(transactions):
    """Never run."""
    return transactions
'''
FILE = "lakehouse/gold/sums.py"
COLUMNS = (
    "event_id, source, order_id, user_id, event_type, event_time, event_date, amount, currency, payment_method, country, "
    "product_code, quantity, unit_price, email_token"
)
OWN = "(event_date, order_id, total, _event_days)"


def line_of(text: str, source: str) -> int:
    """The line in which a text first stands."""
    return source[: source.index(text)].count("\n") + 1


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Writes gold/sums.py, sound but for one change, locks its columns if they can be; returns the text."""
    folder = tmp_path / "gold"
    folder.mkdir()
    monkeypatch.setattr(lakehouse.gold, "__path__", [*lakehouse.gold.__path__, str(folder)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget() -> None:
        for name in ("sums", "beside"):
            sys.modules.pop(f"lakehouse.gold.{name}", None)
            if hasattr(lakehouse.gold, name):
                delattr(lakehouse.gold, name)
        importlib.invalidate_caches()
        forget_tables()

    def written(old: str = "", new: str = "", name: str = "sums", *, lock: bool = True) -> str:
        assert old in SOUND
        text = SOUND.replace(old, new, 1).replace("def sums", f"def {name}") if old else SOUND
        (folder / f"{name}.py").write_text(text)
        forget()
        if lock:
            monkeypatch.setattr(schema_versions, "lock_file", lambda: tmp_path / "schemas.json")
            try:
                write_lock(locked(declared().values(), read_lock()))
            except ContractError:
                forget_tables()
        return text

    yield written
    forget()


def refusal() -> str:
    """What loading the tables says."""
    with pytest.raises(ContractError) as caught:
        tables()
    return str(caught.value)


def test_the_file_is_sound_without_a_mistake(write: Callable[..., str]) -> None:
    """Without it, each case below could be refused for another reason."""
    write()
    made = tables()["gold.sums"]
    assert made.lineage == {"total": (("silver.transactions", "amount"),)}
    assert made.reconciles == {"total": ("silver.transactions", "amount")}


# By what is wrong: what is replaced, by what, the text whose line is told, and what is said.
MISTAKES: dict[str, tuple[str, str, str, str]] = {
    "a misspelt column of the input in lineage": (
        '"total": "amount",\n    },', '"total": "amuont",\n    },', '"amuont"',
        f"lineage: expected a column of silver.transactions ({COLUMNS}), got 'amuont'. Did you mean 'amount'?",
    ),
    "a misspelt own column in lineage": (
        '"total": "amount",\n    },', '"totl": "amount",\n    },', '"totl"',
        f"lineage: expected a column of Sums {OWN}, got 'totl'. Did you mean 'total'?",
    ),
    "a misspelt column of the input in reconciles": (
        'reconciles={"total": "amount"}', 'reconciles={"total": "amout"}', '"amout"',
        f"reconciles: expected a column of silver.transactions ({COLUMNS}), got 'amout'. Did you mean 'amount'?",
    ),
    "a misspelt own column in reconciles": (
        'reconciles={"total": "amount"}', 'reconciles={"totals": "amount"}', '"totals"',
        f"reconciles: expected a column of Sums {OWN}, got 'totals'. Did you mean 'total'?",
    ),
    "reconciles against a column whose sums are not kept": (
        'reconciles={"total": "amount"}', 'reconciles={"total": "unit_price"}', '"unit_price"',
        ("reconciles: expected a column of silver.transactions with kept sums, for total, got unit_price, which is not in "
        "its profile. Add it to quality=Quality(profile=…) in silver.transactions."),
    ),
    "an upsert key that the input lacks": (
        'key=("order_id",)', 'key=("order_id", "total"),\n    upsert=True', '"total")',
        (f"key: expected a column of silver.transactions too, as upsert needs, ({COLUMNS}), got 'total'. Write one of "
        "these."),
    ),
    "a helper of another table file": (
        "import Freshness, Input, Layout, Privacy, Quality, Quarantine, SliceBy, table",
        "import Input, Quality, table\nfrom lakehouse.silver.orders import FIRST", "from lakehouse.silver",
        ("import: expected no other table file, got lakehouse.silver.orders. Name silver.orders as an input, or move what "
        "both use into lakehouse/transforms."),
    ),
    "another table file itself": (
        "from lakehouse.contracts", "from . import user_features\nfrom lakehouse.contracts", "from . import",
        ("import: expected no other table file, got lakehouse.gold.user_features. Name gold.user_features as an input, or "
        "move what both use into lakehouse/transforms."),
    ),
    "no partition_by": (
        '    partition_by="event_date",\n', "", "@table(",
        "@table: expected partition_by, got none. Add partition_by=…",
    ),
    "no owner and no grain": (
        '    owner="team:test",\n    grain="one order",\n', "", "@table(",
        "@table: expected owner, grain, got none. Add owner, grain=…",
    ),
    "a missing comma between words": (
        'owner="team:test",', 'owner="team:test"', 'owner="team:test"',
        "invalid syntax. Perhaps you forgot a comma?.",
    ),
    "a missing comma of a tuple of one": (
        'key=("order_id",)', 'key=("order_id")', "key=",
        "key: expected a tuple of names, got 'order_id'. A tuple of one has a comma: ('order_id',).",
    ),
    "a wrong word": (
        "lineage=", "linage=", "@table(",
        "linage: expected a word of @table, got this one. Did you mean lineage?",
    ),
    "a word of a group": (
        "    quality=Quality(\n", '    max_null_rate={"order_id": 0.2},\n    quality=Quality(\n', "@table(",
        "max_null_rate: expected a word of @table, got this one. Did you mean quality=Quality(max_null_rate=…)?",
    ),
    "a wrong word of a group": (
        "max_null_rate=", "max_nul_rate=", "quality=Quality(",
        "max_nul_rate: expected a word of Quality, got this one. Did you mean max_null_rate?",
    ),
    "a wrong value of a group": (
        '{"order_id": 0.1}', '{"order_id": 10}', "max_null_rate=",
        "quality.max_null_rate: expected a share from 0 to 1, got 10. Write 5 % as 0.05.",
    ),
    "a misspelt column of a group": (
        '{"order_id": 0.1}', '{"order_ids": 0.1}', '"order_ids"',
        f"quality.max_null_rate: expected a column of Sums {OWN}, got 'order_ids'. Did you mean 'order_id'?",
    ),
    "a misspelt table": (
        'Input("silver.transactions")', 'Input("silver.transaction")', '"silver.transaction"',
        "inputs: expected a table, got 'silver.transaction'. Did you mean 'silver.transactions'?",
    ),
    "an input that cannot be cut": (
        "    quality=", '    layout=Layout(slice_by=SliceBy(("order_id",), reads={"transactios": "false"})),\n    quality=',
        '"transactios"',
        ("layout.slice_by: expected an input of the transform (transactions), got 'transactios'. Did you mean "
        "'transactions'?"),
    ),
    "a model that is none": (
        "class Sums(pa.DataFrameModel)", "class Sums", "model=Sums",
        ("model: expected a model of pandera.pyspark, got <class 'lakehouse.gold.sums.Sums'>. Write `import pandera.pyspark "
        "as pa`, then `class Sales(pa.DataFrameModel):`, and model=Sales."),
    ),
    "a table's name in place of an input": (
        'Input("silver.transactions")', '"silver.transactions"', "inputs=",
        ('inputs: expected an Input of a table for transactions, got silver.transactions. Write Input("silver.orders"); a '
        "bronze table has a Landing, Extract or Topic."),
    ),
    "a time of which nobody knows the unit": (
        "    quality=", "    freshness=Freshness(within=24),\n    quality=", "Freshness(within",
        "freshness.within: expected a time above zero, got 24. Write it as timedelta(hours=36).",
    ),
    "an age of which nobody knows the unit": (
        "    quality=", "    quarantine=Quarantine(max_age=30),\n    quality=", "Quarantine(max_age",
        "quarantine.max_age: expected a time that is not negative, got 30. Write it as timedelta(days=30).",
    ),
    "a lateness in hours": (
        "    quality=", "    allowed_lateness=timedelta(hours=36),\n    quality=", "allowed_lateness=",
        ("allowed_lateness: expected whole days, 0 or more, got datetime.timedelta(days=1, seconds=43200). Write it as "
        "timedelta(days=45)."),
    ),
    "a lateness of which nobody knows the unit": (
        "    quality=", "    allowed_lateness=45,\n    quality=", "allowed_lateness=",
        "allowed_lateness: expected whole days, 0 or more, got 45. Write it as timedelta(days=45).",
    ),
    "a name that does not exist": (
        "inputs={", "inputs=INPUTS or {", "INPUTS",
        "NameError: name 'INPUTS' is not defined",
    ),
    "a misspelt type": (
        "total: T.DecimalType(", "total: T.DecimlType(", "class Sums",  # its annotations are read at its end
        "AttributeError: module 'pyspark.sql.types' has no attribute 'DecimlType'. Did you mean 'DecimalType'?",
    ),
    "a rule that is none": (
        "total: T.DecimalType(18, 2) = pa.Field(nullable=True)",
        "total: T.DecimalType(18, 2) = pa.Field(unique_values_eq=[1])", "@table(",
        (f"Sums.total: the pandera check 'unique_values_eq' has no column form. Known: {', '.join(_FIELD_CHECKS)}; or write it "
        "as a @rule method that returns a boolean column."),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_told_by_file_line_and_word(write: Callable[..., str], case: str) -> None:
    """Without it, it would be a traceback, or an error of Spark in the middle of a run, or pass for sound."""
    old, new, at, message = MISTAKES[case]
    source = write(old, new)
    assert refusal() == f"{FILE}:{line_of(at, source)}: {message}"


def test_all_files_are_told_together_and_none_is_loaded(write: Callable[..., str]) -> None:
    """Without it, half of a lake would be built and checked, and the next mistake come up in the next round."""
    write("lineage=", "linage=")
    write('partition_by="event_date"', 'partition_by="day"', name="beside")
    assert [line.partition(": ")[0].rpartition(":")[0] for line in refusal().splitlines()] == [
        "lakehouse/gold/beside.py",
        FILE,
    ]


def test_a_table_that_is_not_locked_says_so(write: Callable[..., str]) -> None:
    """Without it, a change of its columns would be compared with nothing."""
    source = write(lock=False)
    assert refusal() == (
        f"{FILE}:{line_of('@table(', source)}: gold.sums: version 1 is not locked. Run `lakehouse schema lock` and commit "
        "the file."
    )


def test_a_column_that_is_not_the_locked_one_says_so(write: Callable[..., str], tmp_path: Path) -> None:
    """Without it, the readers of the table would find the change."""
    write()
    held = (tmp_path / "schemas.json").read_text()
    source = write("total: T.DecimalType(18, 2)", "total: T.DecimalType(18, 4)", lock=False)
    (tmp_path / "schemas.json").write_text(held)
    assert refusal() == (
        f"{FILE}:{line_of('@table(', source)}: gold.sums: column total was decimal(18,2), is decimal(18,4), but "
        "schema_version is still 1. Give @table schema_version=2 and run `lakehouse schema lock`, or undo the change."
    )


@pytest.mark.parametrize(
    "command",
    [
        ["tables"],
        ["status"],
        ["backfill", "--from", "2011-03-01", "--to", "2011-03-02"],
        ["schema", "check"],
        ["reconcile"],
    ],
)
def test_every_command_ends_with_the_text_and_code_2(
    write: Callable[..., str], tmp_path: Path, command: list[str]
) -> None:
    """Without it, one wrong word would be a page of traceback."""
    source = write("lineage=", "linage=")
    done = run(tmp_path / "root", *command)
    text = "linage: expected a word of @table, got this one. Did you mean lineage?"
    assert (done.code, done.out) == (2, "")
    assert done.err == f"Error: {FILE}:{line_of('@table(', source)}: {text}\n"


def test_dagster_says_the_same(write: Callable[..., str]) -> None:
    """Without it, its interface would show fewer tables than there are files."""
    write("lineage=", "linage=")
    sys.modules.pop("lakehouse.definitions", None)
    with pytest.raises(ContractError, match=r"lakehouse/gold/sums\.py:\d+: linage: expected a word of @table"):
        importlib.import_module("lakehouse.definitions")


# What code of the first release, without groups, had as the digest of each table file.
RECORDED = {
    "bronze.events": "b4d6cafbe007",
    "bronze.online_retail": "ed2a15f1f15b",
    "bronze.orders": "4df535dc9970",
    "silver.order_status": "d9f2cb82cf25",  # since a last version without a time is no older one
    "silver.transactions": "54e7cc3a673a",  # since messages are held to the moment of their arrival
    "silver.orders": "4f5e3fa983fa",
    "gold.daily_revenue": "abc92d872373",
    "gold.user_features": "f49e78c21d87",  # since it looks at orders before it spreads days
}


@pytest.mark.parametrize("name", RECORDED)
def test_groups_leave_built_days_as_they_are(name: str) -> None:
    """Without it, a table file in another form would make every day of a lake stale, and all would be built again.

    A change of a table's rows is a change of its digest: then write the new one here.
    """
    made = declared()[name]
    assert made.code.parts[made.transform.__module__] == RECORDED[name]
