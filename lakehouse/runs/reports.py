"""What runs did, by table and day: the figures behind a summary and its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

from lakehouse.errors import BROKEN, CHECKS_FAILED, INTERRUPTED, OK
from lakehouse.orchestration.pieces import Piece

if TYPE_CHECKING:
    from lakehouse.contracts import Table


@dataclass
class TableOutcome:
    """What runs did for one table.

    Attributes:
        published: rows by day that was computed and made visible.
        unchanged: rows by day whose inputs and code were those of the published rows.
        failed: by day, the blocking checks it failed; what was published of it before stays visible.
        skipped: by day, why it was not tried.
        aside: by day that was computed, or was unchanged, the rows that broke a row rule.
        also: what an upsert wrote beside the days of its runs, a text a run.
        warnings: checks that found something and held no day back, with what they found.
        seconds: wall time of the table's steps; `work_seconds` of them were spent outside Dagster.
        broken: the error that ended the table's step, if it was not its data.
    """

    table: str
    published: dict[date, int] = field(default_factory=dict)
    unchanged: dict[date, int] = field(default_factory=dict)
    failed: dict[date, str] = field(default_factory=dict)
    skipped: dict[date, str] = field(default_factory=dict)
    aside: dict[date, int] = field(default_factory=dict)
    also: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    work_seconds: float = 0.0
    broken: str | None = None

    @property
    def rows(self) -> int:
        """Rows of the days that are published now."""
        return sum(self.published.values()) + sum(self.unchanged.values())

    @property
    def quarantined(self) -> int:
        """Rows of those days that broke a row rule."""
        return sum(self.aside.values())

    def add(self, later: TableOutcome) -> None:
        """Take in what later runs did for the same table; of a day that both had, what it is now counts."""
        for day in later.published.keys() | later.unchanged.keys() | later.failed.keys() | later.skipped.keys():
            self.failed.pop(day, None)
            self.skipped.pop(day, None)
        for day, rows in later.unchanged.items():
            (self.published if day in self.published else self.unchanged)[day] = rows
        for day, rows in later.published.items():
            self.unchanged.pop(day, None)
            self.published[day] = rows
        self.failed |= later.failed
        self.skipped |= later.skipped
        self.aside |= later.aside
        self.also += later.also
        self.warnings += [each for each in later.warnings if each not in self.warnings]
        self.seconds += later.seconds
        self.work_seconds += later.work_seconds
        self.broken = later.broken or self.broken


@dataclass
class RunReport:
    """One Dagster run."""

    run_id: str
    piece: Piece
    status: str = "STARTED"
    seconds: float = 0.0
    error: str | None = None


@dataclass
class Report:
    """Everything a command executed."""

    tables: dict[str, TableOutcome] = field(default_factory=dict)
    runs: list[RunReport] = field(default_factory=list)
    interrupted: bool = False

    @property
    def seconds(self) -> float:
        """Wall time of all runs; of runs that overlap, what they took together."""
        return sum(run.seconds for run in self.runs)

    @property
    def dagster_seconds(self) -> float:
        """The runs' seconds that were neither reading, computing nor committing data."""
        # What one run did beside its tables' own work; never below zero, as clocks of processes differ a little.
        taken = sum(run.seconds for run in self.runs)
        return max(0.0, taken - sum(each.work_seconds for each in self.tables.values()))

    def not_published(self, piece: Piece, contracts: Mapping[str, Table]) -> dict[str, dict[date, str]]:
        """What a piece reads that runs before it were to build and did not publish: by table and day, with reasons.

        Without it, a run of its own would take the last good day of an input for the one that was to be built.

        Args:
            piece: the run to come.
            contracts: of all tables.
        """
        found: dict[str, dict[date, str]] = {}
        for name in sorted({each.table for own in piece.tables for each in contracts[own].upstream.values()}):
            if name in self.tables and name not in piece.tables:
                missing = self.tables[name].failed | self.tables[name].skipped
                found[name] = {day: missing[day] for day in piece.days if day in missing}
        return {name: days for name, days in found.items() if days}

    @property
    def exit_code(self) -> int:
        """0 where every day is published, 1 where checks kept days back, 3 where something broke, 130 interrupted."""
        if self.interrupted:
            return INTERRUPTED
        failed = any(each.failed for each in self.tables.values())
        if any(each.broken for each in self.tables.values()) or any(run.error for run in self.runs):
            return BROKEN
        if failed:
            return CHECKS_FAILED
        return OK if all(run.status == "SUCCESS" for run in self.runs) else BROKEN

    def add(self, other: Report) -> None:
        """Take in what was executed after this, of these tables or of others."""
        for name, outcome in other.tables.items():
            self.tables.setdefault(name, TableOutcome(name)).add(outcome)
        self.runs += other.runs
        self.interrupted |= other.interrupted

    def as_json(self) -> dict[str, Any]:
        """The report for programs."""
        return {
            "exit_code": self.exit_code,
            "seconds": round(self.seconds, 3),
            "dagster_seconds": round(self.dagster_seconds, 3),
            "runs": [
                {
                    "run_id": run.run_id,
                    "status": run.status,
                    "from": run.piece.first,
                    "to": run.piece.last,
                    "tables": list(run.piece.tables),
                    "seconds": round(run.seconds, 3),
                    "error": run.error,
                }
                for run in self.runs
            ],
            "tables": [
                {
                    "table": each.table,
                    "published": sorted(each.published),
                    "unchanged": sorted(each.unchanged),
                    "failed": {str(day): why for day, why in sorted(each.failed.items())},
                    "skipped": {str(day): why for day, why in sorted(each.skipped.items())},
                    "rows": each.rows,
                    "quarantined": each.quarantined,
                    "also_written": each.also,
                    "warnings": each.warnings,
                    "seconds": round(each.seconds, 3),
                    "error": each.broken,
                }
                for each in self.tables.values()
            ],
        }
