"""Where Dagster's state is: under the lakehouse root, however Dagster was started.

Dagster asks for `DAGSTER_HOME`, and without it throws its state away at the end. These are Dagster's own storages,
which find the folder by themselves, so that plain `dagster dev` shows what `lakehouse dev` shows.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import secrets
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from dagster._core.storage.compute_log_manager import CapturedLogContext, ComputeIOType
from dagster._core.storage.local_compute_log_manager import IO_TYPE_EXTENSION, LocalComputeLogManager
from dagster._core.storage.root import LocalArtifactStorage
from dagster._core.storage.runs import SqliteRunStorage
from dagster._core.storage.schedules import SqliteScheduleStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._serdes import ConfigurableClassData
from dagster._utils import touch_file
from filelock import FileLock
from sqlalchemy import Connection, Engine, QueuePool, create_engine, event

from lakehouse.orchestration.event_log import BatchedSqliteEventLogStorage
from lakehouse.orchestration.mirrored import mirrored
from lakehouse.settings import Settings, get_settings

T = TypeVar("T")

EVENT_BATCH_SIZE = "200"
BACKFILLS_EVERY = 5  # seconds
WAITS_FOR_CODE = "DAGSTER_BACKFILL_RETRY_DEFINITION_CHANGED_ERROR"  # a variable of Dagster's daemon
DEV = "_LAKEHOUSE_DEV"  # in the environment of what `lakehouse dev` starts: its process
_LOCK = ".opening.lock"
_DEATH_SIGNAL = 1  # prctl(2): the signal that a process gets when its parent dies


def prepare_dagster_home(settings: Settings) -> Path:
    """The folder of Dagster's state, with its `dagster.yaml` if it had none; this process and its children use it.

    Raises:
        OSError: the folder cannot be made or written.
    """
    home = settings.dagster_home
    home.mkdir(parents=True, exist_ok=True)
    target = home / "dagster.yaml"
    if not target.exists():
        # Renamed when it is whole: of two processes that start at once each leaves a sound file, and killed here,
        # none leaves half of one, which Dagster would refuse from then on.
        draft = home / f".dagster.yaml.{secrets.token_hex(4)}"
        draft.write_text(Path(__file__).with_name("dagster.yaml").read_text())
        draft.replace(target)
    os.environ["DAGSTER_HOME"] = str(home)
    # Dagster writes each event alone otherwise, and waits for the disk each time.
    os.environ.setdefault("DAGSTER_EVENT_BATCH_SIZE", EVENT_BATCH_SIZE)
    return home


def opening_lock(home: Path) -> FileLock:
    """Held while storages open; one process may take it twice.

    Dagster makes the tables of a new SQLite file without a lock, and two processes that do so break it for good.
    """
    return FileLock(home / _LOCK, is_singleton=True)


def copy_database(path: Path, target: Path) -> None:
    """Copy a SQLite file that may be in use by others, as it is at one moment; nothing is written beside it."""
    try:
        # Where its journal is in use, this waits for no one and sees whole transactions only.
        with (
            closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(target)) as copy,
        ):
            source.backup(copy)
    except sqlite3.OperationalError:
        # Nobody uses it, and who may not write cannot open a journal: the file and what is in its journal are at rest.
        for suffix in ("", "-wal"):
            beside = path.with_name(path.name + suffix)
            if beside.exists():
                shutil.copyfile(beside, target.with_name(target.name + suffix))


def _home() -> Path:
    """Dagster's own setting where there is one; else the lakehouse's."""
    if given := os.environ.get("DAGSTER_HOME"):
        return Path(given)
    # Plain `dagster dev`, which would else keep its state in a folder that it throws away.
    home = prepare_dagster_home(get_settings())
    logging.getLogger("dagster").info(f"The lakehouse's state is in {home}, and stays there.")
    return home


def _opened(make: Callable[[str], T]) -> T:
    home = _home()
    with opening_lock(home):
        return make(str(home))


class _Unconfigured:
    @classmethod
    def config_type(cls) -> dict[str, Any]:
        """Nothing to configure."""
        return {}


def _look_after_backfills() -> None:
    """Have Dagster's daemon look at backfills every few seconds, where this process is the daemon, and be patient.

    Dagster (1.13) looks every half a minute and has no setting for it: a backfill would begin that late, and so would
    each further wave of its runs. The loop reads the constant when it begins, which is after the storages are opened.

    Left to itself it also gives a backfill up, with all of its runs, where it looks while the code does not load.
    """
    if daemon := sys.modules.get("dagster._daemon.controller"):
        vars(daemon)["DEFAULT_DAEMON_INTERVAL_SECONDS"] = BACKFILLS_EVERY
        os.environ.setdefault(WAITS_FOR_CODE, "1")


def end_with_dev() -> None:
    """Have this process end with the `lakehouse dev` that started it, also where that is killed and can tell nobody.

    Its daemon would go on beside that of the next one, and its web interface would keep the port.
    """
    if sys.platform == "linux" and os.environ.get(DEV) == str(os.getppid()):
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGINT)


class _KeptOpen:
    """Dagster's SQLite storages make an SQLAlchemy engine and a connection for each question, three for each event.

    Each of them compiles its statements anew and reads what tables there are, and the last one that closes writes the
    journal into the file: more than half of what Dagster takes of a run. Here the engine and its connections are kept
    until the storage is disposed of. A journal that a killed process leaves beside the file belongs to it.

    A commit does not wait for the disk either. Whatever kills the process, it is there; a power cut may take what
    Dagster was told in the last moments, but nothing of the tables, which say themselves what was published.
    """

    _conn_string: str

    @cached_property
    def _engines(self) -> dict[int, Engine]:
        """By process: one that is forked neither uses nor closes connections that it has inherited."""
        return {}

    @property
    def _engine(self) -> Engine:
        process = os.getpid()
        if process not in self._engines:
            # Threads of the web server ask at once: more than a few connections are opened as needed, and not kept.
            made = create_engine(
                self._conn_string,
                poolclass=QueuePool,
                max_overflow=-1,
                connect_args={"timeout": SQLITE_BUSY_TIMEOUT_SECONDS},
            )
            event.listen(made, "connect", _waits_for_no_disk)
            self._engines[process] = made
        return self._engines[process]

    def dispose(self) -> None:
        """Close what is open; who asks again opens it again."""
        super().dispose()  # type: ignore[misc]  # of Dagster's storage, which comes after this class
        self._engine.dispose()

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """A connection in a transaction."""
        with self._engine.begin() as connection:
            yield connection

    _connect = connect  # as the storage of events calls it


def _waits_for_no_disk(connection: sqlite3.Connection, _record: object) -> None:
    # With a journal of its own (WAL), as Dagster makes these files, no state in between can be left by that.
    connection.execute("PRAGMA synchronous = NORMAL").close()


class RunStorage(_KeptOpen, _Unconfigured, SqliteRunStorage):
    """Runs, in `<home>/runs.db`."""

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, _config_value: Mapping[str, Any]) -> RunStorage:
        """Open it."""
        made = _opened(lambda home: cls.from_local(home, inst_data))
        assert isinstance(made, cls)
        return made


class ScheduleStorage(_KeptOpen, _Unconfigured, SqliteScheduleStorage):
    """Schedules, sensors and their ticks."""

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, _config_value: Mapping[str, Any]
    ) -> ScheduleStorage:
        """Open it."""
        made = _opened(lambda home: cls.from_local(home, inst_data))
        assert isinstance(made, cls)
        return made


class EventLog(_KeptOpen, _Unconfigured, BatchedSqliteEventLogStorage):
    """Events of all runs."""

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, _config_value: Mapping[str, Any]) -> EventLog:
        """Open it."""
        return _opened(lambda home: cls(home, inst_data=inst_data))


class ArtifactStorage(_Unconfigured, LocalArtifactStorage):
    """Files that Dagster keeps of runs, in `<home>/storage`.

    It is of every instance that `lakehouse dev` opens, also where runs and events are in a database of their own. So
    what a process is to do with the instance, and where its home is, are here.
    """

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, _config_value: Mapping[str, Any]
    ) -> ArtifactStorage:
        """Open it."""
        _look_after_backfills()
        end_with_dev()
        return cls(str(_home()), inst_data)

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        """What Dagster tells of it to those who ask: where it is as well."""
        known = super().inst_data
        return None if known is None else known._replace(config_yaml=json.dumps({"base_dir": self.base_dir}))


class ComputeLogs(_Unconfigured, LocalComputeLogManager):
    """What runs print, in `<home>/storage`."""

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, _config_value: Mapping[str, Any]
    ) -> ComputeLogs:
        """Open it."""
        return cls(str(_home() / "storage"), inst_data=inst_data)

    @contextmanager
    def capture_logs(self, log_key: Sequence[str]) -> Generator[CapturedLogContext]:
        """Keep what this process prints, and show it as before."""
        out, error = (
            self.get_captured_local_path(log_key, IO_TYPE_EXTENSION[kind])
            for kind in (ComputeIOType.STDOUT, ComputeIOType.STDERR)
        )
        with mirrored(sys.stdout, out), mirrored(sys.stderr, error):
            yield CapturedLogContext(log_key)
        # By which Dagster knows that nothing comes after it.
        touch_file(self.get_captured_local_path(log_key, "complete"))
