"""What is wrong with a Delta log that cannot be read, and what fixes it.

A checkpoint only sums up entries, and an entry that was cut short belongs to a commit that nobody was told of.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from lakehouse import store
from lakehouse.store import parquet

_HINT = "_last_checkpoint"


def damage(path: Path) -> str | None:
    """In words, what stands in the way and what to do; None where checkpoints and newest entry are sound.

    Args:
        path: folder of the table.
    """
    log = path / "_delta_log"
    torn = max(store.listed(log, "*.json"), default=None)
    # First, for it is the likely one: an entry is written whole or, by a power cut, as an empty or half file.
    if torn is not None and not _is_whole(torn):
        return (
            f"The log of {path} cannot be read: its newest entry was cut short, as by a power cut before anybody was "
            f"told of the commit. Remove {torn}: the table is then what it was before. Run again what ran then."
        )
    checkpoints = store.listed(log, "*.checkpoint*.parquet")
    broken = [each for each in checkpoints if not _readable(each)]
    sound = {_version(each) for each in checkpoints} - {_version(each) for each in broken}
    hinted = _hinted(log)
    # The hint names the newest checkpoint; one that names none that is there breaks readers as well.
    if not broken and (hinted is None or hinted in sound):
        return None
    what = ", ".join(each.name for each in broken) or f"version {hinted}, which {_HINT} names and which is not there"
    return _said(path, what, broken, _first_missing(log, sound))


def _said(path: Path, what: str, broken: Sequence[Path], missing: int | None) -> str:
    """What to do about a broken checkpoint: nothing is lost as long as the entries it sums up are there."""
    log = path / "_delta_log"
    if missing is not None:
        return (
            f"The log of {path} cannot be read: its checkpoint is broken ({what}), and the entries it sums up are gone "
            f"(version {missing} is the first). Bring {log} back from a backup."
        )
    files = " and ".join(str(log / name) for name in (*[each.name for each in broken], _HINT))
    return (
        f"The log of {path} cannot be read: its checkpoint is broken ({what}). No data is lost, the entries it sums up "
        f"are all there: remove {files}, and the next reader goes by the entries."
    )


def _first_missing(log: Path, sound: Collection[int]) -> int | None:
    """The first entry that is needed beside the newest sound checkpoint and is not there."""
    entries = {_version(each) for each in store.listed(log, "*.json")}
    newest = max(entries, default=-1)
    start = max((version for version in sound if version <= newest), default=-1)
    return next((version for version in range(start + 1, newest + 1) if version not in entries), None)


def _version(file: Path) -> int:
    return int(file.name.split(".", 1)[0])


def _is_whole(entry: Path) -> bool:
    try:
        for line in store.read_text(entry).splitlines():
            json.loads(line)
    except ValueError:
        return False
    return True


def _readable(file: Path) -> bool:
    try:
        parquet.footer(file)
    except Exception:  # noqa: BLE001 - whatever is wrong with it
        return False
    return True


def _hinted(log: Path) -> int | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads(store.read_text(log / _HINT))["version"])
    return None
