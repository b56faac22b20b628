"""A disk that is full, said in words: which folder, how much is free, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakehouse import store
from lakehouse.errors import DiskFullError, what_led_to

# As the system, the JVM, delta-rs and SQLite word ENOSPC, EDQUOT and EFBIG; what they agree on is words, not classes.
_FULL = re.compile(
    r"no space left on device|disk quota exceeded|file too large|not enough space|disk is full", re.IGNORECASE
)
_PLENTY = 64 << 20  # bytes free: then it is another disk that is full


@contextmanager
def said_when_full(table: str, folder: Path) -> Iterator[None]:
    """Turn a full disk's error, however deep it comes from, into one that names the folder.

    Raises:
        DiskFullError: where there was no space; any other error passes as it is.
    """
    try:
        yield
    except DiskFullError:
        raise
    except Exception as error:
        if not is_full(error):
            raise
        free = store.free_bytes(folder)
        where = f"{folder} ({free >> 20} MiB free)"
        if free > _PLENTY:
            where += " or of the engine's scratch folder (spark.local.dir, else the system's temporary folder)"
        raise DiskFullError(
            f"{table}: no space left on the disk of {where}. What was published stands whole and readable; nothing of "
            "this step was published. Free space (`lakehouse vacuum` removes files that no version needs) or move "
            "LAKEHOUSE_ROOT to a larger disk, then run the same days again."
        ) from error


def is_full(error: BaseException | None) -> bool:
    """Whether an error, or what led to it, is that of a full disk."""
    return any(_FULL.search(str(each)) for each in what_led_to(error))
