"""The landing zone: where raw files arrive, one day at a time, each whole or not at all.

`landing/online_retail/YYYY-MM-DD.csv.gz` and `landing/events/YYYY-MM-DD/part-0000.jsonl[.gz]` under the lakehouse root.
Names that begin with `.` or `_` are files in the making: every reader here, and Spark, passes over them.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Literal

from lakehouse import store
from lakehouse.errors import SourceError
from lakehouse.sources.clocks import Producer, redated
from lakehouse.sources.faults import Faults, GeneratorError
from lakehouse.sources.generator import generate_events
from lakehouse.sources.retail_sample import generate_online_retail

__all__ = [
    "SOURCES",
    "Landed",
    "LandingFile",
    "content_of",
    "generate_online_retail",
    "land_events",
    "land_online_retail",
    "land_sample_online_retail",
    "landing_files",
    "rewrite",
]

_DAY_NAME = {
    "online_retail": re.compile(r"(\d{4}-\d\d-\d\d)\.csv\.gz", re.ASCII),
    "events": re.compile(r"(\d{4}-\d\d-\d\d)", re.ASCII),
}
SOURCES = tuple(_DAY_NAME)
"""The sources that land as files."""

_EVENT_FILE = re.compile(r"[^._].*\.jsonl(\.gz)?")
_PART_FILE = re.compile(r"(.+)-\d{4,}\.jsonl(?:\.gz)?", re.ASCII)


@dataclass(frozen=True, order=True)
class LandingFile:
    """One landed file.

    Attributes:
        source: `online_retail` or `events`.
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


def landing_files(root: Path, source: str, start: date | None = None, end: date | None = None) -> list[LandingFile]:
    """What has landed, by arrival day and path.

    Costs one listing of the source's folder and, for `events`, one of each day's folder in the range.

    Args:
        root: Lakehouse root.
        source: `online_retail` or `events`.
        start: First arrival day wanted; None: from the first there is.
        end: Last arrival day wanted, inclusive; None: to the last there is.

    Raises:
        SourceError: The source is unknown, or `start` is after `end`.
    """
    _check(source, start, end)
    return sorted(
        LandingFile(source, day, path, found.size, found.modified_ns, found.changed_ns, found.inode)
        for day, path, found in _listed(root / "landing" / source, source, start, end)
    )


def land_online_retail(source: Path, root: Path, start: date | None = None, end: date | None = None) -> list[Landed]:
    """Copy the `YYYY-MM-DD.csv.gz` files of a folder into the landing zone, by day. Other names in it are left alone.

    Args:
        source: Folder of daily exports.
        root: Lakehouse root.
        start: First day wanted; None: from the first there is.
        end: Last day wanted, inclusive; None: to the last there is.

    Raises:
        SourceError: The folder is missing or has no such file in the range, or `start` is after `end`.
    """
    _check("online_retail", start, end)
    if not store.is_folder(source):
        raise SourceError(f"online_retail: expected a folder of YYYY-MM-DD.csv.gz files, got {source}, which is none")
    files = [(day, path) for day, path, _ in _listed(source, "online_retail", start, end)]
    if not files:
        there = [day for day, *_ in _listed(source, "online_retail", None, None)]
        wanted = f"from {start or 'any day'} to {end or 'any day'}"
        held = f"{len(there)} of other days, {min(there)} to {max(there)}" if there else "none of any day"
        raise SourceError(
            f"online_retail: expected YYYY-MM-DD.csv.gz files in {source} {wanted}, "
            f"got {held}; choose another range or folder"
        )
    folder = root / "landing" / "online_retail"
    return [_land("online_retail", day, folder / path.name, store.read(path)) for day, path in sorted(files)]


def land_sample_online_retail(root: Path, start: date, days: int, rows: int, seed: int) -> list[Landed]:
    """Land made-up retail exports of `rows` lines for each of `days` days, by day; see `generate_online_retail`.

    Raises:
        GeneratorError: `days` is less than 1, or `rows` is out of bounds.
    """
    return [
        _land(
            "online_retail",
            day,
            root / "landing" / "online_retail" / f"{day}.csv.gz",
            _gzipped(generate_online_retail(day, rows, seed).encode()),
        )
        for day in _days(start, days)
    ]


