"""Who may read what is made under a root."""

from __future__ import annotations

import os
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
