"""Tables as they are kept: the same as those that are loaded, and not used once anything that decides them differs."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakehouse.catalog
from lakehouse.catalog import declared, looking_only, tables
from lakehouse.checks.audit import check_names
from lakehouse.contracts.kept import packed, unpacked
from lakehouse.contracts.schema_versions import version_of
from lakehouse.contracts.table import Table
from lakehouse.errors import ContractError
from lakehouse.read import kept as module
from lakehouse.read.kept import keep_tables, kept_tables
from lakehouse.settings import LAYERS

pytestmark = pytest.mark.slow  # most of them import Spark anew, as a process does

HOME = "kept_shop"
FILE = '''"""A table."""
from __future__ import annotations
import pandera.pyspark as pa
from pyspark.sql import DataFrame, types as T
from lakehouse.contracts import Input, Landing, table
from kept_shop.helpers import BACK, with_day

class Sales(pa.DataFrameModel):
    """Sales."""
    id: T.StringType() = pa.Field(description="Sale")
    day: T.DateType() = pa.Field()

@table(model=Sales, inputs={"sales": Landing("sales", "csv", ("id", "day"))}, partition_by="day", owner="team:x", grain="one sale")
def sales(sales: DataFrame) -> DataFrame:
    """Looks at rates.csv where it is there."""
    return with_day(sales, "rates.csv")
'''


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of one table, its helper and a file that it may read."""
    home = tmp_path / "project" / HOME
    for folder in (home, *(home / layer for layer in LAYERS)):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
    (home / "bronze" / "sales.py").write_text(FILE)
    (home / "helpers.py").write_text("BACK = 3\n\n\ndef with_day(rows, rates):\n    return rows\n")
    monkeypatch.syspath_prepend(str(home.parent))
    monkeypatch.setattr(module, "_age", lambda: -3600.0)  # as if this process had begun after the files were written
    (tmp_path / "root").mkdir()
    lakehouse.catalog._declared.cache_clear()
    yield home
    lakehouse.catalog._declared.cache_clear()
    for name in [each for each in sys.modules if each.partition(".")[0] == HOME]:
        del sys.modules[name]


def kept(shop: Path) -> list[Table] | None:
    return kept_tables(shop.parents[1] / "root", HOME, LAYERS)


def keep(shop: Path) -> list[Table]:
    found = list(declared(HOME).values())
    keep_tables(shop.parents[1] / "root", HOME, LAYERS, found, [shop / "schemas.json"])
    return found


SAID = [
    "id", "quarantine_id", "inputs", "owner", "grain", "partition_by", "key", "keep_first_by", "unique_within", "conserves_rows", "upsert",
    "clock", "allowed_lateness", "quality", "quarantine", "freshness", "privacy", "layout", "figures", "reconciles", "lineage",
    "schema_version", "compatibility", "features", "reads", "day_column", "content_day_column", "pii", "upstream", "reads_other_days", "landing", "extract", "topic", "taken", "schema",
    "columns", "beside", "required", "unique_days", "profiled", "description", "code", "derived", "derived_now", "policy_version", "code_version", "module",
]  # fmt: skip


def said(table: Table) -> dict[str, Any]:
    rules = [(each.name, each.describes, each.columns) for each in table.rules]
    return {
        **{name: getattr(table, name) for name in SAID},
        "rules": rules, "checks": check_names(table), "version": version_of(table), "model": table.model, "transform": table.transform,
    }  # fmt: skip


@pytest.mark.parametrize("home", ["lakehouse", "lakehouse_tests.fixtures.shop"])
def test_a_table_that_was_kept_says_what_the_loaded_one_says(home: str) -> None:
    """Without it, what is quick could be something else than what is true."""
    loaded = list(declared(home).values())
    read = unpacked(packed(loaded))
    assert [said(each) for each in read] == [said(each) for each in loaded]
    public = {name for name in vars(Table) if not name.startswith("_")} | set(Table.__dataclass_fields__)
    assert (
        public - {*SAID, "layer", "name", "rules", "model", "transform", "loaded", "changed_on_disk", "transformed"}
        == set()
    ), "new words of a table are compared too"
    assert [each.loaded() for each in read] == loaded


