"""What is said where Dagster's web interface answers with an error."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from lakehouse.errors import DaemonError
from lakehouse.servers.graphql import ask

LOST = (
    "(psycopg2.OperationalError) server closed the connection unexpectedly\n\tThis probably means …\n\n[SQL: SELECT 1]"
)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (LOST, r"^Dagster's database does not answer: server closed the connection unexpectedly\. Once it .* again\.$"),
        ("Unknown field", "^Dagster refuses: Unknown field$"),
    ],
)
def test_a_database_that_is_down_is_named_without_its_statement(message: str, said: str) -> None:
    """Without it, whoever starts a backfill while it is down is shown SQL, and not told what to do."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"errors": [{"message": message}]}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.handle_request).start()
        with pytest.raises(DaemonError, match=said):
            ask(f"http://127.0.0.1:{server.server_port}", "{ version }")
