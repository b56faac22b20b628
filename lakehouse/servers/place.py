"""Where a server of this machine is found: a folder with locks that no killed process can keep.

    alive   locked by the server, or by who keeps it, for as long as that lives; who that is
    door    locked for the moment in which somebody joins, starts or ends it

A process id says nothing here unless `alive` is locked: so an id that was given to another process is never mistaken
for the server's.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

LOG_BYTES = 10_000_000  # then a new one is begun and the last one kept
GENTLY = 20.0  # seconds that a server has to end by itself before it is killed


def log_with_room(log: Path) -> Path:
    """The file of a log, in a folder that is there; a full one is put aside."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))
    return log


class Place:
    """The folder of one server. Its keeper is the process that holds `alive`: the server itself, or who started it.

    Args:
        folder: of its files.
        log: file of what it and its keeper print.
    """

    def __init__(self, folder: Path, log: Path) -> None:
        self.folder, self.log = folder, log
        self._alive, self._door = folder / "alive", folder / "door"
        self._held: int | None = None  # as the keeper: the descriptor that holds `alive`

    def prepare(self) -> None:
        """Make the folder, readable by its owner alone."""
        make_private(self.folder)

    @contextmanager
    def door(self) -> Iterator[None]:
        """While it is held nobody else joins, starts or ends the server."""
        descriptor = locked(self._door, wait=True)
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
            if (descriptor := locked(self._alive)) is not None:
                os.ftruncate(descriptor, 0)  # who held it before is not who holds it now
                os.set_inheritable(descriptor, with_children)
                self._held = descriptor
                return True
            time.sleep(0.02)  # somebody who only looks holds it for a moment
        return False

    def is_alive(self) -> bool:
        """Whether a keeper is there, starting, serving or ending."""
        return is_locked(self._alive)

    def is_kept(self) -> bool:
        """As the keeper: whether `alive` is still its file. Else nobody finds the server, and another may start."""
        with suppress(FileNotFoundError):
            return self._held is not None and os.path.samestat(os.fstat(self._held), self._alive.stat())
        return False

    def pid(self) -> int | None:
        """Of the keeper; None where there is none, or it has not told yet."""
        found = (read_record(self._alive) or {}).get("pid")
        return found if isinstance(found, int) and self.is_alive() else None

    def end(self, seconds: float = GENTLY) -> bool:
        """End the server: its keeper is asked, and after some seconds killed with all it started. False if none is on.

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
        self._alive.write_text(json.dumps({"pid": os.getpid(), "host": here()}))

    def is_here(self) -> bool:
        """Whether the keeper is one of this machine, or container: a folder may be shared, process ids are not."""
        return (read_record(self._alive) or {}).get("host") == here()


def here() -> str:
    """Where a process id means this process: on Linux the kernel's start and the container, which keep no host name."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{started} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def make_private(folder: Path) -> None:
    """Make a folder that its owner alone reads."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)


def locked(path: Path, *, wait: bool = False, mode: int = 0o600) -> int | None:
    """A descriptor of the file that alone holds its lock; None where another has it."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, mode)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock of a file."""
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
    """A line in the log of a server; where its disk is full there is none, and who keeps the server goes on."""
    with suppress(OSError):
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
