"""Where tables are, which follows from layer and name alone, and the entries of their logs."""

from __future__ import annotations

from pathlib import Path


def table_path(root: Path, name: str) -> Path:
    """Folder of `layer.table` under a lakehouse root."""
    layer, table = name.split(".", 1)
    return root / "tables" / layer / table


def entry_path(folder: Path, version: int) -> Path:
    """The file of a log's entry, by the folder of its table."""
    return folder / "_delta_log" / f"{version:020}.json"
