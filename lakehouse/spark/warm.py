"""The warm engine: one JVM that serves this lakehouse's commands, runs and tests, each in a session of its own.

It is found by all that a JVM is started with: another setting, jar or version is another engine. The first that needs
it starts it, and it ends by itself (`keeper`). A process has one session on it, or two, closed when the process ends.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakehouse.errors import EngineError, EngineLostError, LakehouseError
from lakehouse.servers.place import log_with_room
from lakehouse.settings import Settings
from lakehouse.spark import keeper, ui
from lakehouse.spark.config import spark_config
from lakehouse.spark.engine_place import Address, EnginePlace, engine_logs
from lakehouse.spark.keeper import TOKEN, Orders
from lakehouse.spark.options import REMOTE, java_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_SECONDS = 240.0  # a busy machine takes a while; longer, and something is wrong
CLOSE_SECONDS = 20.0  # pyspark itself waits up to ten for what it has asked the engine to forget
_PACKAGES = ("pyspark", "delta-spark")
# What a JVM takes from its environment.
_HANDED_ON = (
    "JAVA_HOME", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_HOME", "SPARK_CONF_DIR",
    "SPARK_SUBMIT_OPTS", "SPARK_LOCAL_DIRS", "SPARK_LOCAL_IP", "HADOOP_CONF_DIR", "HADOOP_HOME", "PYSPARK_PYTHON",
    "PYTHONPATH", "TZ", "TMPDIR", "LANG", "LC_ALL", "KRB5_CONFIG",
)  # fmt: skip
_FAMILIES = ("AWS_", "GOOGLE_", "AZURE_")
# What this process has told itself about its session; and settings and secrets of one user of the engine.
_NOT_FOR_IT = {REMOTE, "SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_API_MODE", TOKEN}
_NOR_THESE = ("LAKEHOUSE_", "DAGSTER_")

_LOCK = threading.RLock()


class _Joined:
    """This process's use of an engine."""

    def __init__(self, place: EnginePlace, address: Address, session: str, lease: int) -> None:
        self.place, self.address, self._session, self._lease = place, address, session, lease
        self.tell()
        from lakehouse.spark.wire import open_session

        self.spark: Any = open_session(address.port, address.token, session, self.check)

    def is_there(self) -> bool:
        return not self.spark.is_stopped and self.place.address() == self.address

    def check(self) -> None:
        """Raise where the engine is gone."""
        if self.place.address() != self.address:
            raise EngineLostError(
                f"The warm engine (process {self.address.pid}) ended while it was used: see {self.address.log}. Do "
                "it again, and another one starts. LAKEHOUSE_SPARK_MEMORY gives it more memory; with "
                "LAKEHOUSE_ENGINE_MINUTES=0 every process has an engine of its own."
            )

    def tell(self) -> None:
        """Tell who looks at the engine what this process does."""
        with suppress(OSError):  # it goes on without
            self.place.tell_doing(self._session, {"command": _command(), **_doing})

    def leave(self) -> None:
        """Close the session; the engine stays. One that does not close in time is left to the keeper."""
        closing = threading.Thread(target=self._close, daemon=True)
        with suppress(RuntimeError):  # newer Pythons start no thread as they end
            closing.start()
            closing.join(CLOSE_SECONDS)
        with suppress(OSError):
            os.close(self._lease)

    def _close(self) -> None:
        with suppress(Exception):
            self.spark.stop()  # in a process that has forked, it may wait for ever


_joined: dict[str, _Joined] = {}
_doing: dict[str, str] = {}


def is_wanted(settings: Settings) -> bool:
    """Whether the settings ask for a warm engine."""
    return settings.engine_minutes > 0 and settings.is_local


