"""A Redis on this machine, for development and tests.

    redis/            mode 0700, under the root
        alive         locked by the server for as long as it lives
        redis.json    where it listens, kept: who was told its address finds it there after a restart, too
        redis.conf    what it is told
        data/         what it holds, as the commands that made it: plain text, which a search for a person can read

It listens on loopback alone and has no login: whoever can reach this machine's loopback can read and write.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lakehouse.errors import EngineError, UsageError
from lakehouse.settings import Settings
from lakehouse.spark.place import Place, read_record, write_private
from lakehouse.spark.ui import free_port
from lakehouse.store.disk import private_umask

HOST = "127.0.0.1"
START_SECONDS = 30.0  # it takes a tenth of one, and longer where it has much to read again
LOG_BYTES = 10_000_000  # then a new one is begun and the last one kept
_KEEPER = "lakehouse.spark.becoming"
_CONFIG: Mapping[str, str] = {
    "bind": HOST,
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
        return f"redis://{HOST}:{self.port}/0"


def place_of(settings: Settings) -> Place:
    """Where the Redis of this lakehouse is, or would be."""
    return Place(settings.root / "redis", settings.root / "logs" / "redis.log")


def server_of(settings: Settings) -> Server | None:
    """The Redis of this lakehouse; None where none is on. One that has just started may not answer yet."""
    place = place_of(settings)
    found, pid = read_record(place.folder / "redis.json"), place.pid()
    if found is None or pid is None:
        return None
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
    place = place_of(settings)
    place.prepare()
    with place.door():
        if not place.is_alive():
            _launch(settings, place, port)
        return _answering(settings, place, port)


def _answering(settings: Settings, place: Place, port: int | None) -> Server:
    deadline = time.monotonic() + START_SECONDS
    while True:
        found = server_of(settings)
        if found is not None and port not in (None, found.port):
            raise UsageError(f"Redis listens on port {found.port}. End it first: lakehouse redis stop")
        if found is not None and answers(found):
            return found
        if not place.is_alive() or time.monotonic() > deadline:
            place.end()
            raise EngineError(f"Redis did not start: see {place.log}, which ends with\n{_end_of(place.log)}")
        time.sleep(0.02)


def answers(server: Server) -> bool:
    """Whether it is ready: it answers, and has read again what it held."""
    from redis import Redis, RedisError

    try:
        with Redis(HOST, server.port, socket_timeout=1.0, socket_connect_timeout=1.0) as client:
            return bool(client.ping())
    except RedisError:
        return False


def _launch(settings: Settings, place: Place, port: int | None) -> None:
    program = shutil.which("redis-server")
    if program is None:
        raise EngineError(
            "There is no redis-server here. Install it: make redis (Debian: apt-get install redis-server)"
        )
    log = place.log
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))
    port = port or (read_record(place.folder / "redis.json") or {}).get("port") or free_port()
    if not _is_free(port):
        raise UsageError(
            f"Port {port} of {HOST}, where Redis listens, is taken by another program. End that, or choose another: "
            "lakehouse redis start --port N (what reads from Redis then needs its new address)."
        )
    (place.folder / "data").mkdir(mode=0o700, exist_ok=True)
    told = {**_CONFIG, "port": str(port)}
    write_private(place.folder / "redis.conf", "".join(f"{name} {value}\n" for name, value in told.items()))
    write_private(place.folder / "redis.json", json.dumps({"port": port, "started": time.time()}))
    orders = {
        "what": "Redis", "folder": str(place.folder), "log": str(log), "umask": private_umask(settings.root),
        "command": [program, "redis.conf"],
    }  # fmt: skip
    with log.open("ab") as output:
        subprocess.run(
            [sys.executable, "-W", "ignore", "-m", _KEEPER],
            input=json.dumps(orders).encode(), stdout=output, stderr=output, check=True, cwd=place.folder,
        )  # fmt: skip


def _is_free(port: int) -> bool:
    try:
        with socket.create_server((HOST, port)):
            return True
    except OSError:
        return False


def _end_of(log: Path, lines: int = 8) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
