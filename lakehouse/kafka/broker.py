"""A Kafka broker on this machine, for development and tests: one process, which is its own controller.

    kafka/                mode 0700, under the root
        alive             locked by the broker for as long as it lives
        broker.json       where it listens, kept: who was told its address finds it there after a restart, too
        server.properties what it is told
        data/             its messages and its own log; `.format` is one in the making

It listens on loopback alone and has no login: whoever can reach this machine's loopback can read and write.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lakehouse.errors import EngineError, UsageError
from lakehouse.kafka.jars import broker_jars
from lakehouse.kafka.topics import SCHEME, answers
from lakehouse.settings import Settings
from lakehouse.spark.jars import java_command, java_home_problem
from lakehouse.spark.place import Place, read_record, write_private
from lakehouse.spark.ui import free_port
from lakehouse.store.disk import private_umask

HOST = "127.0.0.1"
MEMORY = "512m"
START_SECONDS = 120.0  # it takes some six; a busy machine takes a while
LOG_BYTES = 10_000_000  # then a new one is begun and the last one kept
_KEEPER = "lakehouse.spark.becoming"
# Code that was compiled quickly is good enough, and out of memory it does not go on in a state nobody has thought of.
_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError", "-Dlog4j2.level=WARN")
_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # A name with a typing mistake is no topic.
    "auto.create.topics.enable": "false",
    # A message's time is when it was there to be read: no producer's clock moves it.
    "log.message.timestamp.type": "LogAppendTime",
    # One node holds everything, offsets and transactions too; fifty partitions of each would be files and no use.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": str(8 * 2**20),
}


@dataclass(frozen=True)
class Broker:
    """A broker that is on.

    Attributes:
        port: of this machine alone.
        pid: of its process.
        started: seconds since 1970.
        memory: most that its heap holds, such as 512m.
        data: folder of its messages.
        log: file of what it prints.
    """

    port: int
    pid: int
    started: float
    memory: str
    data: str
    log: str

    @property
    def servers(self) -> str:
        """What Kafka's clients call `bootstrap.servers`."""
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """Its address, as settings have it."""
        return f"{SCHEME}{self.servers}"


def place_of(settings: Settings) -> Place:
    """Where the broker of this lakehouse is, or would be."""
    return Place(settings.root / "kafka", settings.root / "logs" / "kafka.log")


def broker_of(settings: Settings) -> Broker | None:
    """The broker of this lakehouse; None where none is on. One that has just started may not answer yet."""
    place = place_of(settings)
    found, pid = read_record(place.folder / "broker.json"), place.pid()
    if found is None or pid is None:
        return None
    return Broker(
        found["port"], pid, found["started"], found["memory"], str(place.folder / "data"), str(place.log)
    )  # fmt: skip


def start(settings: Settings, *, port: int | None = None, memory: str = MEMORY) -> Broker:
    """Start the broker and wait until it answers; one that is on is left as it is.

    Args:
        settings: which lakehouse it is for.
        port: where it listens; None: where it did before, or on a free one.
        memory: of its heap.

    Raises:
        EngineError: it does not come up, with its log; or its jars could not be fetched.
        UsageError: the port is somebody else's, or the broker listens on another.
    """
    place = place_of(settings)
    place.prepare()
    with place.door():
        if not place.is_alive():
            _launch(settings, place, port, memory)
        return _answering(settings, place, port)


def _answering(settings: Settings, place: Place, port: int | None) -> Broker:
    deadline = time.monotonic() + START_SECONDS
    while True:
        found = broker_of(settings)
        if found is not None and port not in (None, found.port):
            raise UsageError(f"The broker listens on port {found.port}. End it first: lakehouse kafka stop")
        if found is not None and answers(found.servers, 1.0):
            return found
        if not place.is_alive() or time.monotonic() > deadline:
            place.end()
            raise EngineError(f"The broker did not start: see {place.log}, which ends with\n{_end_of(place.log)}")
        time.sleep(0.1)


def _launch(settings: Settings, place: Place, port: int | None, memory: str) -> None:
    log = place.log
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))
    port = port or (read_record(place.folder / "broker.json") or {}).get("port") or free_port()
    if not _is_free(port):
        raise UsageError(
            f"Port {port} of {HOST}, where the broker listens, is taken by another program. End that, or choose "
            "another: lakehouse kafka start --port N (what reads from the broker then needs its new address)."
        )
    if problem := java_home_problem():
        raise EngineError(problem)
    classes = os.pathsep.join(map(str, broker_jars(settings)))
    java = [java_command(), f"-Xmx{memory}", *_JAVA, "-cp", classes]
    if not (place.folder / "data").exists():
        _format(place, java, log)
    _write(place.folder / "server.properties", port, "data")
    record = {"port": port, "memory": memory, "started": time.time()}
    write_private(place.folder / "broker.json", json.dumps(record))
    orders = {
        "what": "broker", "folder": str(place.folder), "log": str(log), "umask": private_umask(settings.root),
        "command": [*java, "kafka.Kafka", "server.properties"],
    }  # fmt: skip
    with log.open("ab") as output:
        subprocess.run(
            [sys.executable, "-W", "ignore", "-m", _KEEPER],
            input=json.dumps(orders).encode(), stdout=output, stderr=output, check=True, cwd=place.folder,
        )  # fmt: skip


def _format(place: Place, java: Sequence[str], log: Path) -> None:
    """Make the folder of the data, whole or not at all: a start that was killed leaves none that is half made."""
    draft = place.folder / ".format"
    shutil.rmtree(draft, ignore_errors=True)
    properties = place.folder / "format.properties"
    _write(properties, free_port(), draft.name)
    with log.open("ab") as output:
        done = subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id(), "-c", properties.name],
            cwd=place.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, umask=0o077, check=False,
        )  # fmt: skip
    if done.returncode:
        raise EngineError(f"The broker's data could not be made: see {log}, which ends with\n{_end_of(log)}")
    draft.rename(place.folder / "data")
    properties.unlink()


def cluster_id() -> str:
    """A new one, of 22 characters; it begins with none that would make it an option on a command line."""
    below = 62 << 2  # the last two of the 64 characters are - and _
    return urlsafe_b64encode(bytes([secrets.randbelow(below)]) + secrets.token_bytes(15)).decode().rstrip("=")


def _write(path: Path, port: int, data: str) -> None:
    """What the broker is told; it is started in the folder, so that no path needs an escape."""
    controller = free_port()
    own: Mapping[str, str] = {
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "log.dirs": data,
    }
    write_private(path, "".join(f"{name}={value}\n" for name, value in {**_PROPERTIES, **own}.items()))


def _is_free(port: int) -> bool:
    try:
        with socket.create_server((HOST, port)):
            return True
    except OSError:
        return False


def _end_of(log: Path, lines: int = 8) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