def join(settings: Settings) -> SparkSession:
    """This process's session on the warm engine, which is started where there is none.

    Raises:
        EngineError: where it does not come up, with its log and how to do without it.
        SettingsError: where the user's settings decide rows.
    """
    from pyspark.errors import PySparkException

    config = spark_config(settings)
    with _LOCK:
        place = _prepared(settings, config)
        here = _joined.get(place.folder.name)
        if here is not None and here.is_there():
            return here.spark  # type: ignore[no-any-return]
        leave()  # a process has one engine at a time
        for last in (False, True):
            joined = _joined[place.folder.name] = _use(settings, config, place)
            try:
                joined.spark.version  # noqa: B018  # it answers, and to this token
            except EngineLostError:  # it ended just now; if it does not answer, its keeper ends it
                leave()
                if last:
                    raise
            except PySparkException as error:  # its keeper is held up as well
                leave()
                raise EngineError(
                    f"The warm engine (process {joined.address.pid}) does not answer. End it with `lakehouse engine "
                    "stop --force`, and run the command again: it starts a new engine."
                ) from error
            else:
                break
        return joined.spark  # type: ignore[no-any-return]


def join_beside(settings: Settings) -> SparkSession:
    """A second session of this process, on the engine that it has joined: what is set in one is not set in the other.

    Raises:
        EngineError, SettingsError: as `join`.
    """
    config = spark_config(settings)
    with _LOCK:
        join(settings)
        place = _prepared(settings, config)
        name = f"{place.folder.name}, beside"
        if name not in _joined or not _joined[name].is_there():
            _joined[name] = _use(settings, config, place)
        return _joined[name].spark  # type: ignore[no-any-return]


def pages() -> str:
    """Where the pages of the warm engine are that this process has joined; empty: nowhere."""
    return next((here.address.ui for here in _joined.values() if here.is_there()), "")


@contextmanager
def working_on(**what: str) -> Iterator[None]:
    """Tell who looks at this process's engine what it is used for, for as long as this is held.

    Args:
        **what: by a word for people, such as the table; no values of rows.
    """
    _tell(what)
    try:
        yield
    finally:
        _tell({})


def _tell(what: Mapping[str, str]) -> None:
    _doing.clear()
    _doing.update(what)
    for here in [*_joined.values()]:
        here.tell()


def _command() -> str:
    """What this process is, by its program and the first word after it; what follows may be a person's name."""
    before = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]
    if before[-2:-1] == ["-m"]:
        return before[-1]
    return " ".join([Path(sys.argv[0]).name, *(each for each in sys.argv[1:2] if each.isalpha())])


def is_lost(session: Any) -> bool:
    """Whether a session was on a warm engine that is no longer there, or was closed."""
    here = list(_joined.values())
    return bool(getattr(session, "is_stopped", False)) or any(s.spark is session and not s.is_there() for s in here)


def leave() -> None:
    """Close this process's session, if it has one."""
    with _LOCK:
        while _joined:
            _joined.popitem()[1].leave()


atexit.register(leave)


def begin(settings: Settings, *, hold: bool = False) -> EnginePlace:
    """Let the engine start, if there is none, without waiting for it.

    Args:
        settings: which engine, and for how long it stays unused.
        hold: it stays for as long as this process is there, also where that becomes another program; if it starts by
            this, it ends with it.

    Raises:
        EngineError: where nothing can be started.
        SettingsError: where the user's settings decide rows.
    """
    config = spark_config(settings)
    place = _prepared(settings, config)
    with place.door():
        if missing := not place.is_alive():
            _launch(settings, config, place)
        if hold:
            place.lease(str(uuid.uuid4()), works=False, until=missing)
    return place


def begin_early(settings: Settings) -> None:
    """Let the engine start while a command prepares what will need it; what is wrong with it, the run will say."""
    if is_wanted(settings):
        with suppress(LakehouseError, OSError):
            begin(settings)


def wait(place: EnginePlace) -> Address:
    """The address of an engine that was begun, once it serves.

    Raises:
        EngineError: it does not come up.
    """
    deadline = time.monotonic() + START_SECONDS
    while (address := place.address()) is None:
        if not place.is_alive():
            raise _failed(place, "it ended as it started")
        if time.monotonic() > deadline:
            place.end()
            raise _failed(place, f"it was not ready after {START_SECONDS:.0f} s")
        time.sleep(0.05)
    return address


def places(settings: Settings) -> list[EnginePlace]:
    """The folders of all engines of this lakehouse that are on, on this machine."""
    found = [_place(settings, each.parent.name) for each in sorted(engines(settings).glob("*/alive"))]
    return [place for place in found if place.is_alive() and place.is_here()]


