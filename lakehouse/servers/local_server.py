"""A server program of this machine, one for a lakehouse: started on loopback, found again, and ended by its own id.

Its folder holds `alive`, locked by the server for as long as it lives, and a record that is kept: where it listens, so
that who was told its address finds it there after a restart, too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from lakehouse.errors import EngineError, UsageError
from lakehouse.servers import becoming
from lakehouse.servers.place import Place, log_with_room, read_record, write_private
from lakehouse.servers.ports import HERE, free_port, is_free
from lakehouse.settings import Settings
from lakehouse.store.disk import private_umask


class Listening(Protocol):
    """A server that is on."""

    @property
    def port(self) -> int:
        """Of this machine alone."""


Found = TypeVar("Found", bound=Listening)


@dataclass(frozen=True)
class LocalServer:
    """What a kind of server is called, and where it is.

    Attributes:
        name: in the middle of a sentence, such as `the broker`.
        family: its command, such as `kafka`.
        place: its folder and log.
        record: name of the file in the folder that says where it listens.
        seconds: that it has to start.
        pause: seconds between two looks whether it answers.
    """

    name: str
    family: str
    place: Place
    record: str
    seconds: float
    pause: float

    @property
    def subject(self) -> str:
        """Its name where a sentence begins."""
        return self.name[0].upper() + self.name[1:]

    def found(self) -> tuple[int, dict[str, Any]] | None:
        """Its process id and record; None where none is on. One that has just started may not answer yet."""
        found, pid = read_record(self._record), self.place.pid()
        return None if found is None or pid is None else (pid, found)

    def started(
        self,
        launch: Callable[[], object],
        look: Callable[[], Found | None],
        answers: Callable[[Found], bool],
        port: int | None,
    ) -> Found:
        """The server, once it answers; one that is on is left as it is, also where it does not answer in time.

        Args:
            launch: starts it (`port_for`, `run`).
            look: for the server.
            answers: whether it is ready.
            port: where it is to listen; None: anywhere.

        Raises:
            EngineError: it does not come up, with the end of its log; or it does not answer yet.
            UsageError: it listens on another port.
        """
        self.place.prepare()
        with self.place.door():
            if not self.place.is_alive():
                launch()
            deadline = time.monotonic() + self.seconds
            while True:
                found = look()
                if found is not None and port not in (None, found.port):
                    raise UsageError(
                        f"{self.subject} listens on port {found.port}. End it first: lakehouse {self.family} stop"
                    )
                if found is not None and answers(found):
                    return found
                if not self.place.is_alive():
                    raise EngineError(f"{self.subject} did not start: {self.see_log()}")
                if time.monotonic() > deadline:
                    # Whoever launched it: to end it while it reads again what it held would only begin that anew.
                    raise EngineError(
                        f"{self.subject} is on (process {self.place.pid()}), but has not answered for "
                        f"{self.seconds:.0f} s. It was left alone, since it may still be reading what it held. Look "
                        f"again: lakehouse {self.family} status; end it: lakehouse {self.family} stop; {self.see_log()}"
                    )
                time.sleep(self.pause)

    def port_for(self, port: int | None) -> int:
        """Where it is to listen: the port that is wanted, else that of before, else a free one.

        Raises:
            UsageError: it is somebody else's.
        """
        port = port or (read_record(self._record) or {}).get("port") or free_port()
        if not is_free(port):
            raise UsageError(
                f"Port {port} of {HERE}, where {self.name} listens, is taken by another program. End that, or choose "
                f"another: lakehouse {self.family} start --port N (what reads from {self.name} then needs its new "
                "address)."
            )
        return port

    def run(self, settings: Settings, command: Sequence[str], record: Mapping[str, Any]) -> None:
        """Start the program in its folder, and keep where it listens."""
        folder, log = self.place.folder, log_with_room(self.place.log)
        write_private(self._record, json.dumps({**record, "started": time.time()}))
        orders = {
            "what": self.name.removeprefix("the "), "folder": str(folder), "log": str(log),
            "umask": private_umask(settings.root), "command": list(command),
        }  # fmt: skip
        with log.open("ab") as output:
            subprocess.run(
                [sys.executable, "-W", "ignore", "-m", becoming.__name__],
                input=json.dumps(orders).encode(), stdout=output, stderr=output, check=True, cwd=folder,
            )  # fmt: skip

    def see_log(self, lines: int = 8) -> str:
        """Where its log is, and how it ends."""
        log = self.place.log
        ending = "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
        return f"see {log}, which ends with\n{ending}"

    @property
    def _record(self) -> Path:
        return self.place.folder / self.record
