"""`lakehouse engine cluster status`, and what a command says, where the master does not answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakehouse.commands.operate import cluster as commands
from lakehouse.commands.progress import Terminal
from lakehouse.errors import EngineError
from lakehouse.settings import Settings
from lakehouse.spark import cluster, session
from lakehouse.spark.cluster import Cluster, Size
from lakehouse.spark.options import REMOTE
from lakehouse_tests.commands.conftest import Cli

URL = "spark://127.0.0.1:24772"


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster that is on; its master takes connections, as the system does for a stopped process, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        page = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        found = Cluster(URL, page, Size(), {"master": 4711}, 0, str(tmp_path), "cluster.log")
        monkeypatch.setattr(commands, "cluster_of", lambda _: found)
        monkeypatch.setattr(commands, "state_of", lambda page: cluster.state_of(page, seconds=0.1))
        yield found


def test_status_says_that_the_master_does_not_answer(cli: Cli, silent: Cluster) -> None:
    """It said `0 of 2 workers alive. It runs: nothing.` while both built, and told to use it."""
    told = cli("engine", "cluster", "status").err
    assert "master (process 4711) does not answer" in told
    assert "engine cluster stop" in told
    assert silent.export not in told
    state = cli("engine", "cluster", "status", "--json").json
    assert (state["master_answers"], state["alive_workers"], state["applications"]) == (False, None, None)


@pytest.mark.parametrize(("free", "told"), [(0, True), (1, False)])
def test_a_run_says_for_whom_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, free: int, told: bool
) -> None:
    """Without it, a second backfill on a cluster stands still for minutes without a word."""
    workers = [{"state": "ALIVE", "cores": 1, "coresused": 1 - free}, {"state": "DEAD", "cores": 4, "coresused": 0}]
    with _page({"workers": workers, "activeapps": [{"name": "nightly"}]}) as page:
        found = Cluster(URL, page, Size(), {"master": 4711}, 0, str(tmp_path), "cluster.log")
        monkeypatch.setattr(cluster, "cluster_of", lambda _: found)
        for url in (URL, "local[2]"):
            with Terminal(Settings(root=tmp_path, spark_url=url)).here({}):
                pass
            said = capsys.readouterr().err.replace("\n", " ")
            assert ("This run waits for the end of another: all cores of the cluster belong to nightly." in said) == (
                told and url == URL
            )


@contextmanager
def _page(state: dict[str, Any]) -> Iterator[str]:
    """The address of a master's page that tells this."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(state).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_a_session_says_that_no_master_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said only that methods of a stopped SparkContext cannot be called."""

    def gives_up() -> None:
        raise RuntimeError("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.")

    builder: Any = SimpleNamespace(config=lambda *_: builder, getOrCreate=gives_up)
    monkeypatch.setattr(session, "SparkSession", SimpleNamespace(builder=builder, getActiveSession=lambda: None))
    monkeypatch.setattr(session, "shown", lambda _: nullcontext(({}, "")))
    for name in ("answering", "leave", "spark_config"):
        monkeypatch.setattr(session, name, lambda *_: {})
    monkeypatch.delenv(REMOTE, raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "python")  # else set for all that follows
    with pytest.raises(EngineError, match=f"{URL} did not start: what listens there did not answer for a minute"):
        session.start(Settings(root=tmp_path, spark_url=URL))
