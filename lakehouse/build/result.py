"""What a build tells: its days, figures and checks, for people, Dagster and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from lakehouse.checks.metrics import DayMetrics, Outcome
from lakehouse.checks.producers import ProducerDay
from lakehouse.contracts import Table
from lakehouse.records.depth import Depth

PUBLISHED, UNCHANGED, FAILED = "published", "unchanged", "failed"


@dataclass(frozen=True)
class DayResult:
    """What happened to one day: its status, its figures, every check's outcome, and a sample file to preview."""

    status: str
    metrics: DayMetrics
    outcomes: Sequence[Outcome] = ()
    sample: Path | None = None

    @property
    def reason(self) -> str:
        """The blocking checks that failed, in words; empty where none did."""
        return "; ".join(f"{o.check}: {o.message}" for o in self.outcomes if o.blocking and not o.passed)


@dataclass(frozen=True)
class BuildResult:
    """One build, when it is over.

    Attributes:
        version: of the table afterwards.
        inputs: version read of each upstream table.
        days: a result by asked day.
        also_replaced: rows by further day that an upsert had to write, or that a batch added.
        seconds: by phase.
        quarantine: the whole table's after the build; None where the table has no row rules.
        producers: those of the asked days, of a table with a clock.
        facts: figures of a batch from a source outside, or of slices, to show.
        outcomes: the checks of a batch from a source outside.
    """

    table: Table
    version: int
    inputs: Mapping[str, int]
    days: Mapping[date, DayResult] = field(default_factory=dict)
    also_replaced: Mapping[date, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    quarantine: Depth | None = None
    producers: Sequence[ProducerDay] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    outcomes: Sequence[Outcome] = ()

    def with_status(self, status: str) -> list[date]:
        """The asked days of that status, in order."""
        return sorted(day for day, result in self.days.items() if result.status == status)


def kept_back(built: Mapping[str, BuildResult]) -> dict[str, str]:
    """By table and day, why days that were built were not published."""
    return {f"{name} {day}": each.days[day].reason for name, each in built.items() for day in each.with_status(FAILED)}


def merged(first: Mapping[str, BuildResult], later: Mapping[str, BuildResult]) -> dict[str, BuildResult]:
    """By table, builds and those that came after them as one each: of a day the newest counts, and none is lost."""
    both = {name: _joined(first[name], each) for name, each in later.items() if name in first}
    return {**first, **later, **both}


def _joined(first: BuildResult, later: BuildResult) -> BuildResult:
    # A day that is found unchanged is as the build before it has published it: that is still to be told.
    left = {day for day, each in first.days.items() if each.status == PUBLISHED}
    days = {day: each for day, each in later.days.items() if day not in left or each.status != UNCHANGED}
    phases = {**first.seconds, **later.seconds}
    producers = {(each.day, each.producer): each for each in (*first.producers, *later.producers)}
    return replace(
        later,
        inputs={**first.inputs, **later.inputs},
        days={**first.days, **days},
        also_replaced={**first.also_replaced, **later.also_replaced},
        seconds={phase: first.seconds.get(phase, 0.0) + later.seconds.get(phase, 0.0) for phase in phases},
        producers=list(producers.values()),
        facts={**first.facts, **later.facts},
        outcomes=[*first.outcomes, *later.outcomes],
    )
