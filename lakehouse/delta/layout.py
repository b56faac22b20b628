"""Where tables are: location follows only from layer and name."""

from __future__ import annotations

from pathlib import Path


def table_path(root: Path, name: str) -> Path:
    """Folder of `layer.table` under a lakehouse root."""
    layer, table = name.split(".", 1)
    return root / "tables" / layer / table
