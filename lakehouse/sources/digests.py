"""Landed files by their content, so that a copy with another time is no change, and other content of the same time is.

Each file is read once: what was found is kept under the root (`cache/landing`), by the file's path, inode, size, and
times of change. The time of its last change of status (`ctime`) is the system's own: whoever writes into a file, or
sets its times back, gets a new one. The folder may be removed at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path

from lakehouse import store
from lakehouse.sources.landing import LandingFile
from lakehouse.sources.probe import unfit

# Nanoseconds. A file may be written twice within one tick of the clock that its times are of (2 s at
# the coarsest, FAT's), and would look the same after the second time: what is younger is read again and not kept.
SETTLED_NS = 2 * 10**9

Kept = dict[str, list[int | str]]


def digests(root: Path, files: Sequence[LandingFile], *, settled_ns: int = SETTLED_NS) -> dict[Path, str]:
    """A digest of each file's bytes. What cannot be read has one of its size and times: it is judged when it is read.

    Args:
        root: lakehouse root.
        files: as they were listed.
        settled_ns: nanoseconds since a file's last change, after which what was read of it is kept.
    """
    found: dict[Path, str] = {}
    for source in sorted({file.source for file in files}):
        found |= _of_source(root, source, [file for file in files if file.source == source], settled_ns)
    return found


def _of_source(root: Path, source: str, files: Sequence[LandingFile], settled_ns: int) -> dict[Path, str]:
    place = root / "cache" / "landing" / f"{source}.json"
    kept = _kept(place)
    above = f"{root.as_posix()}/"
    names = {file.path: file.path.as_posix().removeprefix(above) for file in files}
    known = {file.path: text for file in files if (text := _known(kept, names[file.path], file)) is not None}
    new = [file for file in files if file.path not in known]
    now = time.time_ns()  # before they are read: what is written meanwhile is younger than that
    with ThreadPoolExecutor(max_workers=min(8, (os.cpu_count() or 1) * 2)) as pool:
        read = dict(zip([file.path for file in new], pool.map(_read, new), strict=True))
    settled: Kept = {
        names[file.path]: [*file.stat, text]
        for file in new
        if (text := read[file.path]) is not None and now - file.ctime_ns > settled_ns
    }
    if settled:
        _keep(place, kept | settled)
    return {file.path: known.get(file.path) or read.get(file.path) or f"unread {file.stat}" for file in files}


def _known(kept: Kept, name: str, file: LandingFile) -> str | None:
    """What was kept of a file, if it is still as it was then."""
    *state, digest = kept.get(name, [""])
    return str(digest) if state == [*file.stat] else None


def _read(file: LandingFile) -> str | None:
    """The digest of a file that was as it was listed all the while; None of one that was not, or cannot be read."""
    if unfit(file):
        return None
    digest = hashlib.blake2b(digest_size=16)
    try:
        with store.opened(file.path) as stream:
            # Asked of the open file, before and after reading: what was exchanged or written meanwhile has no digest
            # here.
            if LandingFile.state_of(store.facts_of(stream)) != file.stat:
                return None
            for chunk in iter(partial(stream.read, 1 << 20), b""):
                digest.update(chunk)
            same = LandingFile.state_of(store.facts_of(stream)) == file.stat
    except OSError:
        return None
    return digest.hexdigest() if same else None


def _kept(place: Path) -> Kept:
    there = store.stat(place)
    return _read_kept(place, there) if there else {}


@lru_cache(maxsize=64)  # of a few sources, as each was last written
def _read_kept(place: Path, _found: store.Facts) -> Kept:
    try:
        held = json.loads(store.read_text(place))
        return {name: entry for name, entry in held.items() if isinstance(entry, list) and entry}
    except (OSError, ValueError, AttributeError):  # none yet, or damaged
        return {}


def _keep(place: Path, entries: Kept) -> None:
    """Replace what is kept; of two processes one loses what it found, and reads those files once more."""
    with suppress(OSError):  # where nothing can be written, files are read each time
        store.put(place, json.dumps(entries))
