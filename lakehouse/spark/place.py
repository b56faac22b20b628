"""Where a warm engine is found: a folder by its settings and versions, with locks that no killed process can keep.

    engine/<id>/engine.json   how to reach it (mode 0600, in a folder of mode 0700)
    engine/<id>/alive         locked by the keeper for as long as it lives
    engine/<id>/door          locked for the moment in which somebody joins, starts or ends it
    engine/<id>/leases/       a file for each process that uses it, locked for as long as that process lives
    engine/<id>/doing/        for people, what those processes do: a file each, by the name of the lease

A process id says nothing here unless `alive` is locked: so an id that was given to another process is never mistaken
for the engine's.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LOG_BYTES = 10_000_000  # then a new one is begun and the last one kept
GENTLY = 20.0  # seconds that an engine has to end by itself before it is killed


def log_with_room(log: Path) -> Path:
    """The file of a log, in a folder that is there; a full one is put aside."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))
    return log


@dataclass(frozen=True)
class Address:
    """How an engine is reached.

    Attributes:
        port: of this machine alone.
        token: without it, the engine answers nothing.
        pid: of its keeper, the leader of its process group.
        started: seconds since 1970.
        memory: most that its heap holds, such as 2g.
        idle_seconds: after so many without a user it ends.
        versions: of what it runs, for people.
        log: file of what it prints.
        ui: where its owner sees Spark's own pages; empty: it shows none.
    """

    port: int
    token: str
    pid: int
    started: float
    memory: str
    idle_seconds: float
    versions: str
    log: str
    ui: str = ""

    @property
    def url(self) -> str:
        """Where it is, for people: without the token."""
        return f"sc://localhost:{self.port}"


@dataclass(frozen=True)
class Lease:
    """The use of an engine by a process; it ends with the process, however that ends.

    Attributes:
        session: of Spark Connect, which is closed when the lease ends.
        pid: of the process.
        works: it computes; else it only wants the engine to be there, as `lakehouse dev` does.
        until: the engine is to end with this lease, as far as nobody else uses it.
    """

    session: str
    pid: int
    works: bool = True
    until: bool = False


