"""The Redis of a lakehouse: started, found, ended by its own process id, and what it holds outlives that."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest
from pydantic import SecretStr

from lakehouse.commands.operate import doctor_remote
from lakehouse.commands.operate.doctor_remote import ProblemError
from lakehouse.errors import EngineError, UsageError
from lakehouse.online.server import place_of, server_of, start
from lakehouse.settings import Settings
from lakehouse_tests.fixtures.redis import RedisServer


def test_it_starts_once_and_keeps_its_port_and_what_it_holds(redis_server: RedisServer) -> None:
    """Without it, who was told its address would not find it after a restart, or find it empty."""
    before = redis_server.server
    assert redis_server.start() == before, "one that is on is left alone"
    with pytest.raises(UsageError, match=rf"listens on port {before.port}. End it first"):
        start(redis_server.settings, port=before.port + 1)
    with redis_server.plain() as client:
        client.set("kept", b"1")
    assert place_of(redis_server.settings).end()
    assert server_of(redis_server.settings) is None
    assert not place_of(redis_server.settings).end()
    after = redis_server.start()
    assert (after.port, after.pid != before.pid) == (before.port, True)
    with redis_server.plain() as client:
        assert client.get("kept") == b"1"
    assert stat.S_IMODE((redis_server.root / "redis").stat().st_mode) == 0o700


def test_a_port_that_is_taken_is_named(tmp_path: Path, redis_server: RedisServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"Port {port} of 127.0.0.1.*--port N"):
            start(Settings(root=tmp_path), port=port)
    assert server_of(Settings(root=tmp_path)) is None


def test_a_machine_without_redis_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a missing program would look like a fault of the server's."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="make redis"):
        start(Settings(root=tmp_path))


def test_the_doctor_asks_redis(redis_server: RedisServer, tmp_path: Path) -> None:
    """Without it, an address with a slip in it would be found by the first load; and a password would be shown."""
    assert doctor_remote.redis(redis_server.settings) == f"{redis_server.url} answers"
    nobody = Settings(root=tmp_path, redis_url=SecretStr("redis://me:secret@127.0.0.1:1/0"))
    with pytest.raises(ProblemError, match=r"127\.0\.0\.1:1") as none:
        doctor_remote.redis(nobody)
    assert "secret" not in none.value.found + none.value.fix
