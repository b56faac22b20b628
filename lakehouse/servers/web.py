"""Where the web interface of a lakehouse listens."""

from __future__ import annotations

from lakehouse import store
from lakehouse.servers.place import is_locked
from lakehouse.settings import Settings

DEV_LOCK = "dev.lock"
"""In Dagster's folder: `lakehouse dev` holds it while it is on, and it says at which port."""


def web_port(settings: Settings) -> int:
    """The port of `lakehouse dev`: of the one that is on for this root, else of the settings."""
    lock = settings.dagster_home / DEV_LOCK
    told = store.read_text(lock) if is_locked(lock) else ""
    return int(told) if told.isdigit() else settings.port
