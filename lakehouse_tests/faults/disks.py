"""A disk small enough to fill."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


class Disk:
    """A disk of its own, whose size can be set again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def widen(self) -> None:
        """Plenty of space."""
        self._size(64 << 10)

    def leave(self, kib: int) -> None:
        """So much is free, and no more; whole pages of 4 KiB."""
        found = os.statvfs(self.folder)
        self._size((found.f_blocks - found.f_bfree) * found.f_frsize // 1024 + kib)

    def _size(self, kib: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={kib}k", str(self.folder)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk of its own for a test."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if made.returncode:
        pytest.skip("only root can mount a disk that is small enough to fill")
    yield Disk(folder)
    subprocess.run(["umount", "-l", str(folder)], check=True)
