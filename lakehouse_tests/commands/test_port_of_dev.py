"""What a backfill for the daemon says where something else listens at the web interface's port, or is held up."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from lakehouse.servers import graphql
from lakehouse_tests.commands.conftest import RANGE, Cli


@pytest.mark.parametrize(
    "answers",
    [
        b"",
        *(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(said), said) for said in (b"hello", b"[]", b"{}")),
        b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{",
        b"SSH-2.0-OpenSSH_9\r\n",
    ],
)
def test_without_our_daemon_a_backfill_says_how_to_start_it(
    cli: Cli, root: Path, monkeypatch: pytest.MonkeyPatch, answers: bytes
) -> None:
    """Without it, a backfill would hang, or be handed to whatever program happens to listen there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("LAKEHOUSE_PORT", str(taken.getsockname()[1]))
        if answers:
            taken.listen()
            threading.Thread(target=_says, args=(taken, answers), daemon=True).start()
        said = cli("backfill", *RANGE, "--daemon", "--json")
    assert said.code == 3
    assert ("is no Dagster" if answers else "Nothing answers at http://127.0.0.1:") in said.err
    assert answers or "dev` and leave it on" in said.err
    assert not said.out
    assert "18 partitions to build, 0 unchanged, a gapless range in one run" in said.err


def _says(taken: socket.socket, what: bytes) -> None:
    with taken.accept()[0] as connection:
        connection.recv(10_000)
        connection.sendall(what)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(10_000):  # one that closes with a part of the question unread resets the connection
            pass


def test_a_web_interface_that_is_held_up_is_told_as_such(cli: Cli, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the command says that nothing is there, and the backfill that begins later comes twice."""
    monkeypatch.setattr(graphql, "SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("LAKEHOUSE_PORT", str(taken.getsockname()[1]))
        said = cli("backfill", *RANGE, "--daemon", "--json")
    assert said.code == 3
    assert "did not answer in time" in said.err
    assert "backfills list" in said.err
