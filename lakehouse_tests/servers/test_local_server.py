"""A server of this machine that is slow, or ends as it starts: who asks for it is told, and harms nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakehouse.errors import EngineError
from lakehouse.servers.local_server import LocalServer
from lakehouse.servers.place import Place
from lakehouse.settings import Settings

SLEEPS = "import time; time.sleep(600)"
ENDS = "print('the port is taken')"


@dataclass(frozen=True)
class Sleeper:
    """A process that only sleeps."""

    pid: int
    port: int


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    """One that has a quarter of a second to start."""
    place = Place(tmp_path / "sleeper", tmp_path / "logs" / "sleeper.log")
    yield LocalServer("the sleeper", "kafka", place, "sleeper.json", 0.25, 0.02)
    place.end()


def found(server: LocalServer) -> Sleeper | None:
    on = server.found()
    return Sleeper(on[0], on[1]["port"]) if on else None


def started(server: LocalServer, program: str = SLEEPS, *, answers: bool = False) -> Sleeper:
    settings = Settings(root=server.place.folder.parent)
    return server.started(
        lambda: server.run(settings, [sys.executable, "-c", program], {"port": 1}),
        lambda: found(server),
        lambda _: answers,
        None,
    )


def test_one_that_is_on_and_does_not_answer_yet_is_left_alone(server: LocalServer) -> None:
    """Without it, a Redis with a large file would be killed by whoever starts it, or starts it once more, for ever."""
    with pytest.raises(EngineError, match="The sleeper is on .*, but has not answered.* lakehouse kafka status"):
        started(server)
    on = found(server)
    assert on is not None
    with pytest.raises(EngineError, match=rf"on \(process {on.pid}\).* left alone.*sleeper\.log"):
        started(server)
    assert started(server, answers=True) == on


def test_one_that_ends_is_told_with_its_log(server: LocalServer) -> None:
    """Without it, a setting that the server refuses would look like a server that is slow."""
    with pytest.raises(EngineError, match=r"(?s)The sleeper did not start: see .*sleeper\.log.*the port is taken"):
        started(server, ENDS)
    assert not server.place.is_alive()
