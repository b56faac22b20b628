"""Errors of a JVM of this process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# In a process of its own: the tests' session is on the warm engine.
FAILS = """
import sys
from pathlib import Path
from pyspark.errors import PySparkException
from lakehouse.orchestration.assets import without_values
from lakehouse.settings import Settings
from lakehouse.spark.session import start
spark = start(Settings(root=Path(sys.argv[1]), engine_minutes=0, spark_url="local[1]", spark_memory="700m"))
try:
    spark.range(1).write.mode("append").parquet(f"{sys.argv[1]}/file/below")
except PySparkException as error:
    print(without_values(error))
"""


@pytest.mark.spark
def test_a_job_that_failed_is_told_as_a_server_tells_it(tmp_path: Path) -> None:
    """Without it, no attempt followed a lost executor on a cluster, and the error was that something was called."""
    (tmp_path / "file").touch()  # no folder can be made below it
    command = [sys.executable, "-W", "ignore", "-c", FAILS, str(tmp_path)]
    ended = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("SparkException: "), ended.stdout
    assert "is not a directory" in ended.stdout
    assert len(ended.stdout.splitlines()) == 1, "no stack"
