"""The landing zone: where raw files arrive, one day at a time, each whole or not at all.

`landing/<source>/` under the lakehouse root holds a source's files; its `Landing` says how they are called and which
day each belongs to. Names that begin with `.` or `_` are files in the making: every reader here, and Spark, passes over
them.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Literal

from lakehouse import store
from lakehouse.contracts.landing import FileNames, Landing
from lakehouse.errors import SourceError

_TOLD = 5  # names of other files that a message has


@dataclass(frozen=True, order=True)
class LandingFile:
    """One landed file.

    Attributes:
        source: Whose file it is: the name of a folder in the landing zone.
        arrival_date: The day it belongs to, from its name or its folder's.
        path: Where it is.
        size: Bytes.
        mtime_ns: When its content last changed, nanoseconds since the epoch, as whoever wrote it says.
        ctime_ns: When it was last written or renamed, or its times were set, as the system says.
        inode: Which file it is in its file system.
    """

    source: str
    arrival_date: date
    path: Path
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @property
    def stat(self) -> tuple[int, ...]:
        """What another content cannot share with this one."""
        return self.inode, self.size, self.mtime_ns, self.ctime_ns

    @staticmethod
    def state_of(found: store.Facts) -> tuple[int, ...]:
        """The same of a file that was looked at just now."""
        return found.inode, found.size, found.modified_ns, found.changed_ns


@dataclass(frozen=True)
class Landed:
    """What landing did to one file; `removed` is a part of an earlier landing of its day that this one has not."""

    source: str
    arrival_date: date
    path: Path
    size: int
    outcome: Literal["new", "replaced", "unchanged", "removed"]


def landing_files(
    root: Path, landing: Landing, start: date | None = None, end: date | None = None
) -> list[LandingFile]:
    """What has landed of a source, by arrival day and path.

    Costs one listing of the source's folder and one of each folder in it that may hold a day of the range.

    Args:
        root: Lakehouse root.
        landing: The source.
        start: First arrival day wanted; None: from the first there is.
        end: Last arrival day wanted, inclusive; None: to the last there is.

    Raises:
        SourceError: `start` is after `end`.
    """
    _in_order(landing, start, end)
    found = (_file(landing.source, *each) for each in _listed(root / "landing" / landing.source, landing, start, end))
    return sorted(found, key=attrgetter("arrival_date", "path"))


def never_read(root: Path, landings: Iterable[Landing]) -> list[str]:
    """The files of the landing zone that no source's patterns fit, by their paths in it; not those in the making.

    Args:
        root: Lakehouse root.
        landings: Every source there is.
    """
    zone = root / "landing"
    read: set[str] = set()  # as text: there may be many thousands, and `status` asks at each look
    for each in landings:
        for names in each.names:
            read.update(path for _, path in _matching(zone / each.source, names, 0, None, (date.min, date.max)))
    strays = (path.relative_to(zone) for path in store.walk(zone, gone_ok=True) if str(path) not in read)
    return sorted(name.as_posix() for name in strays if not any(part.startswith((".", "_")) for part in name.parts))


@lru_cache(maxsize=100_000)  # one that is as it was is the same object: a run looks at thousands of them, several times
def _file(source: str, day: date, path: str, found: store.Facts) -> LandingFile:
    return LandingFile(source, day, Path(path), found.size, found.modified_ns, found.changed_ns, found.inode)


def land(
    folder: Path, root: Path, landing: Landing, start: date | None = None, end: date | None = None
) -> list[Landed]:
    """Copy a source's files from a folder into the landing zone, by day. Other names in it are left alone.

    Args:
        folder: Holds files that are called as the source's are.
        root: Lakehouse root.
        landing: The source.
        start: First day wanted; None: from the first there is.
        end: Last day wanted, inclusive; None: to the last there is.

    Raises:
        SourceError: The folder is missing or has no such file in the range, or `start` is after `end`.
    """
    _in_order(landing, start, end)
    wanted = " or ".join(each.pattern for each in landing.names)
    if not store.is_folder(folder):
        raise SourceError(f"{landing.source}: expected a folder of {wanted} files, got {folder}, which is none")
    # In order of days: killed in the middle, the days that are there are the first ones, and the same command goes on.
    files = sorted((day, Path(path)) for day, path, _ in _listed(folder, landing, start, end))
    if not files:
        between = "".join(f" {word} {day}" for word, day in (("from", start), ("to", end)) if day)
        raise SourceError(
            f"{landing.source}: expected {wanted} files in {folder}{between}, got {_found(folder, landing)}; "
            "choose another range or folder, or write in the `files` of its Landing how they are called"
        )
    zone = root / "landing" / landing.source
    return [put(landing.source, day, zone / path.relative_to(folder), store.read(path)) for day, path in files]


def _found(folder: Path, landing: Landing) -> str:
    """What a folder holds in place of the files that were expected."""
    days = {day for day, *_ in _listed(folder, landing, None, None)}
    if days:
        return f"{len(days)} of other days, {min(days)} to {max(days)}"
    names = list(islice(_names(folder), _TOLD + 1))
    told = ", ".join(names[:_TOLD]) + (", …" if len(names) > _TOLD else "")
    return f"only {told}" if names else "no file at all"


def _names(folder: Path) -> Iterator[str]:
    found = sorted(store.walk(folder), key=lambda path: (len(path.parts), path))
    return (path.relative_to(folder).as_posix() for path in found)


def put(source: str, day: date, path: Path, content: bytes) -> Landed:
    """Put one file in its place in one step, unless the same content is there already.

    Args:
        source: Whose file it is.
        day: Its arrival day.
        path: Its place in the landing zone.
        content: All of it.
    """
    there = store.stat(path)
    if there is not None and there.size == len(content) and store.read(path) == content:
        return Landed(source, day, path, len(content), "unchanged")
    # In one step and flushed: a reader sees the old file or the new one, also after a power cut.
    store.put(path, content, flush=True)
    # A new day is also an entry in the folder above, and a pattern may have folders of its own.
    zone = next((folder for folder in path.parents if folder.name == source), path.parent)
    store.fsync([path.parent], zone.parent)
    return Landed(source, day, path, len(content), "new" if there is None else "replaced")


def gzipped(content: bytes) -> bytes:
    """The same bytes for the same content: no name and no time in the header."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=buffer, mtime=0) as file:
        file.write(content)
    return buffer.getvalue()


