"""Spark's own web interface, for the owner of the engine alone: Spark asks for a key, which a proxy in front of it has.

Its pages show plans, and plans hold values: whose rows were looked for, for one. A port of this machine is open to all
of its users, and Spark cannot tell them apart. So Spark answers only requests that are signed (its `JWSFilter`), which
no browser does. The proxy signs those of the owner's own processes, and of nobody else: the system tells which user has
opened a connection. So an address holds no secret, and a run's log can link to it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import os
import secrets
import shlex
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from lakehouse.servers.ports import HERE, free_port

ENABLED = "spark.ui.enabled"
_CONNECTIONS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"
_PATIENCE = 30.0  # seconds that Spark has for a page, and a browser for a request
_FILTER = "org.apache.spark.ui.JWSFilter"
_KEY = f"spark.{_FILTER}.param.secretKey"
# What an engine remembers of what is over, which is part of its heap: enough for the pages of a run or two.
RETAINED = {
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "2000",
    "spark.ui.retainedDeadExecutors": "1",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.connect.ui.retainedSessions": "20",
    "spark.connect.ui.retainedStatements": "50",
}
_SHOWING = {
    "spark.ui.killEnabled": "false",  # to look is all that a page is for
    "spark.ui.filters": _FILTER,
    "spark.port.maxRetries": "0",  # the port is the one the proxy knows, or the engine does not start
}
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_OF_THE_WAY = {"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"}
_ADDRESS = "SPARK_LOCAL_IP"  # where Spark's pages listen; without it, on all of the machine's addresses


def is_guarded() -> bool:
    """Whether the system tells whose a connection is: without that, there is no proxy, and so no pages."""
    return _CONNECTIONS[0].exists()


@contextmanager
def shown(config: Mapping[str, str]) -> Iterator[tuple[dict[str, str], str]]:
    """Held while a local engine is started in this process: its settings, and where its pages are for its owner.

    The proxy ends with the process. Where the settings show no pages, they are given as they are, and no address.

    Args:
        config: settings of the engine.
    """
    if config.get(ENABLED) != "true":
        yield dict(config), ""
        return
    key, port = secrets.token_bytes(32), free_port()
    proxy = Proxy(port, signed(key))
    try:
        with _in_secret(key):
            yield {**RETAINED, **config, **_SHOWING, "spark.ui.port": str(port)}, proxy.url
    except BaseException:
        proxy.server_close()
        raise
    threading.Thread(target=proxy.serve_forever, name="spark-ui", daemon=True).start()


@contextmanager
def _in_secret(key: bytes) -> Iterator[None]:
    """Hand the key to the JVM in a file of the owner's: settings are on its command line, which everybody reads."""
    descriptor, name = tempfile.mkstemp(suffix=".conf")  # mode 0600
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{_KEY}={_base64(key)}\n")
    before = {each: os.environ.get(each) for each in (_ARGUMENTS, _ADDRESS)}
    given = before[_ARGUMENTS] or "pyspark-shell"
    os.environ |= {_ARGUMENTS: f"--load-spark-defaults --properties-file {shlex.quote(name)} {given}", _ADDRESS: HERE}
    try:
        yield
    finally:
        Path(name).unlink()
        for each, value in before.items():
            os.environ.pop(each)
            if value is not None:
                os.environ[each] = value


def signed(key: bytes) -> str:
    """A JSON Web Signature of nothing, which tells that its bearer has the key (RFC 7515, HS256)."""
    parts = [_base64(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, {"sub": "owner"})]
    text = ".".join(parts)
    return f"{text}.{_base64(hmac.digest(key, text.encode(), hashlib.sha256))}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Proxy(ThreadingHTTPServer):
    """Lets processes of one user read the pages that another port of this machine shows to a key.

    Args:
        port: of the pages.
        bearer: what they are shown to.
        owner: the user's id; None: of this process.
    """

    daemon_threads = True

    def __init__(self, port: int, bearer: str, owner: int | None = None) -> None:
        super().__init__((HERE, 0), _Request)
        self.pages, self.bearer = port, bearer
        self.owner = os.getuid() if owner is None else owner

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{HERE}:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a browser that goes away is no news."""


class _Request(BaseHTTPRequestHandler):
    server: Proxy
    timeout = _PATIENCE

    def do_GET(self) -> None:
        """Show a page, to the owner."""
        # A page of the Internet can have its name lead here, and read what its reader may; its name is in the request.
        name = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if name not in (HERE, "localhost"):
            self.send_error(403, "Ask for 127.0.0.1")
        elif user_of(self.client_address, (HERE, self.server.server_port)) != self.server.owner:
            self.send_error(403, "The engine is another user's")
        else:
            self._pass_on()

    def _pass_on(self) -> None:
        asked = {name: self.headers[name] for name in ("Host", "Accept", "Accept-Encoding") if name in self.headers}
        pages = http.client.HTTPConnection(HERE, self.server.pages, timeout=_PATIENCE)
        try:
            pages.request("GET", self.path, headers={**asked, "Authorization": f"Bearer {self.server.bearer}"})
            answer = pages.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException):
            self.send_error(502, "The engine does not answer")
            return
        finally:
            pages.close()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _OF_THE_WAY:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its parent's name
        """Say nothing: addresses of pages hold names."""


def user_of(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The id of the user who has opened a connection on this machine; None where there is no such one (any more).

    Args:
        client: its end of the connection, IPv4.
        server: this process's end.
    """
    here, there = _written(*client), _written(*server)
    for path in _CONNECTIONS:
        with suppress(OSError):
            for line in path.read_text().splitlines()[1:]:
                _, local, remote, state, *rest = line.split()
                # With IPv6, an address of IPv4 is the end of a longer one.
                if local.endswith(here) and remote.endswith(there) and state == _ESTABLISHED:
                    return int(rest[3])
    return None


def _written(address: str, port: int) -> str:
    """An end of a connection as the system writes it."""
    return f"{int.from_bytes(socket.inet_aton(address), sys.byteorder):08X}:{port:04X}"
