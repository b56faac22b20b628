"""The process that holds a warm engine: it starts the JVM with a Spark Connect server in it, and sees to its end.

It ends the engine when nobody has used it for a while, when its folder is gone, when it answers no more, and on
SIGTERM; it ends itself when the JVM has ended. The JVM in turn ends when its keeper is killed, since its input closes
then. When a process that used the engine is gone, its session is closed at once: what it ran is interrupted, and
nothing of it stays.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakehouse.servers.place import GENTLY, say
from lakehouse.servers.ports import free_port
from lakehouse.spark.engine_place import Address, EnginePlace
from lakehouse.spark.ui import RETAINED, shown

LOOK = 0.5  # seconds between two looks at who uses it
ASK = 20.0  # seconds between two questions whether it still answers
PATIENCE = 30.0  # seconds it has for an answer; without three in a row, it is broken
OLDEST = 12 * 3600.0  # seconds after which it ends as soon as nobody uses it: whatever has piled up in it goes
TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  # the name of a variable; a command line is read by everybody
OUT_OF_MEMORY = 3  # how a JVM ends that was told to exit when it has no memory left

# Beside the settings of every engine. It serves many: each job has its share of the cores, and what it remembers of
# those that are over is little.
_POOLS = """<allocations><pool name="default">
  <schedulingMode>FAIR</schedulingMode><weight>1</weight><minShare>0</minShare>
</pool></allocations>"""
SERVING = {
    # The keeper closes the sessions of processes that are gone, and none of one that only thinks for long.
    "spark.connect.session.manager.defaultSessionTimeout": "7d",
    "spark.connect.execute.manager.detachedTimeout": "2m",
    "spark.scheduler.mode": "FAIR",
    **RETAINED,
    "spark.python.worker.reuse": "false",  # a function of Python runs with the code of now
    "spark.python.daemon.module": "lakehouse.spark.python_daemon",
}
"""What an engine is told that serves many."""
_PLUGINS, _PLUGIN = "spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin"
# Out of memory, a JVM can go on in a state that nobody has thought of: this one does not go on.
JAVA_OPTIONS, EXIT = "spark.driver.extraJavaOptions", "-XX:+ExitOnOutOfMemoryError"
_TEMPORARY = "-Djava.io.tmpdir="  # Spark takes it, too, where nothing else says where its scratch files are


@dataclass(frozen=True)
class Orders:
    """What a keeper is to hold.

    Attributes:
        folder: of the engine.
        config: the engine's Spark settings.
        idle_seconds: after so many without a user it ends.
        log: file of what it prints.
        versions: of what it runs, for people.
    """

    folder: str
    config: dict[str, str]
    idle_seconds: float
    log: str
    versions: str


class _Keeper:
    def __init__(self, orders: Orders, place: EnginePlace) -> None:
        self._orders, self._place = orders, place
        self._idle_seconds = orders.idle_seconds
        self._ended = threading.Event()
        self._unanswered = 0

    def keep(self) -> int:
        """Start the engine, let it be found, and watch it to its end."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._ended.set())
        self._place.ended()  # what was left of the engine before this one
        os.environ[TOKEN] = token = secrets.token_urlsafe(32)
        port = free_port()
        session, ui = served(self._orders.config, Path(self._orders.folder), port, self._place.scratch())
        from lakehouse.spark.wire import Wire

        self._wire = Wire(port, token)
        self._wire.version(PATIENCE)
        started = time.time()
        memory = self._orders.config.get("spark.driver.memory", "")
        self._address = Address(
            port, token, os.getpid(), started, memory, self._idle_seconds, self._orders.versions, self._orders.log, ui
        )  # fmt: skip
        self._place.publish(self._address)
        say("engine", f"serves on {self._address.url}, {memory} of memory, process {os.getpid()}")
        try:
            why = self._watch(time.monotonic())
        finally:
            if self._place.is_kept():  # else what is there may be another engine's
                self._place.withdraw()
        say("engine", f"ends: {why}")
        threading.Timer(GENTLY, os.killpg, (0, signal.SIGKILL)).start()
        with suppress(Exception):  # it may be gone
            session.stop()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)  # the JVM removes its temporary files
        while _child() is None:
            time.sleep(0.05)
        if self._place.is_kept():
            self._place.tidy()
        os._exit(0)  # nothing to be tidied is left, and the timer need not be waited for

    def _watch(self, used: float) -> str:
        """Returns why it is to end."""
        began = asked = used
        while not self._ended.wait(LOOK):
            now = time.monotonic()
            if (code := _child()) is not None:
                return "it ran out of memory" if code == OUT_OF_MEMORY else f"its JVM has ended with {code}"
            for lease in self._place.ended():
                self._idle_seconds = 0.0 if lease.until else self._idle_seconds
                self._release(lease.session)
                used = now
            if not self._place.leases.is_dir() or not self._place.is_kept():
                return "its folder is gone, or the file in it by which it is found (`alive`)"
            self._be_found()
            if any(lease.works for lease in self._place.users()):
                used = now
            elif (idle := self._idle(now - used, now - began)) is not None:
                return idle
            if now - asked > ASK:
                asked = now
                if not self._answers():
                    return "it answers no more"
        return "it was told to"

    def _be_found(self) -> None:
        """Say again who keeps it and how it is reached, where a file is damaged.

        Else nobody could end it, and each command would wait for it in vain.
        """
        with suppress(OSError):  # the disk is full; the next look tries again
            if self._place.pid() != os.getpid():
                self._place.tell_pid()
            if self._place.address() != self._address:
                self._place.publish(self._address)

    def _idle(self, unused: float, age: float) -> str | None:
        """Why it is to end that nobody uses; behind the door nobody can have come meanwhile."""
        if unused < self._idle_seconds and age < OLDEST:
            return None
        with self._place.door():
            users = self._place.users()
            if any(lease.works for lease in users) or (users and age < OLDEST):
                return None
            self._place.withdraw()
        return f"nobody has used it for {unused:.0f} s"

    def _release(self, session: str) -> None:
        with suppress(Exception):  # if it cannot be reached, the next question says so
            self._wire.release(session, PATIENCE)

    def _answers(self) -> bool:
        try:
            self._wire.version(PATIENCE)
        except Exception as error:  # noqa: BLE001  # whatever it is, there was no answer
            self._unanswered += 1
            say("engine", f"does not answer ({self._unanswered}): {str(error)[:300]}")
        else:
            self._unanswered = 0
        return self._unanswered < 3  # noqa: PLR2004


