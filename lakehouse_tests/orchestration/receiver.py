"""A web server on loopback that takes alerts, or refuses them as a test says."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SLOW = -1  # an answer that comes too late
DRIPPING = -2  # an answer that begins in time, and of which a byte comes now and then


@dataclass
class Receiver:
    """What came in.

    Attributes:
        answers: statuses of the next answers, then 200; `SLOW` answers after `delay` seconds, `DRIPPING` with a byte each 0.05
            seconds for so long.
        posts: path, headers and raw body of every request, answered well or not.
    """

    port: int = 0
    answers: list[int] = field(default_factory=list)
    always: int = 200
    delay: float = 1.0
    posts: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    def url(self, path: str = "/hook") -> str:
        """Address of a path."""
        return f"http://127.0.0.1:{self.port}{path}"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The messages, oldest first."""
        return [json.loads(body) for _, _, body in self.posts]

    def take(self) -> list[dict[str, Any]]:
        """The messages since the last call."""
        bodies, self.posts = self.bodies, []
        return bodies


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a free port."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.posts.append((self.path, dict(self.headers.items()), body))
            answer = receiver.answers.pop(0) if receiver.answers else receiver.always
            if answer == SLOW:
                time.sleep(receiver.delay)
                answer = 200
            try:
                if answer == DRIPPING:
                    self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                    for _ in range(int(receiver.delay / 0.05)):
                        self.wfile.write(b"x")
                        time.sleep(0.05)
                    return
                self.send_response(answer)
                if 300 <= answer < 400:
                    self.send_header("Location", receiver.url("/elsewhere"))
                self.send_header("Content-Length", "0")
                self.end_headers()
            except (BrokenPipeError, ConnectionResetError):
                pass  # it did not wait

        do_GET = do_POST  # noqa: N815  # so the base class calls it

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
