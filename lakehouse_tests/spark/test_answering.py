"""An engine elsewhere that is not there is told at once: Spark alone waits for it for a quarter of an hour."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread

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


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_server_that_is_none_of_spark_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    """Without it, every command waited without a word for what takes connections and never answers."""
    monkeypatch.setattr("lakehouse.spark.answering.READY", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent, ExitStack() as taken:
        port = silent.getsockname()[1]

        def talk() -> None:
            with suppress(OSError):  # it was closed
                while True:
                    taken.enter_context(silent.accept()[0]).sendall(said)

        Thread(target=talk, daemon=True).start()
        with pytest.raises(
            EngineError, match=rf":{port} takes connections, but does not answer as a server of"
        ) as told:
            start(Settings(root=tmp_path, spark_url=f"sc://127.0.0.1:{port}/;token=canary"))
    assert "canary" not in str(told.value)


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
