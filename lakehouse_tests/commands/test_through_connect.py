"""All of it through Spark Connect, as people on a warm or remote engine run it: nothing may need the engine's process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakehouse.catalog import tables
from lakehouse.settings import get_settings
from lakehouse.spark.warm import begin, wait
from lakehouse_tests.commands.conftest import FIRST, Result, land

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def server(spark: SparkSession) -> str:
    """The address of a Connect server with a token: of the engine that tests share, which is one like any other."""
    address = wait(begin(get_settings()))
    return f"{address.url}/;token={address.token}"


def test_a_backfill_and_queries(server: str, tmp_path: Path) -> None:
    """A process of its own, since a process has one kind of engine, and without Java.

    A use of SparkContext, of RDDs or of the JVM would only be noticed on somebody's cluster.
    """
    root = tmp_path / "root"
    land(root)
    here = {"JAVA_HOME": str(tmp_path / "no java"), "LAKEHOUSE_SPARK_CONFIG": "{}"}

    def run(*arguments: str) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "lakehouse.cli", *arguments],
            env={**os.environ, **here, "LAKEHOUSE_ROOT": str(root), "LAKEHOUSE_SPARK_URL": server},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=Path(__file__).parents[2],
        )
        return Result(done.returncode, done.stdout, done.stderr)

    built = run("backfill", "--from", str(FIRST), "--to", str(FIRST), "--json")
    assert built.code == 0, built.err
    rows = {each["table"]: each["rows"] for each in built.json["tables"]}
    assert set(rows) == set(tables())
    assert all(rows.values()), rows
    found = run("sql", "SELECT count(*) n, sum(amount) total FROM silver.transactions", "--json", "--engine", "spark")
    assert found.code == 0, found.err
    assert json.loads(found.out)[0]["n"] == rows["silver.transactions"] > 0
    wrong = run("sql", "SELECT nothing FROM silver.orders", "--engine", "spark")
    assert (wrong.code, wrong.out) == (2, "")
    assert "`nothing` cannot be resolved" in wrong.err
    assert "Traceback" not in wrong.err
