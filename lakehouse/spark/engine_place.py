"""Where a warm engine is found: a folder by its settings and versions, with locks that no killed process can keep.

    engine/<id>/engine.json   how to reach it (mode 0600, in a folder of mode 0700)
    engine/<id>/leases/       a file for each process that uses it, locked for as long as that process lives
    engine/<id>/doing/        for people, what those processes do: a file each, by the name of the lease
    engine/<id>/scratch.json  where its temporary files are, in the system's temporary folder

The rest of the folder is that of any server (`lakehouse.servers.place`).
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse import store
from lakehouse.servers.place import GENTLY, Place, is_locked, locked, make_private, read_record, write_private

if TYPE_CHECKING:  # a keeper does without, whose start pydantic would hold up
    from lakehouse.settings import Settings


def engine_logs(settings: Settings) -> Path:
    """The folder of what warm engines and clusters print; an engine within a process has its log under the root."""
    return (settings.engine_dir or settings.root) / "logs"


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


class EnginePlace(Place):
    """The folder of one engine.

    Args:
        folder: named by all that the engine is started with.
        log: file of what it and its keeper print.
    """

    def __init__(self, folder: Path, log: Path) -> None:
        super().__init__(folder, log)
        self._address = folder / "engine.json"
        self.leases, self._doing = folder / "leases", folder / "doing"
        self._scratch = folder / "scratch.json"

    def prepare(self) -> None:
        """Make the folder and those in it, readable by their owner alone, as is the one of all engines if it is new."""
        # Whoever could write there could put a folder of theirs in this one's place, and be asked to compute.
        store.make_folder(self.folder.parent, private=True)
        super().prepare()
        for each in (self.leases, self._doing):
            make_private(each)

    def end(self, seconds: float = GENTLY) -> bool:
        """End the engine as any server; let nobody find it any more, and leave nothing of what it kept on disk."""
        if not super().end(seconds):
            return False
        self.withdraw()
        with self.door():
            if not self.is_alive():  # else there is another one meanwhile
                self.tidy()  # a keeper that had to be killed has not done so
        return True

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

    def scratch(self) -> Path:
        """As the keeper: a new folder for what the engine keeps on disk while it is on; its owner alone reads it."""
        self.tidy()
        folder = Path(tempfile.mkdtemp(prefix="lakehouse-engine-"))
        write_private(self._scratch, json.dumps({"folder": str(folder)}))
        return folder

    def tidy(self) -> None:
        """Remove that folder: rows may be in there, and an engine that was killed has left it.

        For the keeper; for others behind the door, where there is none.
        """
        if isinstance(folder := (read_record(self._scratch) or {}).get("folder"), str):
            shutil.rmtree(folder, ignore_errors=True)
        self._scratch.unlink(missing_ok=True)

    def lease(self, session: str, *, works: bool = True, until: bool = False) -> int:
        """Take a lease, held by the returned descriptor; call it behind the door.

        Args:
            session: of Spark Connect, a UUID.
            works: it is for computing; else it lasts also where this process becomes another program.
            until: the engine is to end with it.
        """
        draft = self.folder / f".{secrets.token_hex(8)}"
        descriptor = locked(draft)
        assert descriptor is not None
        os.write(descriptor, json.dumps(asdict(Lease(session, os.getpid(), works, until))).encode())
        os.set_inheritable(descriptor, not works)
        draft.rename(self.leases / session)  # locked before anybody can see it
        return descriptor

    def users(self) -> list[Lease]:
        """The leases that are held."""
        return [lease for path, lease in self._all() if is_locked(path)]

    def ended(self) -> list[Lease]:
        """As the keeper: the leases whose process is gone; they are not told of again."""
        over = [(path, lease) for path, lease in self._all() if not is_locked(path)]
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
