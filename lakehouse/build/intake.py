"""Take what is new in a database: one batch, one Delta commit, which also says where the next batch begins.

The batch is appended to the table itself, and not landed as a file first: rows and watermark are then one put-if-absent
log entry, on a disk as on object storage, and a process that is killed anywhere has either taken the batch whole or not
at all. The price is that old batches cannot be read again, so code that changes has to mend them where they are read.

The steps are those of any build (plan, stage, audit, publish); a batch is planned in `lakehouse.build.batch`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse import store
from lakehouse.build.audit import Judged
from lakehouse.build.base import Base, keep_history
from lakehouse.build.batch import Batch, batch_rows, extract_of, plan_batch
from lakehouse.build.laps import Laps
from lakehouse.build.result import FAILED, PUBLISHED, UNCHANGED, BuildResult, DayResult
from lakehouse.build.route import write_routed
from lakehouse.build.work import Run
from lakehouse.checks.audit import audit_day
from lakehouse.checks.metrics import HIDDEN, DayMetrics, Value, failed_checks, measure
from lakehouse.contracts import Table
from lakehouse.delta.commit import append_batch, exchange_files
from lakehouse.delta.failpoints import failpoint
from lakehouse.delta.staged import StagedFile, clear, read_staged
from lakehouse.delta.target import Commit
from lakehouse.read.content import contents
from lakehouse.records.erasures import forgotten_in
from lakehouse.records.history import JUDGE, JUDGED, judgements
from lakehouse.sources.postgres import Database, iso, micros
from lakehouse.store import parquet


@dataclass(frozen=True)
class StagedBatch:
    """The rows of a batch on the disk, none where nothing is new; nobody reads them yet."""

    batch: Batch
    files: Sequence[StagedFile]
    laps: Laps


@dataclass(frozen=True)
class AuditedBatch:
    """A batch that was staged, judged as a whole."""

    staged: StagedBatch
    judged: Judged
    laps: Laps

    @property
    def status(self) -> str:
        """What is to happen to it."""
        return FAILED if self.judged.broken else PUBLISHED if self.staged.files else UNCHANGED


@dataclass(frozen=True)
class PublishedBatch:
    """What became of a batch; `version` is the table's afterwards."""

    audited: AuditedBatch
    version: int
    laps: Laps


def take(base: Base, asked: Sequence[date], run: Run, laps: Laps) -> BuildResult:
    """Add one batch of what is new in the source of a table; a source without changes adds no commit.

    The batch belongs to the day on which it was begun, by the database's clock, whatever days are asked for; those are
    said to be unchanged, but for the last, which stands for the batch.

    Args:
        base: a table with an extract.
        asked: daily partitions to report on, in order.
        run: how it is to be done; forced, every row of the source is read, and those that the table has are left out.
        laps: the seconds so far.

    Raises:
        PublishConflictError: another intake took a batch, or the table was restored, meanwhile.
        SourceDownError: the database cannot be reached at the moment.
        SourceError: it refuses, or lacks what the contract names.
    """
    lake, table, extract = base.lake, base.table, extract_of(base)
    # The days asked for are only reported on: which day a batch belongs to, its database's clock says.
    held = base.main.snapshot.rows_by_day(table.day_column)
    days = {day: DayResult(UNCHANGED, DayMetrics(day, rows=held.get(day, 0))) for day in asked}
    result = BuildResult(table, base.main.snapshot.version, {}, days)
    url = lake.settings.source_url(extract.source)
    if url is None:
        # Not an error: the table was built before and stays as it is; who has no such database has nothing to take.
        said = f"not configured: set LAKEHOUSE_{extract.source.upper()}_URL"
        return replace(result, facts={"batch/source": said})
    started = lake.engine_seconds
    database = Database(lake.spark, url, extract)  # starts the engine, where none is on
    laps = laps.lap("plan", lake.engine_seconds - started)
    # Four steps that hand on frozen values: only the last one commits, and until then nothing was taken.
    batch = plan_batch(base, database, run.run_id, whole=run.force, laps=laps)
    with stage_batch(batch) as staged:
        published = publish_batch(audit_batch(staged))
    return _with(result, published, asked[-1:])


