"""Application transactions of a table: what each published day was made from, and reading all of them at once.

delta-rs tells one at a time and looks through all of them for it: with a transaction for each day, what a look at every
day costs would grow with the square of their number (2,000 days: a minute).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import date
from pathlib import Path

import pyarrow as pa

from lakehouse import store
from lakehouse.delta.layout import entry_path
from lakehouse.store import parquet

DAY_PREFIX = "day/"
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")


def day_transaction(day: date) -> str:
    """Application id under which a table's log keeps the fingerprint of a published day."""
    return f"{DAY_PREFIX}{day.isoformat()}"


def days_of_transactions(names: Iterable[str]) -> set[date]:
    """The days among application ids."""
    return {date.fromisoformat(name.removeprefix(DAY_PREFIX)) for name in names if name.startswith(DAY_PREFIX)}


def read_transactions(path: Path, version: int) -> dict[str, int] | None:
    """The last version committed under each application id; None where this reader cannot tell.

    Args:
        path: folder of the table.
        version: of the table.
    """
    log = path / "_delta_log"
    found: dict[str, int] = {}
    try:
        checkpoints = [int(match[1]) for name in store.names(log) if (match := _CHECKPOINT.fullmatch(name))]
        # The newest checkpoint up to the version holds every transaction before it; the entries after it say the rest.
        begins = max((each for each in checkpoints if each <= version), default=-1)
        if begins >= 0:
            kept = parquet.read(log / f"{begins:020}.checkpoint.parquet", ["txn"])["txn"].to_pylist()
            found = {each["appId"]: each["version"] for each in kept if each is not None}
        for number in range(begins + 1, version + 1):
            for line in store.read_text(entry_path(path, number)).splitlines():
                if '"txn"' in line and (each := json.loads(line).get("txn")):
                    found[each["appId"]] = each["version"]
    except (OSError, ValueError, KeyError, pa.ArrowException):  # an entry is gone, or another kind of checkpoint
        return None
    return found
