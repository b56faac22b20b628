"""What a power cut does not take away, and who may read it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_NO_FOLDERS = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES}  # of file systems that have no such thing


def sync(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on the disk.

    Raises:
        OSError: the disk did not take it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDERS or not path.is_dir():
            raise


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
