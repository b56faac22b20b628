"""The same tables through Spark Connect: nothing in the project may need the engine's own process."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from lakehouse.settings import get_settings
from lakehouse.spark.jars import ensure_jars

TOKEN = "a token of the tests"
_SESSION_OPTIONS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_CLIENT = """
from datetime import date
from lakehouse.catalog import tables
from lakehouse.settings import get_settings
from lakehouse.sources.landing import land_events, land_sample_online_retail
from lakehouse.spark.session import start
from lakehouse.tables.build import build
from lakehouse.tables.lake import Lake

settings, day = get_settings(), date(2011, 1, 5)
land_sample_online_retail(settings.root, day, 1, rows=200, seed=3)
land_events(settings.root, day, 1, rows=100, seed=3)
lake = Lake(settings, tables(), lambda: start(settings))
for table in tables().values():
    result = build(lake, table, [day], run_id="connect").days[day]
    print(table.id, result.status, result.metrics.rows)
print(type(lake.spark).__module__)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a Connect server on loopback, with Delta and a token."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    home = Path(pyspark.__file__).parent
    options = {**_SESSION_OPTIONS, "spark.connect.grpc.binding.port": str(port)}
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
        process.wait(30)


@pytest.mark.slow
def test_every_table_is_built_through_connect(server: str, tmp_path: Path) -> None:
    """A use of SparkContext, of RDDs or of the JVM would only be noticed on somebody's cluster."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _CLIENT],
        env={**os.environ, "LAKEHOUSE_ROOT": str(tmp_path / "root"), "LAKEHOUSE_SPARK_URL": server},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *tables, session = done.stdout.splitlines()
    assert len(tables) == 6
    assert all(line.split()[1] == "published" for line in tables), done.stdout
    assert int(tables[-1].split()[2]) > 0
    assert session.startswith("pyspark.sql.connect")
