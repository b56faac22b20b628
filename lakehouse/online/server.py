"""A Redis on this machine, for development and tests.

    redis/            mode 0700, under the root
        alive         locked by the server for as long as it lives
        redis.json    where it listens, kept: who was told its address finds it there after a restart, too
        redis.conf    what it is told
        data/         what it holds, as the commands that made it: plain text, which a search for a person can read

It listens on loopback alone and has no login: whoever can reach this machine's loopback can read and write.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lakehouse.errors import EngineError
from lakehouse.servers.local_server import LocalServer
from lakehouse.servers.place import Place, write_private
from lakehouse.servers.ports import HERE
from lakehouse.settings import Settings

START_SECONDS = 30.0  # it takes a tenth of one, and longer where it has much to read again
_CONFIG: Mapping[str, str] = {
    "bind": HERE,
    "dir": "data",
    "daemonize": "no",
    "logfile": '""',  # standard output, which is the log
    # Each command is in a file a second later at most, and the files are text: no packed dump hides a person.
    "save": '""',
    "appendonly": "yes",
    "appendfsync": "everysec",
    "aof-use-rdb-preamble": "no",
    # What does not fit is refused. Pushed out unasked, features would be missing, and nobody would know why.
    "maxmemory-policy": "noeviction",
}


@dataclass(frozen=True)
class Server:
    """A Redis that is on.

    Attributes:
        port: of this machine alone.
        pid: of its process.
        started: seconds since 1970.
        data: folder of its files.
        log: file of what it prints.
    """

    port: int
    pid: int
    started: float
    data: str
    log: str

    @property
    def data_path(self) -> Path:
        """Folder of its files."""
        return Path(self.data)

    @property
    def url(self) -> str:
        """Its address, as the setting has it."""
        return f"redis://{HERE}:{self.port}/0"


def place_of(settings: Settings) -> Place:
    """Where the Redis of this lakehouse is, or would be."""
    return Place(settings.root / "redis", settings.root / "logs" / "redis.log")


def server_of(settings: Settings) -> Server | None:
    """The Redis of this lakehouse; None where none is on. One that has just started may not answer yet."""
    if (on := _server(settings).found()) is None:
        return None
    (pid, found), place = on, place_of(settings)
    return Server(found["port"], pid, found["started"], str(place.folder / "data"), str(place.log))


def start(settings: Settings, *, port: int | None = None) -> Server:
    """Start Redis and wait until it answers; one that is on is left as it is.

    Args:
        settings: which lakehouse it is for.
        port: where it listens; None: where it did before, or on a free one.

    Raises:
        EngineError: there is no redis-server here, or it does not come up, with its log.
        UsageError: the port is somebody else's, or Redis listens on another.
    """
    server = _server(settings)
    return server.started(lambda: _launch(settings, server, port), lambda: server_of(settings), answers, port)


def answers(server: Server) -> bool:
    """Whether it is ready: it answers, and has read again what it held."""
    from redis import AuthenticationError, Redis, RedisError

    try:
        with Redis(HERE, server.port, socket_timeout=1.0, socket_connect_timeout=1.0) as client:
            return bool(client.ping())
    except AuthenticationError:  # somebody gave it a password: who loads it is told that
        return True
    except RedisError:
        return False


def _server(settings: Settings) -> LocalServer:
    return LocalServer("Redis", "redis", place_of(settings), "redis.json", START_SECONDS, 0.02)


def _launch(settings: Settings, server: LocalServer, port: int | None) -> None:
    program = shutil.which("redis-server")
    if program is None:
        raise EngineError(
            "There is no redis-server here. Install it: make redis (Debian: apt-get install redis-server)"
        )
    folder, port = server.place.folder, server.port_for(port)
    (folder / "data").mkdir(mode=0o700, exist_ok=True)
    told = {**_CONFIG, "port": str(port)}
    write_private(folder / "redis.conf", "".join(f"{name} {value}\n" for name, value in told.items()))
    server.run(settings, [program, "redis.conf"], {"port": port})
