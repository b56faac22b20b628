"""Who is at work: for histories and ledgers, and for Spark, which wants a name."""

from __future__ import annotations

import getpass
import os
import pwd


def operator() -> str:
    """The user of the operating system; `uid 1000` where, as in a container, it has no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"uid {os.getuid()}"


def has_name() -> bool:
    """Whether the system has an entry for the user of this process; a container's user may be a number alone."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return True