class Place:
    """The folder of one engine.

    Args:
        folder: named by all that the engine is started with.
        log: file of what it and its keeper print.
    """

    def __init__(self, folder: Path, log: Path) -> None:
        self.folder, self.log = folder, log
        self._address, self._alive, self._door = folder / "engine.json", folder / "alive", folder / "door"
        self.leases, self._doing = folder / "leases", folder / "doing"

    def prepare(self) -> None:
        """Make the folder, readable by its owner alone."""
        for each in (self.folder, self.leases, self._doing):
            each.mkdir(parents=True, exist_ok=True)
            each.chmod(0o700)

    @contextmanager
    def door(self) -> Iterator[None]:
        """While it is held nobody else joins, starts or ends the engine."""
        descriptor = _locked(self._door, wait=True)
        assert descriptor is not None
        try:
            yield
        finally:
            os.close(descriptor)

    def be_alive(self, *, with_children: bool = False) -> bool:
        """As the keeper: be the only one, until this process ends. False where there is one.

        Args:
            with_children: until also those processes have ended that it starts with its descriptors.
        """
        for _ in range(20):
            if (descriptor := _locked(self._alive)) is not None:
                os.ftruncate(descriptor, 0)  # who held it before is not who holds it now
                os.set_inheritable(descriptor, with_children)
                return True
            time.sleep(0.02)  # somebody who only looks holds it for a moment
        return False

    def is_alive(self) -> bool:
        """Whether a keeper is there, starting, serving or ending."""
        return _is_locked(self._alive)

    def pid(self) -> int | None:
        """Of the keeper; None where there is none, or it has not told yet."""
        found = (read_record(self._alive) or {}).get("pid")
        return found if isinstance(found, int) and self.is_alive() else None

    def publish(self, address: Address) -> None:
        """As the keeper: let others find the engine."""
        write_private(self._address, json.dumps(asdict(address)))

    def withdraw(self) -> None:
        """As the keeper: let nobody find it any more."""
        self._address.unlink(missing_ok=True)

    def address(self) -> Address | None:
        """How to reach the engine; None where none serves."""
        found = read_record(self._address)
        if found is None or not self.is_alive():
            return None
        with suppress(TypeError):  # of another version of this program
            return Address(**found)
        return None

    def lease(self, session: str, *, works: bool = True, until: bool = False) -> int:
        """Take a lease, held by the returned descriptor; call it behind the door.

        Args:
            session: of Spark Connect, a UUID.
            works: it is for computing; else it lasts also where this process becomes another program.
            until: the engine is to end with it.
        """
        draft = self.folder / f".{secrets.token_hex(8)}"
        descriptor = _locked(draft)
        assert descriptor is not None
        os.write(descriptor, json.dumps(asdict(Lease(session, os.getpid(), works, until))).encode())
        os.set_inheritable(descriptor, not works)
        draft.rename(self.leases / session)  # locked before anybody can see it
        return descriptor

    def users(self) -> list[Lease]:
        """The leases that are held."""
        return [lease for path, lease in self._all() if _is_locked(path)]

    def ended(self) -> list[Lease]:
        """As the keeper: the leases whose process is gone; they are not told of again."""
        over = [(path, lease) for path, lease in self._all() if not _is_locked(path)]
        for path, lease in over:
            (self._doing / lease.session).unlink(missing_ok=True)
            path.unlink(missing_ok=True)
        return [lease for _, lease in over]

    def tell_doing(self, session: str, doing: Mapping[str, str]) -> None:
        """As the holder of a lease: what its process does, for people; not in the lease, which keeps its lock."""
        write_private(self._doing / session, json.dumps(dict(doing)))

    def doing(self, session: str) -> dict[str, str]:
        """What the process of a lease does; empty where it does not tell."""
        return read_record(self._doing / session) or {}

    def _all(self) -> list[tuple[Path, Lease]]:
        found = []
        for path in sorted(self.leases.glob("*")) if self.leases.is_dir() else []:
            with suppress(TypeError):
                found.append((path, Lease(**(read_record(path) or {}))))
        return found

    def end(self, seconds: float = GENTLY) -> bool:
        """End the engine: its keeper is asked, and after some seconds killed with all it started. False if none is on.

        Raises:
            PermissionError: it is somebody else's.
        """
        pid = (read_record(self._alive) or {}).get("pid")
        if not self.is_alive() or not self.is_here() or not isinstance(pid, int):
            return False
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                if number is signal.SIGTERM:
                    os.kill(pid, number)
                elif self.is_alive():
                    os.killpg(pid, number)
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and self.is_alive():
                time.sleep(0.05)
        self.withdraw()
        return True

    def keep(self, what: str, work: Callable[[], object], umask: int, *, with_children: bool = False) -> None:
        """As the keeper: leave who started this process behind, and do the work as the leader of a group of its own.

        Args:
            what: it keeps, for the log.
            work: what it does; where that breaks, all it has started ends.
            umask: of the files that it and its children write.
            with_children: as `be_alive`.
        """
        if not self.be_alive(with_children=with_children):
            say(what, "is kept by another process already")
            return
        if os.fork():
            os._exit(0)  # who started it need not wait for its end
        os.setsid()
        self.tell_pid()
        os.umask(umask)
        try:
            work()
        except BaseException as error:
            say(what, f"did not start: {error}")
            os.killpg(0, signal.SIGKILL)
            raise

    def tell_pid(self) -> None:
        """As the keeper, who is alive: who that is."""
        self._alive.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))

    def is_here(self) -> bool:
        """Whether the keeper is one of this machine, or container: a folder may be shared, process ids are not."""
        return (read_record(self._alive) or {}).get("host") == socket.gethostname()


def _locked(path: Path, *, wait: bool = False) -> int | None:
    """A descriptor of the file that alone holds its lock; None where another has it."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who only look do not see each other
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def say(what: str, text: str) -> None:
    """A line in the log of an engine or cluster."""
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} The {what} {text}.\n")
    sys.stderr.flush()


def read_record(path: Path) -> dict[str, Any] | None:
    """A JSON object that was kept in a file; None where there is none."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write_private(path: Path, content: str) -> None:
    """Make a text that of a file which only its owner reads, in one step."""
    draft = path.with_name(f".{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(content)
    draft.replace(path)