def engines(settings: Settings) -> Path:
    """The folder of all engines."""
    return settings.engine_dir or settings.root / "engine"


def place_of(settings: Settings) -> EnginePlace:
    """Where the engine of the settings is, or would be."""
    return _place(settings, _fingerprint(spark_config(settings)))


def _use(settings: Settings, config: Mapping[str, str], place: EnginePlace) -> _Joined:
    """Join the engine, and start it where it is not there; once more, since another program may have taken its port."""
    session = str(uuid.uuid4())
    for last in (False, False, True):
        with place.door():
            if (address := place.address()) is not None:
                return _Joined(place, address, session, place.lease(session))
            if not place.is_alive():
                _launch(settings, config, place)
        try:
            wait(place)
        except EngineError:
            if last:
                raise
    raise _failed(place, "it ended as soon as it had started")


def _launch(settings: Settings, config: Mapping[str, str], place: EnginePlace) -> None:
    """Start a keeper, behind the door; it leaves this process at once, and starts the engine."""
    log = log_with_room(place.log)
    place.withdraw()
    orders = Orders(str(place.folder), dict(config), settings.engine_minutes * 60, str(log), _versions())
    with log.open("ab") as output:
        started = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", keeper.__name__],
            input=json.dumps(asdict(orders)).encode(), stdout=output, stderr=output, check=False,
            cwd=place.folder, env=handed_on(),
        )  # fmt: skip
    if started.returncode:
        raise _failed(place, f"its keeper ended with {started.returncode}")


def handed_on() -> dict[str, str]:
    """The environment of an engine: this process's, without what is this process's, or user's, alone."""
    # The engine is on this machine alone. pandera says the same to Spark, in those processes that import it.
    # Python functions of a query run in this Python, with its packages.
    found = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, **os.environ}
    return {name: value for name, value in found.items() if name not in _NOT_FOR_IT and not name.startswith(_NOR_THESE)}


def _failed(place: EnginePlace, why: str) -> EngineError:
    log = place.log
    return EngineError(
        f"The warm engine did not start: {why}. Its log is {log}; `lakehouse doctor` checks Java, jars and the engine "
        "one by one. With LAKEHOUSE_ENGINE_MINUTES=0 every process has an engine of its own."
    )


def _place(settings: Settings, name: str) -> EnginePlace:
    return EnginePlace(engines(settings) / name, engine_logs(settings) / f"engine-{name}.log")


def _prepared(settings: Settings, config: Mapping[str, str]) -> EnginePlace:
    place = _place(settings, _fingerprint(config))
    place.prepare()
    return place


def _fingerprint(config: Mapping[str, str]) -> str:
    """All that a JVM is started with, as 16 hex digits: of the machine, the user, the versions and the settings."""
    # Tables are found by their paths: this folder is never written, and lakehouses may share an engine. The archive of
    # classes only makes it start sooner: an engine that is on goes on where one was made meanwhile.
    settings = {name: value.removeprefix(java_options()).strip() for name, value in config.items()}
    settings = {name: value for name, value in settings.items() if value and name != "spark.sql.warehouse.dir"}
    jars = [(path, stat.st_size, stat.st_mtime_ns) for path, stat in _files(config.get("spark.jars", "").split(","))]
    handed = {
        name: value for name, value in handed_on().items() if name in _HANDED_ON or name.startswith(_FAMILIES)
    }  # fmt: skip
    conf = Path(os.environ.get("SPARK_CONF_DIR", "")) / "spark-defaults.conf"
    defaults = [(str(path), stat.st_mtime_ns) for path, stat in _files([str(conf)])]
    keeping = [Path(each.__file__ or "").read_text() for each in (keeper, ui)]
    told = [socket.gethostname(), os.getuid(), sys.prefix, _versions(), settings, jars, handed, defaults, keeping]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def _files(names: list[str]) -> list[tuple[str, os.stat_result]]:
    return [(name, Path(name).stat()) for name in names if name and Path(name).is_file()]


def _versions() -> str:
    python = ".".join(map(str, sys.version_info[:3]))
    return ", ".join([f"Python {python}", *(f"{name} {version(name)}" for name in _PACKAGES)])
