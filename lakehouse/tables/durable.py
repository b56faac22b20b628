"""What a commit needs is on the disk before it, and the commit before anybody is told: both outlive a power cut.

Where the power is cut in between, the log entry may be there, or a part of it, or nothing; nobody was told then.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lakehouse.disk import sync

_AT_ONCE = 8  # the disk takes several in one go: of 219 files, 50 ms instead of 400


def settle(files: Iterable[Path], top: Path) -> None:
    """Wait until files, and the folders from `top` down that name them, are on the disk.

    Raises:
        OSError: where the disk did not take one.
    """
    paths = set(files)
    folders = {folder for path in paths for folder in path.parents if folder == top or top in folder.parents}
    if paths:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(sync, [*paths, *folders]))


def settle_entries(table: Path, versions: Iterable[int]) -> None:
    """Wait until the log entries of some versions of a table, and checkpoints of them, are on the disk."""
    log = table / "_delta_log"
    entries = [log / f"{version:020}.json" for version in versions]
    checkpoints = [each for entry in entries if (each := entry.with_suffix(".checkpoint.parquet")).exists()]
    settle([*filter(Path.exists, entries), *checkpoints, *([log / "_last_checkpoint"] if checkpoints else [])], log)
