"""The report's server: one page, for this machine, as long as `lakehouse dev` is there."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehouse.report import serve
from lakehouse.servers.ports import free_port

# Starts the server and becomes another program, as `lakehouse dev` does.
BECOMES = """
import os, sys
from lakehouse.report.serve import start
started = start(int(sys.argv[1]), dict(os.environ))
print(started.pid, flush=True)
os.execv("/bin/sleep", ["sleep", "600"])
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that became `sleep`, and the port of the server that it started."""
    port = free_port()
    environment = os.environ | {"LAKEHOUSE_ROOT": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", BECOMES, str(port)], stdout=subprocess.PIPE, text=True, env=environment
    ) as made:
        yield made, port
        made.kill()


def ask(port: int, path: str, host: str | None = None, method: str = "GET") -> tuple[int, str, dict[str, str]]:
    """Status, body and headers of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(), dict(answer.getheaders())
    connection.close()
    return found


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(wanted: bool, port: int) -> None:
    for _ in range(1_200):
        if listens(port) is wanted:
            return
        time.sleep(0.05)
    raise AssertionError(f"port {port} {'does not listen' if wanted else 'still listens'}")


@pytest.mark.slow
def test_it_answers_for_one_page_and_ends_with_who_started_it(other: tuple[subprocess.Popen[str], int]) -> None:
    """A path never names a file, a foreign host name is refused, and a kill of dev leaves no server behind."""
    process, port = other
    wait_until(True, port)
    status, page, headers = ask(port, "/")
    assert status == 200
    assert "Nothing was built yet" in page
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert headers["Cache-Control"] == "no-store"
    for path in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/report.html", "/keys/pii.key"):
        assert ask(port, path)[0] == 404, path
    assert ask(port, "/", host="example.org")[0] == 403
    assert ask(port, "/", host=f"example.org:{port}")[0] == 403
    assert ask(port, "/", method="POST")[0] == 501
    assert ask(port, "/", method="HEAD")[:2] == (200, "")
    with socket.socket() as elsewhere:
        assert elsewhere.connect_ex((socket.gethostbyname(socket.gethostname()), port)) != 0 or _only_loopback()
    process.send_signal(signal.SIGKILL)
    wait_until(False, port)


def _only_loopback() -> bool:
    """Where the machine's own name is a loopback address, there is no other to try."""
    return socket.gethostbyname(socket.gethostname()).startswith("127.0.0.1")


def test_the_page_is_made_anew_only_after_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, each look would cost seconds, or show what was there an hour ago."""
    made: list[bytes] = []
    monkeypatch.setattr(serve.Page, "_make", lambda _: made.append(b"x" * (len(made) + 1)) or made[-1])
    page = serve.Page(tmp_path)
    assert [page.html(), page.html()] == [b"x", b"x"]
    log = tmp_path / "tables" / "gold" / "t" / "_delta_log"
    log.mkdir(parents=True)
    assert [page.html(), page.html()] == [b"xx", b"xx"]
    os.utime(log, (1, 1))
    assert page.html() == b"xxx"
    always = serve.Page(tmp_path, oldest=-1.0)
    assert [always.html(), always.html()] == [b"xxxx", b"xxxxx"]


def test_who_leaves_before_the_page_is_made_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without it, a tab that is closed early would fill the terminal of `lakehouse dev` with a traceback."""
    left = threading.Event()
    monkeypatch.setattr(serve.Page, "_make", lambda _: left.wait(60) and b"x" * 10_000_000)
    with serve.Server(0, tmp_path) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with socket.create_connection(("127.0.0.1", server.server_address[1])) as browser:
            browser.sendall(f"GET / HTTP/1.0\r\nHost: 127.0.0.1:{server.server_address[1]}\r\n\r\n".encode())
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, as a crash does
        left.set()
        assert ask(server.server_address[1], "/")[0] == 200
        server.shutdown()
    time.sleep(0.5)
    assert "Traceback" not in capfd.readouterr().err