def _in_order(landing: Landing, start: date | None, end: date | None) -> None:
    if start and end and start > end:
        raise SourceError(f"{landing.source}: expected a first day not after the last, got {start} to {end}; swap them")


def _listed(
    folder: Path, landing: Landing, start: date | None, end: date | None
) -> Iterator[tuple[date, str, store.Facts]]:
    """The folder's complete files in the range, in any order, each once."""
    seen: set[str] = set()
    for names in landing.names:
        for day, path in _matching(folder, names, 0, None, (start or date.min, end or date.max)):
            # Two patterns may fit one file; the first of them says its day.
            found = store.stat(path) if path not in seen else None
            if found is not None and found.is_file:  # it may have been removed since it was listed
                seen.add(path)
                yield day, path, found


def _matching(
    folder: Path, names: FileNames, depth: int, told: date | None, between: tuple[date, date]
) -> Iterator[tuple[date, str]]:
    """What is called as the files are, at the last depth of the pattern; folders of other days are not opened."""
    for name in store.names(folder):
        fits, found = names.day_of(name, depth)
        day = told or found
        if not fits or (day and not between[0] <= day <= between[1]):
            continue
        if depth + 1 < len(names.parts):
            yield from _matching(folder / name, names, depth + 1, day, between)
        elif day:
            yield day, f"{folder}/{name}"


def content_of(path: Path) -> bytes | None:
    """A landed file's content, unpacked; None where it cannot be read to its end."""
    try:
        if path.suffix != ".gz":
            return store.read(path)
        with store.opened(path) as packed, gzip.GzipFile(fileobj=packed) as file:
            return file.read()
    except (EOFError, OSError, zlib.error):
        return None


def rewrite(file: LandingFile, content: bytes) -> None:
    """Put other content in a landed file's place in one step.

    Raises:
        SourceError: the file has changed since it was listed; it stays as it is.
    """
    found = store.stat(file.path)
    # As far as can be seen: a writer between this look and the rename is not excluded, and the next call finds its
    # file.
    if found is None or file.state_of(found) != file.stat:
        raise SourceError(f"{file.path.name} was landed again while a forgotten person was taken out; run it again")
    put(file.source, file.arrival_date, file.path, gzipped(content) if file.path.suffix == ".gz" else content)