@contextmanager
def stage_batch(batch: Batch) -> Iterator[StagedBatch]:
    """Write the rows of a batch; what of them is not committed by the end of the `with` block is cleared away.

    A kill leaves files that no log names, which a vacuum removes.

    Raises:
        SourceError: the database fails while its rows are read.
    """
    base = batch.base
    # Below the table and in no hidden folder: there a vacuum finds what a kill leaves.
    folder = base.main.target.path / "staged" / uuid.uuid4().hex
    try:
        rows = batch_rows(batch)
        failpoint(base.table.id, "before-stage")
        files = _written(batch, rows, folder)
        failpoint(base.table.id, "after-stage")
        yield StagedBatch(batch, files, batch.laps.lap("stage"))
    finally:
        clear(folder)


def audit_batch(staged: StagedBatch) -> AuditedBatch:
    """Judge a batch by its figures and by what the database showed of its transactions and its clock."""
    batch = staged.batch
    table, day = batch.base.table, batch.moment.day
    metrics = replace(measure(table, staged.files, [day])[day], source=_delays(staged) | batch.apart)
    outcomes = audit_day(table, metrics, {})
    judged = Judged(replace(metrics, checks=failed_checks(outcomes)), outcomes)
    return AuditedBatch(staged, judged, staged.laps.lap("audit"))


