"""Stage: the rows of a build are written once, beside the table's files, where no reader sees them."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from lakehouse.build.laps import Laps
from lakehouse.build.late import rules_for
from lakehouse.build.route import write_routed
from lakehouse.build.slices import Slices
from lakehouse.build.work import Work
from lakehouse.contracts import Rule
from lakehouse.delta.failpoints import failpoint
from lakehouse.delta.staged import StagedFile, clear, read_staged
from lakehouse.errors import StagedFileError
from lakehouse.spark.planning import plan_for

Files = tuple[Sequence[StagedFile], Mapping[str, Any]]
"""What was staged, with figures to show."""


@dataclass(frozen=True)
class Staged:
    """The rows of a build on the disk; nobody reads them yet.

    Attributes:
        work: what they are the rows of.
        files: each with what its footer says; none where there is no input.
        facts: figures to show, of a build in slices.
        laps: the seconds so far.
    """

    work: Work
    files: Sequence[StagedFile] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    laps: Laps = field(default_factory=Laps)


@contextmanager
def stage(work: Work) -> Iterator[Staged]:
    """Write the rows; what of them is not committed by the end of the `with` block is cleared away.

    A kill leaves files that no log names. A vacuum removes them, or, of a build in slices, the next attempt takes them.

    Raises:
        SchemaMismatchError: the transform's columns are not the contract's.
        StagedFileError: the transform gave rows of days that are not being built.
        BuildWholeError: rows cannot be added to days.
    """
    table = work.base.table
    if work.frame is None and work.fan_out is None:
        yield Staged(work, laps=work.laps)
        return
    # Of an upsert no accepted late rows are taken in: its rows live in other days than they arrive for.
    rules = rules_for(table, {} if table.upsert else work.plan.accepted)
    failpoint(table.id, "before-stage")
    with _written(work, rules) as (files, facts):
        failpoint(table.id, "after-stage")
        laps = work.laps.lap("stage")
        # Before the audit: a row on a day that nobody asked for would replace that day by itself alone.
        _refuse_strays(work, files)
        yield Staged(work, files, facts, laps)


def _written(work: Work, rules: Sequence[Rule]) -> AbstractContextManager[Files]:
    return _whole(work, rules) if work.fan_out is None else _in_slices(work, rules)


@contextmanager
def _whole(work: Work, rules: Sequence[Rule]) -> Iterator[Files]:
    base = work.base
    assert work.frame is not None
    # Below the table and in no hidden folder: there a vacuum finds what a kill leaves.
    folder = base.main.target.path / "staged" / uuid.uuid4().hex
    try:
        plan_for(base.lake.spark, base.lake.settings, work.size)
        rows = write_routed(base.table, work.frame, folder, rules, not base.lake.settings.is_local, work.made_as)
        files = read_staged(folder, base.table.partition_by, rows)
        if work.growth is not None:
            work.growth.check(files)
        yield files, {}
    finally:
        clear(folder)


@contextmanager
def _in_slices(work: Work, rules: Sequence[Rule]) -> Iterator[Files]:
    base = work.base
    assert work.fan_out is not None
    live = {file.first_name for file in base.main.snapshot.files}
    plan_for(base.lake.spark, base.lake.settings, None)
    with Slices(base.table, base.main.target.path, work.fan_out, live) as slices:
        yield slices.stage(rules)


def _refuse_strays(work: Work, files: Sequence[StagedFile]) -> None:
    """A row of a day that was not asked for would be dropped without a word: it is in nobody's count."""
    table = work.base.table
    expected = {day.isoformat() for day in work.replaced}
    strays: Counter[str] = Counter()
    for file in files:
        if file.partition[table.day_column] not in expected:
            strays[str(file.partition[table.day_column])] += file.rows
    if strays:
        listed = ", ".join(f"{day} ({rows})" for day, rows in sorted(strays.items())[:5])
        raise StagedFileError(
            f"The transform of {table.id} gave {sum(strays.values())} row(s) whose {table.day_column} is not among the "
            f"{len(expected)} day(s) being built: {listed}. Nothing was published. Each row must come out in the "
            "day it is read for; bring other days in as inputs (days_before, days_after) or leave the rows out."
        )
