"""Take what is new in a source outside: one batch, one Delta commit, which also says where the next batch begins.

The batch is appended to the table itself, and not landed as a file first: rows and watermark are then one put-if-absent
log entry, on a disk as on object storage, and a process that is killed anywhere has either taken the batch whole or not
at all. The price is that old batches cannot be read again, so code that changes has to fix them where they are read.

The steps are those of any build (plan, stage, audit, publish); batches of a database are planned in
`lakehouse.build.intake.from_database`, those of Kafka topics in `lakehouse.build.intake.from_topic`.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse import store
from lakehouse.build.audit import Judged
from lakehouse.build.base import Base, open_base, project_commits
from lakehouse.build.intake.batch import Batch, Taken
from lakehouse.build.intake.ends import Reach
from lakehouse.build.intake.from_database import plan_rows
from lakehouse.build.intake.from_topic import plan_messages
from lakehouse.build.laps import Laps
from lakehouse.build.result import FAILED, PUBLISHED, UNCHANGED, BuildResult, DayResult
from lakehouse.build.route import write_routed
from lakehouse.build.work import Run
from lakehouse.checks.audit import audit_day
from lakehouse.checks.metrics import DayMetrics, failed_checks, measure
from lakehouse.contracts import Table
from lakehouse.delta.commit import append_batch, exchange_files
from lakehouse.delta.failpoints import failpoint
from lakehouse.delta.staged import StagedFile, clear, read_staged
from lakehouse.delta.target import Commit
from lakehouse.read.content import contents
from lakehouse.records.erasures import forgotten_in
from lakehouse.records.history import CHECKS_ONLY, UNPUBLISHED_CHECKS, judgements
from lakehouse.spark.planning import plan_for


@dataclass(frozen=True)
class StagedBatch:
    """The rows of a batch on the disk, none where nothing is new; nobody reads them yet."""

    batch: Batch
    files: Sequence[StagedFile]
    laps: Laps


@dataclass(frozen=True)
class AuditedBatch:
    """A batch that was staged, judged as a whole; `judged` is by the arrival day of its rows, or the day it was begun.

    Attributes:
        staged: the rows.
        judged: by day, in order.
        taken: what it tells of itself.
        laps: the seconds so far.
    """

    staged: StagedBatch
    judged: Mapping[date, Judged]
    taken: Taken
    laps: Laps

    @property
    def status(self) -> str:
        """What is to happen to it."""
        if any(each.broken for each in self.judged.values()):
            return FAILED
        return PUBLISHED if self.taken.transactions else UNCHANGED

    @property
    def last(self) -> Judged:
        """The newest day's figures, with those of the source."""
        return self.judged[max(self.judged)]


@dataclass(frozen=True)
class PublishedBatch:
    """What became of a batch; `version` is the table's afterwards."""

    audited: AuditedBatch
    version: int
    laps: Laps


def take(base: Base, asked: Sequence[date], run: Run, laps: Laps) -> BuildResult:
    """Add what is new in the source of a table, in one batch or several; a source without news adds no commit.

    A batch of a database belongs to the day on which it was begun, by the database's clock, messages to the days on
    which they arrived, whatever days are asked for; those are said to be unchanged, but for the last, which stands for
    what was taken.

    Args:
        base: a table with an extract or a topic.
        asked: daily partitions to report on, in order.
        run: how it is to be done; forced, every row of a database is read, and those that the table has are left out.
        laps: the seconds so far.

    Raises:
        PublishConflictError: another intake took a batch, or the table was restored, meanwhile.
        SourceDownError: the source cannot be reached at the moment.
        SourceError: it refuses, lacks what the contract names, or has lost what was not taken yet.
    """
    lake, table = base.lake, base.table
    assert table.taken is not None
    # The days asked for are only reported on: which day a batch belongs to, its source's clock says.
    held = base.main.snapshot.rows_by_day(table.day_column)
    days = {day: DayResult(UNCHANGED, DayMetrics(day, rows=held.get(day, 0))) for day in asked}
    result = BuildResult(table, base.main.snapshot.version, {}, days)
    url = lake.settings.source_url(table.taken.source)
    if url is None:
        # Not an error: the table was built before and stays as it is; who has no such source has nothing to take.
        said = f"not configured: set {table.taken.setting}"
        return replace(result, facts={"batch/source": said})
    taken = list(_batches(base, url, run, laps))
    return _with(result, taken, asked[-1:])