CHANGES = {
    "the table file": lambda home: (home / "bronze" / "sales.py").write_text(FILE.replace("team:x", "team:y")),
    "what it imports": lambda home: (home / "helpers.py").write_text("BACK = 4\n\n\ndef with_day(rows, rates):\n    return rows\n"),
    "a new table": lambda home: (home / "gold" / "revenue.py").write_text("x = 1\n"),
    "a table that is gone": lambda home: (home / "bronze" / "sales.py").unlink(),
    "a data file that was not there": lambda home: (home / "bronze" / "rates.csv").write_text("1"),
    "the locked columns": lambda home: (home / "schemas.json").write_text("{}"),
    "another package": lambda home: (home.parent / "packages" / "pandera-9.dist-info").mkdir(parents=True),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_decides_the_tables_makes_them_be_loaded(
    shop: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, `lakehouse status` would go on with contracts that are no more."""
    monkeypatch.setattr(module.sysconfig, "get_path", lambda _: str(shop.parent / "packages"))
    (loaded,) = keep(shop)
    (read,) = kept(shop) or []
    assert said(read) == said(loaded)
    CHANGES[change](shop)
    assert kept(shop) is None


def test_a_file_that_was_touched_while_this_process_ran_is_not_kept(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, what was loaded before an edit would be kept as if it were what the file says after it."""
    monkeypatch.setattr(module, "_age", lambda: 3600.0)
    keep(shop)
    assert kept(shop) is None


def test_a_rule_that_is_needed_after_all_is_that_of_the_same_code(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, rows could be judged by another code than the one they are told of."""
    keep(shop)
    (read,) = kept(shop) or []
    (shop / "bronze" / "sales.py").write_text(FILE.replace('"id", "day")', '"id", "day", "more")'))
    for name in [each for each in sys.modules if each.partition(".")[0] == HOME]:
        del sys.modules[name]
    with pytest.raises(ContractError, match=r"bronze.sales: its file has changed since this command began. Run it"):
        _ = read.model


class Program:
    """What a reader of pickles would run."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("was_run",)


@pytest.mark.parametrize("made", [b"", b"nonsense", pickle.dumps([Program()]), pickle.dumps([{}]), pickle.dumps([len])])
def test_bytes_that_are_no_tables_run_nothing(made: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, who may write under the root could make others run programs."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ContractError, match="no tables that were kept"):
        unpacked(made)
    assert list(tmp_path.iterdir()) == []


def test_what_is_damaged_or_cannot_be_read_is_loaded(shop: Path) -> None:
    keep(shop)
    (place,) = (shop.parents[1] / "root" / "cache" / "tables").iterdir()
    whole = place.read_bytes()
    for damaged in (b"", whole[:-1], whole[: len(whole) // 2], b"{}\n", b"[]\nx"):
        place.write_bytes(damaged)
        assert kept(shop) is None
    place.write_bytes(whole)
    assert kept(shop)


def test_looking_ends_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a process that looks and then builds would build from what was kept."""
    loaded = tables()
    with monkeypatch.context() as fresh:
        fresh.setattr(lakehouse.catalog, "_kept", lambda: {"bronze.events": loaded["bronze.events"]})
        tables.cache_clear()
        with looking_only():
            assert list(tables()) == ["bronze.events"]
    assert tables() == loaded


LOOKS = [
    ("status",), ("status", "--select", "silver.transactions"), ("history", "silver.transactions"), ("ready", "silver.transactions", "2011-03-01"),
    ("quarantine", "list"), ("late", "show"), ("freshness",), ("clocks",), ("report", "--out", "-"),
]  # fmt: skip
SECOND = """
import sys, json
from lakehouse.cli import app
for arguments in json.loads(sys.argv[1]):
    try:
        app(arguments, standalone_mode=False)
    except SystemExit:
        pass
    except BaseException as error:
        print(arguments, repr(error), file=sys.stderr)
    heavy = {"pyspark", "dagster", "pandas", "pandera"} & set(sys.modules)
    print("loaded", arguments, sorted(heavy), file=sys.stderr)
"""


@pytest.mark.slow
def test_looks_import_neither_dagster_nor_contracts(tmp_path: Path) -> None:
    """Without it, one import would bring back the seconds that a look took."""
    import json

    environment = {**os.environ, "LAKEHOUSE_ROOT": str(tmp_path), "LAKEHOUSE_TABLES": "lakehouse"}
    outputs = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "lakehouse.cli", "status", "--json"], capture_output=True, text=True, check=True, env=environment
        )  # fmt: skip
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1], "quick or not"
    done = subprocess.run(
        [sys.executable, "-c", SECOND, json.dumps(LOOKS)], capture_output=True, text=True, check=True, env=environment
    )
    told = [line for line in done.stderr.splitlines() if line.startswith("loaded")]
    assert told[:-1] == [f"loaded {list(each)} []" for each in LOOKS[:-1]], done.stderr
    assert told[-1] == f"loaded {list(LOOKS[-1])} ['pyspark']", "for the types of columns"
