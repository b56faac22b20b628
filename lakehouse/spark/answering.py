"""Whether a master, or a server of Spark Connect, listens: Spark itself waits for many minutes before it says so."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from lakehouse.errors import EngineError
from lakehouse.settings import Settings
from lakehouse.spark.config import is_here

SECONDS = 5.0  # that each has to take a connection
READY = 30.0  # seconds that a server, which may be busy, then has for its first words
_PORTS = {"sc": 15002, "spark": 7077}  # where an address names none


def addresses(settings: Settings) -> list[tuple[str, int]]:
    """Host and port of each master, or of the server; none where Spark finds them by itself (YARN, Kubernetes)."""
    kind, _, rest = settings.spark_url.partition("://")
    if kind not in _PORTS:
        return []
    parts = (urlsplit(f"//{each}") for each in rest.partition("/")[0].split(","))
    return [(each.hostname or "", each.port or _PORTS[kind]) for each in parts]


class SilentEngineError(EngineError):
    """No master, and no server, answers: what was found, and what to do about it."""

    def __init__(self, found: str, fix: str) -> None:
        super().__init__(f"{found}. {fix}")
        self.found, self.fix = found, fix


def answering(settings: Settings) -> str:
    """`host:port` of the first that answers; empty where there is no address.

    Raises:
        SilentEngineError: none of them does.
    """
    failed, last = [], None
    for host, port in addresses(settings):
        try:
            with socket.create_connection((host, port), timeout=SECONDS):
                pass
        except OSError as error:
            last = error
            failed.append(f"{host}:{port} does not answer ({error.strerror or error})")
            continue
        if not settings.uses_connect or _is_ready(settings.spark_url):
            return f"{host}:{port}"
        failed.append(f"{host}:{port} takes connections, but does not answer as a server of Spark Connect")
    if not failed:
        return ""
    start = "start a cluster (lakehouse engine cluster start)" if is_here(settings.spark_url) else "start it there"
    fix = f"Correct LAKEHOUSE_SPARK_URL, or {start}; a firewall may be between you and it."
    raise SilentEngineError("; ".join(failed), fix) from last


def _is_ready(url: str) -> bool:
    from lakehouse.spark.wire import is_ready  # late: a master is asked nothing

    return is_ready(url, READY)
