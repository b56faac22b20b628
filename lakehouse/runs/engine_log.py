"""The file that takes what engines and Dagster print."""

from __future__ import annotations

from pathlib import Path

from lakehouse.servers.place import log_with_room
from lakehouse.settings import Settings


def engine_log(settings: Settings) -> Path:
    """`<root>/logs/engine.log`, with room in it: a full one is put aside."""
    return log_with_room(settings.root / "logs" / "engine.log")
