"""What an alert says."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

FAILED, STILL_FAILING, RECOVERED, TEST = "failed", "still failing", "recovered", "test"
ERROR, WARN = "ERROR", "WARN"
MOST_DAYS = 100  # listed in one message; `days_total` counts all
LONGEST_TEXT = 600


@dataclass(frozen=True)
class Message:
    """One alert: a check of a table in one run, with all the days it speaks of.

    Attributes:
        kind: failed, still failing, recovered or test.
        severity: ERROR or WARN; of a recovery, that of what failed.
        table: `layer.name`; empty for a run as a whole.
        check: the check's name, `build` where the table's step broke, `freshness`, or `run`.
        owner: the contract's; it chooses the webhook.
        days: partitions, oldest first; empty where the check speaks of the whole table.
        text: a sentence for people.
        run_id: the run that showed it; empty for freshness.
        at: when, seconds since the epoch.
        backfill: what a person cancelled as a whole, by Dagster's id: it is one alert, whichever of its runs showed it.
    """

    kind: str
    severity: str
    table: str
    check: str
    owner: str
    days: tuple[str, ...]
    text: str
    run_id: str
    at: float
    backfill: str = ""

    @property
    def id(self) -> str:
        """The same for the same alert however often it is sent, so that a receiver can pass over a repeat."""
        shown = (self.backfill,) if self.backfill else (self.run_id, repr(self.at))
        parts = (self.kind, self.severity, self.table, self.check, self.owner, *shown, *self.days)
        return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:24]

    def as_json(self) -> dict[str, Any]:
        """The body that is sent and logged; `text` is also what chat tools show."""
        return {
            "id": self.id,
            "at": datetime.fromtimestamp(self.at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "kind": self.kind,
            "severity": self.severity,
            "table": self.table,
            "check": self.check,
            "owner": self.owner,
            "days": list(self.days[:MOST_DAYS]),
            "days_total": len(self.days),
            "run_id": self.run_id,
            "text": self.text,
        }


def sentence(kind: str, table: str, check: str, days: Sequence[str], found: str) -> str:
    """`silver.orders row_count failed on 3 days (2011-01-04 to 2011-01-09): 2011-01-04 …`.

    Args:
        kind: FAILED, STILL_FAILING, RECOVERED or TEST.
        table: by `layer.name`.
        check: its name.
        days: those it speaks of, as YYYY-MM-DD; none: the whole table.
        found: what the check has found; empty: nothing is added.
    """
    subject = f"{table} {check}".strip()
    on = f" on {days[0]}" if len(days) == 1 else f" on {len(days)} days ({days[0]} to {days[-1]})" if days else ""
    about = f": {days[0]} {found}" if found and len(days) > 1 else f": {found}" if found else ""
    text = f"{subject} {kind}{on}{about}"
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"
