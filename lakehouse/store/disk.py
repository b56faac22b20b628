"""Who may read what is made under a root."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def private_umask(root: Path) -> int:
    """The umask for what is made under a root: nobody but its owner reads it.

    A root that was opened to its group and to nobody else (`chmod 750` or `770`) keeps what the group has.
    """
    try:
        mode = root.stat().st_mode
    except OSError:  # not there yet: it will be its owner's alone
        return 0o077
    return 0o077 if mode & 0o007 else 0o077 & ~(mode & 0o070)


def keep_private(root: Path) -> None:
    """Make whatever this process and those it starts make from now on readable to whom the root is, and nobody else."""
    os.umask(private_umask(root))


def root_problem(root: Path) -> str:
    """Why there cannot be a lakehouse at a root, in words; empty where there is one, or can be. Nothing is left there.

    Args:
        root: there or not.
    """
    try:
        there = next(each for each in (root, *root.parents) if each.exists())
        if not there.is_dir():
            return f"{there} is a file, where a folder was expected"
        if there == root:
            return "" if os.access(root, os.R_OK | os.X_OK) else f"{root}: permission denied"
        # Tried, not asked: a folder of the system's own, or on a disk that is read-only, refuses what its mode allows.
        Path(tempfile.mkdtemp(prefix=".lakehouse-", dir=there)).rmdir()
    except OSError as error:
        return f"{root} cannot be made: {os.strerror(error.errno or 0).lower()}"
    return ""
