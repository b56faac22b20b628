"""The report on loopback, beside Dagster's web interface: one page, made anew when something was committed.

The page is made by `lakehouse report` in a process of its own, so that this one stays small and the page follows the
table files as they are edited. It ends when its standard input does, which whoever starts it holds open: so it is never
left behind, however that process ends.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from lakehouse import store
from lakehouse.servers.ports import HERE
from lakehouse.settings import get_settings

OLDEST = 300.0  # seconds; failed runs and the passing of time commit nothing
_POLICY = ("default-src 'none'", "style-src 'unsafe-inline'", "script-src 'unsafe-inline'", "img-src data:")
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "; ".join((*_POLICY, "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'")),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Page:
    """The newest page and the state of the tables it was made from; after `oldest` seconds it is made anew."""

    def __init__(self, root: Path, oldest: float = OLDEST) -> None:
        self._root, self._oldest = root, oldest
        self._lock = threading.Lock()
        self._made: tuple[tuple[int, ...], float, bytes] | None = None

    def html(self) -> bytes | None:
        """The page, made anew where a table has a newer commit or the page is old; None where it cannot be made."""
        with self._lock:
            state = self._state()
            if self._made is None or self._made[0] != state or time.monotonic() - self._made[1] > self._oldest:
                page = self._make()
                if page is None:
                    return None
                self._made = state, time.monotonic(), page
            return self._made[2]

    def _state(self) -> tuple[int, ...]:
        tables = self._root / "tables"
        logs = [store.stat(table / "_delta_log") for layer in store.listed(tables) for table in store.listed(layer)]
        return tuple(sorted(log.modified_ns for log in logs if log))

    def _make(self) -> bytes | None:
        draft = self._root / f".report-{secrets.token_hex(4)}.html"
        command = [sys.executable, "-W", "ignore", "-m", "lakehouse.cli", "report", "--out", str(draft)]
        try:
            # What goes wrong is told on standard error, beside Dagster's own messages.
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            return draft.read_bytes()
        except (subprocess.CalledProcessError, OSError):
            return None
        finally:
            draft.unlink(missing_ok=True)


class Handler(BaseHTTPRequestHandler):
    """Answers `/` and nothing else: no path of a request ever names a file."""

    server: Server

    def do_GET(self) -> None:
        """The page."""
        port = self.server.server_address[1]
        if self.headers.get("Host") not in {f"{HERE}:{port}", f"localhost:{port}"}:
            self.send_error(HTTPStatus.FORBIDDEN)  # a site elsewhere whose name was made to point here
        elif self.path.partition("?")[0] != "/":
            self.send_error(HTTPStatus.NOT_FOUND)
        elif (page := self.server.page.html()) is None:
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, "The report cannot be made: see what lakehouse dev says")
        else:
            self.send_response(HTTPStatus.OK)
            for name, value in {**_HEADERS, "Content-Length": str(len(page))}.items():
                self.send_header(name, value)
            with suppress(ConnectionError):  # who asked may have left while the page was made
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(page)

    do_HEAD = do_GET  # noqa: N815 - the names that http.server looks for

    def log_message(self, *_: Any) -> None:
        """Say nothing about each request."""


class Server(ThreadingHTTPServer):
    """Bound to this machine alone."""

    daemon_threads = True

    def __init__(self, port: int, root: Path) -> None:
        self.page = Page(root)
        super().__init__((HERE, port), Handler)


def start(port: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start the server in a process that ends with this one, also where this one becomes another program."""
    command = [sys.executable, "-m", "lakehouse.report.serve", str(port)]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment)
    assert started.stdin is not None
    os.set_inheritable(started.stdin.fileno(), True)  # kept over execve; Dagster hands nothing on to its children
    return started


def main() -> None:
    """Serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at the terminal is for Dagster, and its end is this one's
    with Server(int(sys.argv[1]), get_settings().root) as server:
        threading.Thread(target=server.serve_forever, name="report", daemon=True).start()
        with suppress(OSError):
            while os.read(0, 1024):
                pass
        server.shutdown()


if __name__ == "__main__":
    main()