def served(settings: Mapping[str, str], folder: Path, port: int, scratch: Path) -> tuple[Any, str]:
    """Start an engine with a server in this process.

    Args:
        settings: of the engine.
        folder: of its files.
        port: of the server.
        scratch: folder of its temporary files.

    Returns:
        Its first session, for those of users are made by the server, and the address of its pages; empty: it has none.
    """
    from pyspark.sql import SparkSession

    from lakehouse.spark.fixed_settings import check_session

    pools = folder / "pools.xml"
    pools.write_text(_POOLS)
    given = {**SERVING, "spark.scheduler.allocation.file": f"file:{pools}", **settings}
    config = {
        **given,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.port.maxRetries": "0",
        _PLUGINS: ",".join(filter(None, (_PLUGIN, given.get(_PLUGINS)))),
        JAVA_OPTIONS: f"{EXIT} {_TEMPORARY}{scratch} {given.get(JAVA_OPTIONS, '')}".strip(),
    }
    builder: Any = SparkSession.builder
    with shown(config) as (config, ui):
        for key, value in config.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
    check_session(session, "this machine")
    return session, ui


def _child() -> int | None:
    """How the JVM has ended, negative by a signal; None while it runs."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return 0
    return os.waitstatus_to_exitcode(status) if pid else None


def main() -> None:
    """Take the orders from standard input, leave who started this behind, and keep the engine."""
    orders = Orders(**json.load(sys.stdin))
    place = EnginePlace(Path(orders.folder), Path(orders.log))
    umask = int(orders.config.get("spark.hadoop.fs.permissions.umask-mode", "077"), 8)
    place.keep("engine", lambda: _Keeper(orders, place).keep(), umask)


if __name__ == "__main__":
    main()
