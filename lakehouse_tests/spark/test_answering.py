"""An engine elsewhere that is not there is told at once: Spark alone waits for it for a quarter of an hour."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from lakehouse.errors import EngineError
from lakehouse.servers.ports import free_port
from lakehouse.settings import Settings
from lakehouse.spark.answering import addresses, answering
from lakehouse.spark.session import start
from lakehouse.spark.transient import is_transient


@pytest.mark.parametrize("address", ["sc://127.0.0.1:{port}/;token=canary", "spark://127.0.0.1:{port}"])
def test_nobody_there_is_told_before_spark_is_started(tmp_path: Path, address: str) -> None:
    """Without it, a run would hang for a quarter of an hour without a word, and take no interrupt."""
    port = free_port()
    with pytest.raises(
        EngineError, match=rf"127\.0\.0\.1:{port} does not answer \(.+Correct LAKEHOUSE_SPARK_URL"
    ) as told:
        start(Settings(root=tmp_path, spark_url=address.format(port=port)))
    assert "canary" not in str(told.value)
    assert is_transient(told.value), "it may be starting"


def test_one_of_several_masters_is_enough(tmp_path: Path) -> None:
    """Without it, a cluster with a master in reserve could not be used while one of the two is down."""
    with socket.create_server(("127.0.0.1", 0)) as master:
        there = master.getsockname()[1]
        settings = Settings(root=tmp_path, spark_url=f"spark://127.0.0.1:{free_port()},127.0.0.1:{there}")
        assert answering(settings) == f"127.0.0.1:{there}"


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("sc://somewhere", [("somewhere", 15002)]),
        ("spark://a,b:7078", [("a", 7077), ("b", 7078)]),
        ("k8s://https://host:6443", []),
        ("yarn", []),
        ("local[2]", []),
    ],
)
def test_ports_are_those_that_spark_takes(url: str, found: list[tuple[str, int]]) -> None:
    """Without it, an address without a port would be said not to answer."""
    assert addresses(Settings(spark_url=url)) == found
