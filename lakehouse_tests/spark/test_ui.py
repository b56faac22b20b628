"""Spark's pages are for the owner of the engine alone. No engine needed: the proxy stands before any server."""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lakehouse.servers.ports import HERE, free_port
from lakehouse.settings import Settings
from lakehouse.spark import ui
from lakehouse.spark.config import spark_config
from lakehouse.spark.ui import Proxy, shown, user_of


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Tell what was asked, and by which key."""
        told = json.dumps([self.path, self.headers["Authorization"], self.headers["Host"]]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def pages() -> Iterator[int]:
    """The port of a server that tells what it was asked."""
    with ThreadingHTTPServer((HERE, 0), _Pages) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_port
        server.shutdown()


def asked(proxy: Proxy, path: str, **headers: str) -> tuple[int, str]:
    """What somebody is answered at a proxy."""
    threading.Thread(target=proxy.serve_forever, args=(0.01,), daemon=True).start()
    connection = http.client.HTTPConnection(HERE, proxy.server_port)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
        proxy.shutdown()


def test_the_owner_reads_pages_by_the_proxys_key_and_nobody_elses(pages: int) -> None:
    """Without it, the engine would refuse its owner, or a browser would need a key."""
    with Proxy(pages, "the key") as proxy:
        status, told = asked(proxy, "/jobs/?id=1", Authorization="another key")
        assert (status, json.loads(told)) == (200, ["/jobs/?id=1", "Bearer the key", f"127.0.0.1:{proxy.server_port}"])


def test_another_user_of_the_machine_reads_nothing(pages: int) -> None:
    """Without it, the values in plans would be everybody's on this machine."""
    with Proxy(pages, "the key", owner=os.getuid() + 1) as proxy:
        status, told = asked(proxy, "/jobs/")
    assert status == 403
    assert "the key" not in told


def test_a_page_of_the_internet_reads_nothing(pages: int) -> None:
    """Without it, a name that is made to lead here would let a foreign page read with its reader's rights."""
    with Proxy(pages, "the key") as proxy:
        assert asked(proxy, "/jobs/", Host=f"evil.example:{proxy.server_port}")[0] == 403


def test_an_engine_that_is_gone_is_said_to_be(pages: int) -> None:
    """Without it, a link of an old run would look broken."""
    del pages
    with Proxy(free_port(), "the key") as proxy:
        assert asked(proxy, "/jobs/")[0] == 502


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_system_tells_whose_a_connection_is(family: socket.AddressFamily) -> None:
    """Without it, a client that speaks IPv6 to a port of IPv4, as Java does, would be refused."""
    with socket.create_server((HERE, 0)) as server, socket.socket(family) as client:
        client.connect((HERE if family == socket.AF_INET else f"::ffff:{HERE}", server.getsockname()[1]))
        accepted, address = server.accept()
        with accepted:
            assert user_of(address, server.getsockname()) == os.getuid()
            assert user_of((HERE, 1), server.getsockname()) is None


def test_a_connection_that_is_not_open_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the administrator's id, which the system shows for what is closing, would let somebody else in."""
    line = "   0: 0100007F:C350 0100007F:1F90 {} 00000000:00000000 00:00000000 00000000 {} 0 1 1 0 20 4 30 10 -1\n"
    (tmp_path / "tcp").write_text("  sl  local_address …\n" + line.format("06", "    0") + line.format("01", " 1234"))
    monkeypatch.setattr(ui, "_CONNECTIONS", (tmp_path / "tcp", tmp_path / "none"))
    assert user_of((HERE, 50000), (HERE, 8080)) == 1234
    (tmp_path / "tcp").write_text("  sl  local_address …\n" + line.format("06", "    0"))
    assert user_of((HERE, 50000), (HERE, 8080)) is None


def test_the_key_is_in_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the key would be on the JVM's command line, which all users of the machine may read."""
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--name mine pyspark-shell")
    before = dict(os.environ)
    with shown({ui.ENABLED: "true", "spark.ui.retainedJobs": "7"}) as (config, address):
        first, _, name = os.environ["PYSPARK_SUBMIT_ARGS"].partition("--properties-file ")
        file = Path(name.split()[0])
        key = file.read_text().partition("=")[2].strip()
        assert file.stat().st_mode & 0o777 == 0o600
        assert first == "--load-spark-defaults "
        assert name.endswith(" --name mine pyspark-shell")
        assert len(base64.urlsafe_b64decode(key + "=")) == 32
        assert key not in json.dumps(config) + name
        assert config["spark.ui.retainedJobs"] == "7", "what is asked for"
        assert config["spark.ui.killEnabled"] == "false"
        assert address.startswith("http://127.0.0.1:")
    assert not file.exists()
    assert dict(os.environ) == before


def test_pages_are_shown_where_there_is_a_proxy_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, another system's engine would show its pages to all, or the setting would do nothing."""

    def enabled(**given: object) -> str:
        return spark_config(Settings(root=tmp_path, **given))[ui.ENABLED]  # type: ignore[arg-type]

    assert enabled(spark_ui=True) == "true"
    assert enabled(spark_ui=False) == "false"
    assert enabled(spark_ui=True, spark_url="spark://host:7077") == "false"
    monkeypatch.setattr(ui, "_CONNECTIONS", (tmp_path / "none",))
    assert enabled(spark_ui=True) == "false"
