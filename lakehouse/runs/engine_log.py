"""The file that takes what engines and Dagster print."""

from __future__ import annotations

from pathlib import Path

from lakehouse.settings import Settings

_LARGEST = 10_000_000  # bytes; then a new one is begun and the last one kept


def engine_log(settings: Settings) -> Path:
    """`<root>/logs/engine.log`, with room in it: a full one is put aside."""
    path = settings.root / "logs" / "engine.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > _LARGEST:
        path.replace(path.with_suffix(".log.1"))
    return path
