"""What people decided about quarantined rows, for ever: one entry for each replay and each discard, only appended.

A discard does not touch the rows: they stay in the quarantine as evidence, and a rebuild of their day puts them there
again. The entry says which rows are meant, so that they are left out of every count from then on. A row is known by
its key or origin (`records.identity`), and discarded for the rules it broke: where it breaks another one it counts
again, and where a changed contract finds it sound it is published, as any build would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import fingerprint
from lakehouse.lazy import T
from lakehouse.read.lake import table_path
from lakehouse.records.ops import add_rows, ops_target, rows_about

LEDGER = "ops.quarantine_ledger"
REPLAY, REPLAYED, DISCARD, KEEP = "replay", "replayed", "discard", "keep"

Rules = tuple[str, ...]
Chosen = Mapping[date, Mapping[Rules, Sequence[int]]]  # rows by day and broken rules


@lru_cache(maxsize=1)
def schema() -> T.StructType:
    """The columns of the ledger."""
    text, long = T.StringType(), T.LongType()
    counts = T.MapType(text, long)
    chosen = T.StructType(
        [
            T.StructField("day", T.DateType()),
            T.StructField("rules", T.ArrayType(text)),
            T.StructField("ids", T.ArrayType(long)),
        ]
    )
    return T.StructType(
        [
            T.StructField("table", text),
            T.StructField("id", text, metadata={"comment": "Of the decision; a replay has two entries"}),
            T.StructField("number", long, metadata={"comment": "Entries of the table before this one"}),
            T.StructField("at", T.TimestampType()),
            T.StructField("who", text, metadata={"comment": "User of the operating system"}),
            T.StructField("action", text, metadata={"comment": "replay (begun), replayed (its end), discard or keep"}),
            T.StructField("rule", text, metadata={"comment": "Filter: rows that broke it"}),
            T.StructField("day", T.DateType(), metadata={"comment": "Filter: rows of this day"}),
            T.StructField("code_version", text, metadata={"comment": "Filter: rows judged by this code"}),
            T.StructField("reason", text),
            T.StructField("rows", long),
            T.StructField("rules", counts, metadata={"comment": "Chosen rows by broken rule"}),
            T.StructField(
                "chosen", T.ArrayType(chosen), metadata={"comment": "The rows, as numbers that identify them"}
            ),
            T.StructField("outcome", counts, metadata={"comment": "Of a replay: rows by what became of them"}),
            T.StructField("still", counts, metadata={"comment": "Of a replay: rows still quarantined, by rule"}),
            T.StructField("runs", T.ArrayType(text), metadata={"comment": "Dagster runs of a replay"}),
        ]
    )


@dataclass(frozen=True)
class Wanted:
    """Which rows of a quarantine are meant; None: any."""

    rule: str | None = None
    day: date | None = None
    code_version: str | None = None


@dataclass(frozen=True)
class LedgerEntry:
    """One line of the ledger; no personal data, rows are numbers."""

    table: str
    action: str
    who: str
    at: datetime
    chosen: Chosen
    wanted: Wanted = field(default_factory=Wanted)
    reason: str = ""
    number: int = 0
    outcome: Mapping[str, int] = field(default_factory=dict)
    still: Mapping[str, int] = field(default_factory=dict)
    runs: Sequence[str] = ()
    id: str = ""

    @property
    def rows(self) -> int:
        """How many rows were chosen."""
        return sum(len(ids) for by_rules in self.chosen.values() for ids in by_rules.values())

    @property
    def rules(self) -> dict[str, int]:
        """Chosen rows by broken rule; a row that broke two counts for each."""
        counted: dict[str, int] = {}
        for by_rules in self.chosen.values():
            for rules, ids in by_rules.items():
                for rule in rules:
                    counted[rule] = counted.get(rule, 0) + len(ids)
        return counted


def entries(root: Path, table: str) -> list[LedgerEntry]:
    """Every entry about a table, oldest first."""
    found = [_entry(table, row) for row in rows_about(open_snapshot(table_path(root, LEDGER)), table)]
    return sorted(found, key=lambda each: (each.number, each.at, each.action == REPLAYED))


def write(root: Path, entry: LedgerEntry) -> LedgerEntry:
    """Append an entry and return it with its number and id; the same decision made twice at once is one entry."""
    if not entry.id:
        # Two who decide the same on the same ledger get the same id, and so the same transaction: one of them is a
        # repeat. Whoever decides it again later finds a longer ledger, and gets another.
        number = len(entries(root, entry.table))
        rows = [f"{day}/{rules}/{sorted(ids)}" for day, each in entry.chosen.items() for rules, ids in each.items()]
        made = fingerprint([entry.table, entry.action, str(number), *sorted(rows)])
        entry = replace(entry, number=number, id=f"{made:016x}")
    about = "What people decided about quarantined rows"
    add_rows(ops_target(root, LEDGER, schema(), about), entry.table, [_row(entry)], {f"{entry.action}/{entry.id}": 1})
    return entry


def open_replays(root: Path, table: str) -> list[LedgerEntry]:
    """Replays that were begun and whose end was never written: their process broke or was killed."""
    known = entries(root, table)
    # A replay is two entries: one without its end was killed, or is on.
    ended = {each.id for each in known if each.action == REPLAYED}
    return [each for each in known if each.action == REPLAY and each.id not in ended]


def discarded(root: Path, table: str) -> dict[tuple[date, int], frozenset[str]]:
    """By day and row, the rules for which the row was discarded."""
    found: dict[tuple[date, int], frozenset[str]] = {}
    for entry in entries(root, table):
        if entry.action not in (DISCARD, KEEP):
            continue
        for day, by_rules in entry.chosen.items():
            for rules, ids in by_rules.items():
                for each in ids:
                    if entry.action == KEEP:  # takes back all discards before it, for whatever rules
                        found.pop((day, each), None)
                    else:
                        found[day, each] = found.get((day, each), frozenset()) | frozenset(rules)
    return found


def _row(entry: LedgerEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "number": entry.number,
        "at": entry.at,
        "who": entry.who,
        "action": entry.action,
        "rule": entry.wanted.rule,
        "day": entry.wanted.day,
        "code_version": entry.wanted.code_version,
        "reason": entry.reason,
        "rows": entry.rows,
        "rules": list(entry.rules.items()),
        "chosen": [
            {"day": day, "rules": list(rules), "ids": list(ids)}
            for day, by_rules in sorted(entry.chosen.items())
            for rules, ids in by_rules.items()
        ],
        "outcome": list(entry.outcome.items()),
        "still": list(entry.still.items()),
        "runs": list(entry.runs),
    }


def _entry(table: str, row: Mapping[str, Any]) -> LedgerEntry:
    chosen: dict[date, dict[Rules, Sequence[int]]] = {}
    for each in row["chosen"] or ():
        chosen.setdefault(each["day"], {})[tuple(each["rules"])] = each["ids"]
    return LedgerEntry(
        table,
        row["action"],
        row["who"],
        row["at"].astimezone(UTC),
        chosen,
        Wanted(row["rule"], row["day"], row["code_version"]),
        row["reason"] or "",
        row["number"],
        dict(row["outcome"] or ()),
        dict(row["still"] or ()),
        tuple(row["runs"] or ()),
        row["id"],
    )