def publish_batch(audited: AuditedBatch) -> PublishedBatch:
    """Add a good batch that has rows; of any other, say what the checks found.

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
    try:
        written = write_routed(base.table, rows, folder, counted=not base.lake.settings.is_local)
    except Exception as error:
        if "org.postgresql" in str(error):  # the rows are read only now
            raise batch.database.failed(error) from error
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


def _delays(staged: StagedBatch) -> dict[str, Value | None]:
    """What this batch tells about the time from `updated_at` to commit.

    A row below the last batch's watermark that was not in it became visible after that batch: it took at least as
    long as from its `updated_at` to then.
    """
    batch = staged.batch
    moment, before = batch.moment, batch.before
    delays: dict[str, Value | None] = {"open_seconds": moment.open_seconds}
    if moment.open_seconds is None and not moment.sees_all:
        delays["open_transactions"] = HIDDEN
    if before is not None and not batch.why_whole:
        # Only compared where the last batch read up to a watermark of the same numbering: else every row would look
        # late.
        known, column = iso(before.watermark), batch.extract.updated_at
        texts = [text for f in staged.files for text in parquet.read(f.path, [column])[column].to_pylist()]
        # Times as texts of one length: they sort as the times do.
        late = [text for text in texts if text is not None and text < known]
        delays["late_rows"] = len(late)
        delays["late_by_seconds"] = round((before.at - micros(min(late))) / 1e6, 3) if late else 0.0
    return delays


def _append(audited: AuditedBatch) -> int:
    """Add the rows, and where the next batch begins, in one commit; returns its version.

    Killed before it: nothing was taken, and the next batch begins where this one did. Killed after it: the batch was
    taken whole. Two intakes that began at the same end cannot both commit, for the end is part of the entry: the second
    is refused, and begins anew.
    """
    batch, files, metrics = audited.staged.batch, audited.staged.files, audited.judged.metrics
    base, table, day = batch.base, batch.base.table, batch.moment.day
    # Figures are of the batch, but for the rows: the history says how many the whole day has.
    # Several batches may fall on one day, and each adds to it.
    before = base.main.snapshot.rows_by_day(table.day_column).get(day, 0)
    figures = {**metrics.as_json(), "rows": before + metrics.rows, "seconds": audited.laps.work}
    facts = {
        "lakehouse.run_id": batch.run_id,
        "lakehouse.code_version": table.code_version,
        "lakehouse.inputs": {},
        "lakehouse.batch": _told(audited),
        "lakehouse.metrics": {day.isoformat(): figures},
    }
    # A day may hold batches already, so numbers of content are added to those that the log has.
    failpoint(table.id, "before-commit")
    rows = contents(table, files, base.main.snapshot, added=True)
    # The rows and where the next batch begins are one entry: apart, a kill between them would lose rows or take them
    # twice.
    commit = Commit(batch.end.transactions(batch.extract) | rows, facts)
    version = append_batch(base.main.target, base.main.snapshot, files, commit)
    failpoint(table.id, "after-commit")
    keep_history(base)
    return version


def _told(audited: AuditedBatch) -> dict[str, Any]:
    """The batch as its commit tells it."""
    batch = audited.staged.batch
    return {
        "number": batch.end.batch,
        "mode": batch.extract.mode,
        "whole": batch.why_whole,
        "rows": audited.judged.metrics.rows,
        "taken_at": iso(batch.moment.at),
        "watermark": iso(batch.end.watermark),
        "snapshot": batch.moment.snapshot,
        "source": batch.moment.identity,
        "event_days": _event_days(batch.base.table, audited.staged.files),
    }


def _judge(audited: AuditedBatch) -> None:
    """Say what the checks found on a batch that added nothing, where it is not what they found before."""
    # Asked every few minutes, a quiet source would else fill the log with what it has said before.
    batch, checks = audited.staged.batch, audited.judged.metrics.checks
    base = batch.base
    kept = judgements(base.lake.settings.root, base.table.id).values()
    before = max(kept, key=lambda each: each.version).figures.get("checks", {}) if kept else {}
    # Not what they say: that a transaction has been open for so long is another sentence at each look.
    if _blocking(checks) == _blocking(before):
        return
    facts = {
        "lakehouse.run_id": batch.run_id,
        "lakehouse.code_version": base.table.code_version,
        "lakehouse.operation": JUDGE,
        JUDGED: {batch.moment.day.isoformat(): {"checks": checks}},
    }
    exchange_files(base.main.target, base.main.snapshot, (), (), Commit(metadata=facts), days=[])
    keep_history(base)


def _blocking(checks: Mapping[str, Mapping[str, Any]]) -> dict[str, bool]:
    """The checks that failed, and whether they block."""
    return {name: each["blocking"] for name, each in checks.items()}


def _with(result: BuildResult, published: PublishedBatch, last: Sequence[date]) -> BuildResult:
    """The result with the batch, for which the last day asked for stands."""
    audited = published.audited
    days, outcomes = dict(result.days), audited.judged.outcomes
    for day in last:
        # A batch may belong to another day than the one that was asked for; that day's rows are then not this batch's.
        mine = audited.status == PUBLISHED and day == audited.staged.batch.moment.day
        added = audited.judged.metrics.rows if mine else 0
        metrics = DayMetrics(day, rows=days[day].metrics.rows + added)
        days[day] = DayResult(audited.status, metrics, outcomes)
    seconds, facts = published.laps.seconds, _shown(audited)
    return replace(result, version=published.version, days=days, seconds=seconds, facts=facts, outcomes=outcomes)


def _shown(audited: AuditedBatch) -> dict[str, Any]:
    """The batch for people, as metadata of its materialization."""
    batch, files = audited.staged.batch, audited.staged.files
    source = audited.judged.metrics.source
    return {
        "batch/number": batch.end.batch if files else batch.end.batch - 1,  # no rows, no batch
        "batch/rows": sum(file.rows for file in files),
        "batch/mode": batch.extract.mode,
        "batch/taken_at": iso(batch.moment.at),
        "batch/watermark": iso(batch.end.watermark),
        "batch/snapshot": batch.moment.snapshot,
        "batch/event_days": ", ".join(_event_days(batch.base.table, files)) or "none",
        "batch/lag_seconds": batch.extract.lag.total_seconds(),
        **{f"batch/{name}": value for name, value in source.items() if value is not None},
        **({"batch/whole": batch.why_whole} if batch.why_whole else {}),
    }


def _event_days(table: Table, files: Iterable[StagedFile]) -> list[str]:
    return sorted({str(file.partition[table.content_day_column]) for file in files})