def land_events(  # noqa: PLR0913 - what generated data can vary in
    root: Path,
    start: date,
    days: int,
    rows: int,
    seed: int,
    faults: Faults | None = None,
    files_per_day: int = 1,
    compress: bool = True,
    *,
    producers: Sequence[Producer] = (),
    earliest: date | None = None,
) -> list[Landed]:
    """Land generated web-shop events, `rows` lines for each of `days` arrival days, by day and file.

    A day's parts from an earlier landing that this one does not have are removed once the new ones are there; files of
    producers that are not named here stay.

    Args:
        root: Lakehouse root.
        start: First arrival day.
        days: Number of days, 1 or more.
        rows: Lines a day, over all its files.
        seed: Picks the shop; see `generate_events`.
        faults: Share of faulty lines, none by default.
        files_per_day: Files that share a day's lines evenly, earlier lines first.
        compress: Write `.jsonl.gz` instead of `.jsonl`.
        producers: Who shares a day's lines, each with files of its own and by its own clock; none: nobody is named.
        earliest: No event is dated before this day.

    Raises:
        GeneratorError: A number or a day is out of bounds.
    """
    if files_per_day < 1:
        raise GeneratorError(f"events: expected 1 file a day or more, got {files_per_day}")
    landed: list[Landed] = []
    for day in _days(start, days):
        folder = root / "landing" / "events" / day.isoformat()
        lines = generate_events(day, rows, seed, faults, earliest=earliest).lines
        parts: set[str] = set()
        for prefix, share in _shares(lines, producers):
            ends = [len(share) * part // files_per_day for part in range(files_per_day + 1)]
            for part, (first, last) in enumerate(pairwise(ends)):
                content = b"".join(line + b"\n" for line in share[first:last])
                name = f"{prefix}-{part:04d}.jsonl" + ".gz" * compress
                parts.add(name)
                landed.append(_land("events", day, folder / name, _gzipped(content) if compress else content))
        ours = {"part", *(each.name for each in producers)}
        for name in store.names(folder):
            if name not in parts and (found := _PART_FILE.fullmatch(name)) and found[1] in ours:
                store.delete(folder / name)
                landed.append(Landed("events", day, folder / name, 0, "removed"))
    return landed


def _shares(lines: Sequence[bytes], producers: Sequence[Producer]) -> Iterator[tuple[str, Sequence[bytes]]]:
    """The lines of each producer, in turns so that each has some of all hours, dated by its clock."""
    if not producers:
        yield "part", lines
    for number, each in enumerate(producers):
        yield each.name, [redated(line, each.clock) for line in lines[number :: len(producers)]]


def _land(source: str, day: date, path: Path, content: bytes) -> Landed:
    """Put one file in its place in one step, unless the same content is there already."""
    there = store.stat(path)
    if there is not None and there.size == len(content) and store.read(path) == content:
        return Landed(source, day, path, len(content), "unchanged")
    store.put(path, content, flush=True)
    store.fsync([path.parent, path.parent.parent])  # a new day is also an entry in the folder above
    return Landed(source, day, path, len(content), "new" if there is None else "replaced")


def _gzipped(content: bytes) -> bytes:
    """The same bytes for the same content: no name and no time in the header."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=buffer, mtime=0) as file:
        file.write(content)
    return buffer.getvalue()


def _days(start: date, days: int) -> list[date]:
    if days < 1:
        raise GeneratorError(f"sample from {start}: expected 1 day or more, got {days}")
    return [start + timedelta(days=number) for number in range(days)]


def _check(source: str, start: date | None, end: date | None) -> None:
    if source not in SOURCES:
        raise SourceError(f"landing: expected a source of {', '.join(SOURCES)}, got {source!r}")
    if start and end and start > end:
        raise SourceError(f"{source}: expected a first day not after the last, got {start} to {end}; swap them")


def _listed(
    folder: Path, source: str, start: date | None, end: date | None
) -> Iterator[tuple[date, Path, store.Facts]]:
    """The folder's complete files in the range, in any order."""
    for name in store.names(folder):
        match = _DAY_NAME[source].fullmatch(name)
        day = _real_day(match[1]) if match else None
        if day is None or (start and day < start) or (end and day > end):
            continue
        path = folder / name
        parts = [each for each in store.names(path) if _EVENT_FILE.fullmatch(each)] if source == "events" else []
        for file in [path / part for part in parts] if source == "events" else [path]:
            found = store.stat(file)
            if found is not None and found.is_file:  # it may have been removed since it was listed
                yield day, file, found


def _real_day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


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
    if found is None or file.state_of(found) != file.stat:
        raise SourceError(f"{file.path.name} was landed again while a forgotten person was taken out; run it again")
    _land(file.source, file.arrival_date, file.path, _gzipped(content) if file.path.suffix == ".gz" else content)
