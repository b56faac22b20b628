"""What a power cut does not take away."""

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
