"""Who is at work, for histories and ledgers."""

from __future__ import annotations

import getpass
import os


def operator() -> str:
    """The user of the operating system; `uid 1000` where, as in a container, it has no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"uid {os.getuid()}"
