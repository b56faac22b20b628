"""Fan-out and fan-in: a build is staged slice by slice, and an attempt after a kill goes on with those that are there.

Each slice is staged like a build of its own, in a new folder under the table's `staged/`. Once it is whole, a note of
its files is put into a folder that is named by all that decides the build's content. Who finds notes there takes those
slices, and stages only the others. Notes go once the rows are published or refused; those of a build that was never
taken up again, and the files they tell of, are any vacuum's.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import FileLock, Timeout
from pyspark.sql import DataFrame

from lakehouse import store
from lakehouse.build.route import write_routed
from lakehouse.contracts import Rule, Table
from lakehouse.delta.failpoints import failpoint
from lakehouse.delta.staged import StagedFile, clear, read_staged
from lakehouse.errors import StagedFileError

_LOCK = "lock"  # on one machine; elsewhere two builds of the same days may share slices, and one of them commits
_YOUNG_SECONDS = 6 * 3600.0  # a quarter of the shortest retention of a vacuum


def _to_nobody(text: str) -> None:
    """Who wants no progress."""


@dataclass(frozen=True)
class Slicing:
    """How a build is fanned out: into how many slices, and who is told of each."""

    number: int
    tell: Callable[[str], None] = _to_nobody


@dataclass(frozen=True)
class FanOut:
    """The slices of one build.

    Attributes:
        slicing: how many, and who is told.
        frame: the rows of a slice by its number, from 0.
        identity: names all that decides the rows.
        anew: what earlier attempts staged must not be taken.
        counted: the rows of each slice are counted as they are written.
    """

    slicing: Slicing
    frame: Callable[[int], DataFrame]
    identity: str
    anew: bool = False
    counted: bool = True


class Slices:
    """The staged slices of one build; left by an error they stay, for the next attempt."""

    def __init__(self, table: Table, path: Path, fan_out: FanOut, live: Collection[str]) -> None:
        """Nothing is read or written yet.

        Args:
            table: what is built.
            path: its folder.
            fan_out: what to stage.
            live: files of the table by path inside its folder; a slice that is live was published before.
        """
        self._table, self._path, self._fan_out, self._live = table, path, fan_out, live
        self._notes: Path | None = path / "staged" / f"slices-{fan_out.identity}"
        self._lock = FileLock(self._notes / _LOCK)
        self._folders: list[Path] = []

    def __enter__(self) -> Self:
        assert self._notes is not None
        store.make_folder(self._notes)
        try:
            # Not to exclude the other build, which may go on: only so that no two of them write and read the same
            # notes.
            self._lock.acquire(timeout=0)
        except Timeout:
            self._notes = None  # another process is at it: this one keeps its slices to itself
            return self
        # A forced build takes nothing from an earlier attempt, or it would publish what it was asked to make again.
        for note in store.listed(self._notes, "*.json") if self._fan_out.anew else ():
            store.delete(note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # Published: nobody needs the notes any more. After an error they stay, for the next attempt to go on from.
            if kind is None and self._notes is not None:
                store.delete_tree(self._notes)
            if kind is None or self._notes is None:
                for folder in self._folders:
                    clear(folder)
        finally:
            self._lock.release()

    def stage(self, rules: Sequence[Rule]) -> tuple[list[StagedFile], dict[str, Any]]:
        """The files of all slices, and figures to show; a slice that an earlier attempt has staged is taken as it is.

        Where a process is killed is told by what is there. A folder without a note: the slice is staged again, into a
        folder of its own, and a vacuum removes the old one. A note: all files of its slice were whole before it.
        """
        files: list[StagedFile] = []
        seconds: list[float] = []
        number = self._fan_out.slicing.number
        for each in range(number):
            began = time.perf_counter()
            found = self._noted(each)
            if found is None:
                found = self._stage_one(each, rules)
                seconds.append(time.perf_counter() - began)
                said = f"staged in {seconds[-1]:.1f} s"
                failpoint(self._table.id, "after-slice")
            else:
                said = "taken from an earlier attempt"
            files += found
            rows = sum(file.rows for file in found)
            self._fan_out.slicing.tell(f"{self._table.id}: slice {each + 1} of {number} {said}, {rows} rows")
            # The build may take longer than a vacuum spares files: what is staged first must not be swept before the
            # last.
            self._stay_young(files)
        facts = {
            "slices": number,
            "slices_taken": number - len(seconds),
            "slowest_slice_seconds": round(max(seconds, default=0.0), 3),
        }
        return files, facts

    def _stage_one(self, number: int, rules: Sequence[Rule]) -> list[StagedFile]:
        """Write the rows of a slice, and then the note that says so."""
        folder = self._path / "staged" / uuid.uuid4().hex
        self._folders.append(folder)  # first: whatever happens from here on, it is known for clearing away
        failpoint(self._table.id, "before-slice")
        rows = write_routed(self._table, self._fan_out.frame(number), folder, rules, self._fan_out.counted)
        files = read_staged(folder, self._table.partition_by, rows)
        failpoint(self._table.id, "before-slice-noted")
        # Killed before the note: the slice is staged again, elsewhere. After it: the next attempt takes these files.
        self._note(number, folder, files)
        return files

    def _note(self, number: int, folder: Path, files: Sequence[StagedFile]) -> None:
        if self._notes is None:
            return
        # No hidden names: a vacuum passes over those.
        draft = self._notes / f"draft-{uuid.uuid4().hex}.json"
        store.write(draft, json.dumps({"folder": folder.name, "files": _sizes(folder, files)}))
        store.move(draft, self._notes / f"{number}.json")

    def _noted(self, number: int) -> list[StagedFile] | None:
        """A slice's files, if an earlier attempt has staged it and every one of them is still what it was."""
        if self._notes is None:
            return None
        try:
            note = json.loads(store.read_text(self._notes / f"{number}.json"))
            folder = self._path / "staged" / note["folder"]
            files = read_staged(folder, self._table.partition_by)
            # Names and sizes, as they were when the slice was whole: a file that is gone or cut short spoils its slice
            # alone.
            whole = _sizes(folder, files) == note["files"]
        except (OSError, ValueError, KeyError, TypeError, StagedFileError):
            return None
        # Files that are live were published before: they are the table's, and not for another build to take.
        if not whole or any(file.path.relative_to(self._path).as_posix() in self._live for file in files):
            return None
        self._folders.append(folder)
        return files

    def _stay_young(self, files: Sequence[StagedFile]) -> None:
        """A vacuum takes old files for those of a dead run; the first slices of a long fan-out must not become old."""
        if self._notes is None:
            return
        # Only what is getting old is touched: to touch every file after each slice would cost more calls than it has
        # files.
        old = time.time() - _YOUNG_SECONDS
        for path in [*(file.path for file in files), *store.listed(self._notes)]:
            found = store.stat(path)
            if found is not None and found.modified < old:
                with suppress(FileNotFoundError):  # the commit refuses it by name
                    store.touch(path)


def _sizes(folder: Path, files: Sequence[StagedFile]) -> dict[str, int]:
    return {file.path.relative_to(folder).as_posix(): file.size for file in files}
