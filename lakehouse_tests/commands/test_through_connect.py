"""All of it through Spark Connect, as people on a warm or remote engine run it: nothing may need the engine's process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from lakehouse.catalog import tables
from lakehouse.servers.ports import free_port
from lakehouse.settings import get_settings
from lakehouse.spark.config import class_path
from lakehouse.spark.jars import ensure_jars
from lakehouse.spark.options import java_options
from lakehouse_tests.commands.conftest import FIRST, Result, land
from lakehouse_tests.conftest import TINY

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TOKEN = "a token of the tests"
_SESSION_OPTIONS = {
    "spark.master": "local[2]",
    **TINY,
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": java_options(),
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a Connect server on loopback, with Delta and a token."""
    port = free_port()
    home = Path(pyspark.__file__).parent
    # Java takes the archive of classes with this class path alone; what is on it is among the jars as well.
    archived = {"spark.driver.extraClassPath": class_path(get_settings())}
    options = {**_SESSION_OPTIONS, **archived, "spark.connect.grpc.binding.port": str(port)}
    submit = [str(home / "bin" / "spark-submit"), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    jars = ",".join(str(jar) for jar in ensure_jars(get_settings().jars_dir))
    settings = [part for key, value in options.items() for part in ("--conf", f"{key}={value}")]
    log = tmp_path / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*submit, "--driver-memory", "1g", "--jars", jars, *settings, "spark-internal"],
            env={**os.environ, "SPARK_HOME": str(home), "SPARK_CONNECT_AUTHENTICATE_TOKEN": TOKEN},
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
        )
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.5)
        assert process.poll() is None, log.read_text()[-2000:]
        yield f"sc://localhost:{port}/;token={TOKEN}"
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:  # its own affair: Spark waits for its listeners on a busy machine
            process.kill()
            process.wait()


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
