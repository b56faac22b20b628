"""The two files that make a table are run as the README and its guide show them."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakehouse.gold
from lakehouse.build.build import build
from lakehouse.catalog import declared, forget_tables, tables
from lakehouse.contracts import schema_versions
from lakehouse.contracts.schema_versions import locked, read_lock, write_lock
from lakehouse.orchestration.assets import build_asset
from lakehouse.sample.retail import land_sample_online_retail
from lakehouse_tests.conftest import LakeFactory

ROOT = Path(__file__).parents[2]
WHERE = {"table": "README.md", "test": "docs/how-to/add-a-table.md"}


def _block(name: str) -> str:
    page = (ROOT / WHERE[name]).read_text(encoding="utf-8")
    found = re.search(rf"<!-- walkthrough:{name} -->\n```python\n(.*?)```", page, re.DOTALL)
    assert found, f"{WHERE[name]} has no walkthrough:{name}"
    return found.group(1)


@pytest.fixture
def with_new_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A gold layer that also has the walkthrough's file."""
    (tmp_path / "daily_products.py").write_text(_block("table"))
    monkeypatch.setattr(lakehouse.gold, "__path__", [*lakehouse.gold.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    forget_tables()
    # As `lakehouse schema lock` does.
    write_lock(locked(declared().values(), read_lock()), tmp_path / "schemas.json")
    monkeypatch.setattr(schema_versions, "lock_file", lambda: tmp_path / "schemas.json")
    yield
    forget_tables()
    sys.modules.pop("lakehouse.gold.daily_products", None)
    if hasattr(lakehouse.gold, "daily_products"):
        del lakehouse.gold.daily_products


def test_the_file_is_about_forty_lines() -> None:
    """A longer example would say that tables are hard."""
    assert len(_block("table").splitlines()) <= 45


@pytest.mark.usefixtures("with_new_table")
def test_the_new_table_is_an_asset_with_its_checks() -> None:
    """Nothing but the file makes it one."""
    made = build_asset(tables()["gold.daily_products"])
    checks = {"row_count", "null_rates", "row_rules", "unique_key", "inputs_fresh"}
    assert {spec.name for spec in made.check_specs} == checks
    names = {rule.name for rule in tables()["gold.daily_products"].rules}
    assert names == {"product_code_present", "pieces_at_least_minimum", "revenue_at_least_minimum"}


def test_the_new_table_is_locked(tmp_path: Path) -> None:
    """Without it, `lakehouse schema lock`, the third step of the guide, could refuse the file of its first."""
    shop = tmp_path / "shop"
    for name in ("bronze", "silver", "gold"):
        shutil.copytree(ROOT / "lakehouse" / name, shop / name)
    for name in ("__init__.py", "schemas.json", "lineage.json"):
        shutil.copy(ROOT / "lakehouse" / name, shop / name)
    (shop / "gold" / "daily_products.py").write_text(_block("table"))
    places = {"PYTHONPATH": str(tmp_path), "LAKEHOUSE_TABLES": "shop", "LAKEHOUSE_ROOT": str(tmp_path / "lake")}
    command = [sys.executable, "-m", "lakehouse.cli", "schema", "lock"]
    said = subprocess.run(command, env=os.environ | places, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    assert "gold.daily_products: lineage of 4 columns derived" in said.stdout + said.stderr


@pytest.mark.usefixtures("with_new_table")
def test_the_new_table_is_built_from_landed_files(lake: LakeFactory) -> None:
    """The transform of the README works on what silver really holds."""
    made = lake(*tables().values())
    day = date(2011, 1, 5)
    land_sample_online_retail(made.settings.root, day, 1, rows=200, seed=3)
    for name in ("bronze.online_retail", "bronze.events", "silver.transactions", "gold.daily_products"):
        result = build(made, tables()[name], [day], run_id="walkthrough")
        assert result.days[day].status == "published", result.days[day].reason
    assert result.days[day].metrics.rows > 10


@pytest.mark.usefixtures("with_new_table")
def test_the_guides_test_passes(spark: SparkSession) -> None:
    """People copy it."""
    space: dict[str, object] = {}
    exec(compile(_block("test"), WHERE["test"], "exec"), space)  # noqa: S102 - the guide's own text
    space["test_cancellations_do_not_count"](spark)  # type: ignore[operator]
