"""Commands that need an engine, through Spark Connect, as people on a warm or remote engine run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakehouse_tests.commands.conftest import FIRST, Result, land
from lakehouse_tests.spark.test_connect import server

pytestmark = [pytest.mark.spark, pytest.mark.slow]
__all__ = ["server"]


def test_a_backfill_and_queries(server: str, tmp_path: Path) -> None:
    """A process of its own: this one may have an engine in it, and a process has either."""
    root = tmp_path / "root"
    land(root)

    def run(*arguments: str) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "lakehouse.cli", *arguments],
            env={**os.environ, "LAKEHOUSE_ROOT": str(root), "LAKEHOUSE_SPARK_URL": server},
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
    found = run("sql", "SELECT count(*) n, sum(amount) total FROM silver.transactions", "--json")
    assert found.code == 0, found.err
    assert json.loads(found.out)[0]["n"] == rows["silver.transactions"] > 0
    wrong = run("sql", "SELECT nothing FROM silver.orders")
    assert (wrong.code, wrong.out) == (2, "")
    assert "`nothing` cannot be resolved" in wrong.err
    assert "Traceback" not in wrong.err
