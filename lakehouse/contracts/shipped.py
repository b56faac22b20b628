"""Files that commands write into the package of tables: they are committed and installed with its code."""

from __future__ import annotations

from pathlib import Path


def write_shipped(path: Path, text: str) -> None:
    """Write a file whole or not at all, to be read by whoever may read the folder that it is in.

    Commands keep what they make to the root's owner. This is code, and not under the root: kept so, an installed
    package or a shared checkout could be used by nobody but whoever wrote the file.
    """
    # Renamed when it is whole: killed before, the old file stands.
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(path.parent.stat().st_mode & 0o666)
    fresh.replace(path)