def _batches(base: Base, url: SecretStr, run: Run, laps: Laps) -> Iterator[PublishedBatch]:
    """One batch after the other, up to where the source was when the first was begun."""
    until: Reach | None = None
    while True:
        # Four steps that hand on frozen values: only the last one commits, and until then nothing was taken.
        if base.table.topic is None:
            batch: Batch = plan_rows(base, url, run.run_id, whole=run.force, laps=laps)
        else:
            batch = plan_messages(base, url, run.run_id, until=until, laps=laps)
            until = batch.until
        try:
            published = _carried_through(batch)
        except PySparkException as error:  # none of the source's, which are told as such
            published = _carried_through(batch.isolated(error))
        yield published
        if not batch.left or published.audited.status == FAILED or run.one_batch:
            return
        base, laps = open_base(base.lake, base.table), published.laps


def _carried_through(batch: Batch) -> PublishedBatch:
    with stage_batch(batch) as staged:
        return publish_batch(audit_batch(staged))


@contextmanager
def stage_batch(batch: Batch) -> Iterator[StagedBatch]:
    """Write the rows of a batch; what of them is not committed by the end of the `with` block is cleared away.

    A kill leaves files that no log names, which a vacuum removes.

    Raises:
        SourceError: the source fails while it is read.
    """
    base = batch.base
    # Below the table and in no hidden folder: there a vacuum finds what a kill leaves.
    folder = base.main.target.path / "staged" / uuid.uuid4().hex
    rows = batch.rows()
    if rows is None:
        yield StagedBatch(batch, (), batch.laps.lap("stage"))
        return
    try:
        failpoint(base.table.id, "before-stage")
        files = _written(batch, rows, folder)
        failpoint(base.table.id, "after-stage")
        yield StagedBatch(batch, files, batch.laps.lap("stage"))
    finally:
        if store.is_folder(folder):
            clear(folder)


def audit_batch(staged: StagedBatch) -> AuditedBatch:
    """Judge a batch by its figures and by what its source showed of itself."""
    batch, table = staged.batch, staged.batch.base.table
    figures = measure(table, staged.files, () if staged.files else [batch.day])
    taken = batch.taken(staged.files)
    figures[max(figures)].source = dict(taken.measured)
    judged = {}
    for day, each in sorted(figures.items()):
        outcomes = audit_day(table, each, {})
        judged[day] = Judged(replace(each, checks=failed_checks(outcomes)), outcomes)
    return AuditedBatch(staged, judged, taken, staged.laps.lap("audit"))


def publish_batch(audited: AuditedBatch) -> PublishedBatch:
    """Add a good batch; of one that is not, or that has nothing, say what the checks found.

    Raises:
        PublishConflictError: another intake took a batch, or the table was restored, meanwhile.
    """
    if audited.status == PUBLISHED:
        version = _append(audited)
    else:
        _judge(audited)
        version = audited.staged.batch.base.main.snapshot.version
    return PublishedBatch(audited, version, audited.laps.lap("commit"))


def _written(batch: Batch, rows: DataFrame, folder: Path) -> list[StagedFile]:
    """The rows on disk; where some are of people who were forgotten, they are removed and staged without them."""
    base = batch.base
    plan_for(base.lake.spark, base.lake.settings, batch.size)
    try:
        written = write_routed(base.table, rows, folder, counted=not base.lake.settings.is_local, made_as=batch.made_as)
    except Exception as error:
        if failed := batch.failed(error):  # the source is read only now
            raise failed from error
        raise
    files = read_staged(folder, base.table.partition_by, written)
    # After staging, since only the rows say who is in them; before the commit, since what is committed is read.
    people = forgotten_in(base.lake.settings, base.table, [file.path for file in files])
    if not any(people.values()):
        return files
    store.delete_tree(folder, strict=True)  # whole: nothing of these people may outlive the next line
    for column, texts in people.items():
        rows = rows.where(F.col(column).isNull() | ~F.col(column).isin(sorted(texts)))
    return _written(batch, rows, folder)  # the source is read again, and may name others by now


def _append(audited: AuditedBatch) -> int:
    """Add the rows, and where the next batch begins, in one commit; returns its version.

    Killed before it: nothing was taken, and the next batch begins where this one did. Killed after it: the batch was
    taken whole. Two intakes that began at the same end cannot both commit, for the end is part of the entry: the second
    is refused, and begins anew.
    """
    batch, files = audited.staged.batch, audited.staged.files
    base, table = batch.base, batch.base.table
    # Figures are of the batch, but for the rows: the history says how many the whole day has.
    # Several batches may fall on one day, and each adds to it.
    before = base.main.snapshot.rows_by_day(table.day_column)
    figures = {
        day.isoformat(): {
            **each.metrics.as_json(),
            "rows": before.get(day, 0) + each.metrics.rows,
            "seconds": audited.laps.work,
        }
        for day, each in audited.judged.items()
    }
    told = {
        "number": batch.number,
        "rows": sum(file.rows for file in files),
        **audited.taken.told,
        "event_days": _event_days(table, files),
    }
    facts = {
        "lakehouse.run_id": batch.run_id,
        "lakehouse.code_version": table.code_version,
        "lakehouse.inputs": {},
        "lakehouse.batch": told,
        "lakehouse.metrics": figures,
    }
    # A day may hold batches already, so numbers of content are added to those that the log has.
    failpoint(table.id, "before-commit")
    rows = contents(table, files, base.main.snapshot, added=True)
    # The rows and where the next batch begins are one entry: apart, a kill between them would lose rows or take them
    # twice.
    commit = Commit(dict(audited.taken.transactions) | rows, facts)
    version = append_batch(base.main.target, base.main.snapshot, files, commit)
    failpoint(table.id, "after-commit")
    project_commits(base)
    return version


def _judge(audited: AuditedBatch) -> None:
    """Say what the checks found on a batch that added nothing, where it is not what they found before."""
    # Asked every few minutes, a quiet source would else fill the log with what it has said before.
    batch = audited.staged.batch
    checks = {name: told for each in audited.judged.values() for name, told in each.metrics.checks.items()}
    base = batch.base
    kept = judgements(base.lake.settings.root, base.table.id).values()
    before = max(kept, key=lambda each: each.version).figures.get("checks", {}) if kept else {}
    # Not what they say: that a transaction has been open for so long is another sentence at each look.
    if _blocking(checks) == _blocking(before):
        return
    facts = {
        "lakehouse.run_id": batch.run_id,
        "lakehouse.code_version": base.table.code_version,
        "lakehouse.operation": CHECKS_ONLY,
        UNPUBLISHED_CHECKS: {batch.day.isoformat(): {"checks": checks}},
    }
    exchange_files(base.main.target, base.main.snapshot, (), (), Commit(metadata=facts), days=[])
    project_commits(base)


def _blocking(checks: Mapping[str, Mapping[str, Any]]) -> dict[str, bool]:
    """The checks that failed, and whether they block."""
    return {name: each["blocking"] for name, each in checks.items()}


def _with(result: BuildResult, taken: Sequence[PublishedBatch], last: Sequence[date]) -> BuildResult:
    """The result with the batches, for which the last day asked for stands."""
    days, newest = dict(result.days), taken[-1]
    outcomes, said = newest.audited.last.outcomes, {each.audited.status for each in taken}
    added = [each.audited for each in taken if each.audited.status == PUBLISHED]
    for day in last:
        # A batch may belong to another day than the one that was asked for; that day's rows are then not this batch's.
        mine = [each.judged[day].metrics.rows for each in added if day in each.judged]
        metrics = DayMetrics(day, rows=days[day].metrics.rows + sum(mine))
        days[day] = DayResult(newest.audited.status if not added or FAILED in said else PUBLISHED, metrics, outcomes)
    seconds, facts = newest.laps.seconds, _shown(taken)
    also = Counter[date]()
    for each in added:
        also.update({day: one.metrics.rows for day, one in each.judged.items() if day not in last})
    return replace(
        result, version=newest.version, days=days, also_replaced=also, seconds=seconds, facts=facts, outcomes=outcomes
    )


def _shown(taken: Sequence[PublishedBatch]) -> dict[str, Any]:
    """What was taken for people, as metadata of its materialization: the newest batch, and the rows of all."""
    newest = taken[-1].audited
    batch, table = newest.staged.batch, newest.staged.batch.base.table
    added = [file for each in taken for file in each.audited.staged.files]
    shown = {
        "number": batch.number if newest.status == PUBLISHED else batch.number - 1,  # nothing was added, no batch
        **({"batches": len(taken)} if len(taken) > 1 else {}),
        "rows": sum(file.rows for file in added),
        "event_days": ", ".join(_event_days(table, added)) or "none",
        **{name: value for name, value in newest.last.metrics.source.items() if value is not None},
        **newest.taken.shown,
    }
    return {f"batch/{name}": value for name, value in shown.items()}


def _event_days(table: Table, files: Iterable[StagedFile]) -> list[str]:
    return sorted({str(file.partition[table.content_day_column]) for file in files})
