"""Take what is new in a database: one batch, one Delta commit, which also says where the next batch begins.

The batch is appended to the table itself, and not landed as a file first: rows and watermark are then one put-if-absent
log entry, on a disk as on object storage, and a process that is killed anywhere has either taken the batch whole or not
at all. The price is that old batches cannot be read again, so code that changes has to mend them where they are read.

Where the next batch begins is kept in application transactions (numbers, which checkpoints keep for ever); the snapshot
as text is in the commit's metadata. A batch is refused where they moved since it was begun. Rows that are read once
more, because a transaction of the last batch's time still ran, are left out if the table has them: a row version is the
key together with the transaction that wrote it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse import store
from lakehouse.build.laps import Stopwatch
from lakehouse.build.publish import FAILED, PUBLISHED, UNCHANGED, BuildResult, DayResult
from lakehouse.build.space import said_when_full
from lakehouse.build.stage import stage
from lakehouse.checks.audit import audit
from lakehouse.checks.metrics import HIDDEN, DayMetrics, Value, failed_checks, measure
from lakehouse.contracts import Extract, Table
from lakehouse.contracts.extract import EXACT
from lakehouse.delta.commit import append_batch, ensure_table, exchange_files
from lakehouse.delta.failpoints import failpoint
from lakehouse.delta.snapshot import Snapshot, fingerprint, open_snapshot
from lakehouse.delta.staged import StagedFile, clear, read_staged
from lakehouse.delta.target import Commit
from lakehouse.read.content import contents
from lakehouse.read.lake import Lake
from lakehouse.read.targets import targets
from lakehouse.records.erasures import forgotten_in
from lakehouse.records.history import JUDGE, JUDGED, judgements, project_history
from lakehouse.sources.postgres import Database, Moment, Reading, iso, micros
from lakehouse.store import parquet

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Watermark:
    """Where a batch ended.

    Attributes:
        batch: its number, from 1.
        xid: the lowest transaction that still ran when it was begun.
        high: the first that had not yet been given out.
        watermark: `lag` before it was begun, in microseconds: the mode `lag` read up to there.
        at: when it was begun, by the database's clock, in microseconds.
        source: a number over the database's identity.
        exact: 1 where its mode was exact.
        since: the first batch whose transaction numbers can be compared with today's.
    """

    batch: int
    xid: int
    high: int
    watermark: int
    at: int
    source: int
    exact: int
    since: int

    def transactions(self, extract: Extract) -> dict[str, int]:
        """The watermark as application transactions."""
        return {f"intake/{extract.source}/{name}": value for name, value in vars(self).items()}


def watermark_of(snapshot: Snapshot, extract: Extract) -> Watermark | None:
    """The watermark that a table's log has; None before the first batch."""
    held = {name: snapshot.transaction(f"intake/{extract.source}/{name}") for name in Watermark.__dataclass_fields__}
    known = {name: value for name, value in held.items() if value is not None}
    return Watermark(**known) if len(known) == len(held) else None


def take(lake: Lake, table: Table, days: Iterable[date], *, run_id: str, whole: bool = False) -> BuildResult:
    """Add one batch of what is new in the source of `table`; a source without changes adds no commit.

    The batch belongs to the day on which it was begun, by the database's clock, whatever days are asked for; those are
    said to be unchanged, but for the last, which stands for the batch.

    Args:
        lake: where the tables are and what computes them.
        table: a table with an extract.
        days: daily partitions to report on.
        run_id: recorded in the commit.
        whole: read every row of the source; those that the table has are left out again.

    Raises:
        PublishConflictError: another intake took a batch, or the table was restored, meanwhile.
        SourceDownError: the database cannot be reached at the moment.
        SourceError: it refuses, or lacks what the contract names.
        DiskFullError: there was no space; nothing was taken.
    """
    with said_when_full(table.id, lake.path(table.id)):
        return _Intake(lake, table, sorted(set(days)), run_id).run(whole=whole)


def clock_apart(moment: Moment, asked: datetime, answered: datetime) -> dict[str, Value | None]:
    """How far the database's clock is ahead of this machine's, and within how many seconds that is certain.

    As in NTP, by one question: the database told its time at some moment between the question and the answer.
    """
    told = datetime.fromisoformat(iso(moment.at))
    half = (answered - asked) / 2
    ahead = told - (asked + half)
    return {
        "clock_ahead_seconds": round(ahead.total_seconds(), 3),
        "clock_within_seconds": round(half.total_seconds(), 3),
    }


class _Intake:
    """One batch on its way from the source to its commit."""

    def __init__(self, lake: Lake, table: Table, asked: Sequence[date], run_id: str) -> None:
        assert table.extract is not None
        self._lake, self._table, self._extract, self._run_id = lake, table, table.extract, run_id
        self._asked = asked
        self._target, _ = targets(lake, table)
        self._base = ensure_table(self._target)
        self._reached = watermark_of(self._base, self._extract)
        self._result = BuildResult(table, self._base.version, {})

    def run(self, *, whole: bool) -> BuildResult:
        result, clock = self._result, Stopwatch(self._result.seconds)
        held = self._base.rows_by_day(self._table.day_column)
        for day in self._asked:
            result.days[day] = DayResult(UNCHANGED, DayMetrics(day, rows=held.get(day, 0)))
        url = self._lake.settings.source_url(self._extract.source)
        if url is None:
            result.facts["batch/source"] = f"not configured: set LAKEHOUSE_{self._extract.source.upper()}_URL"
            return result
        database = Database(self._lake.spark, url, self._extract)
        asked = datetime.now(UTC)
        moment = database.moment()
        apart = clock_apart(moment, asked, datetime.now(UTC))
        why = self._why_whole(moment)
        reached = self._next_watermark(moment, anew=bool(why))
        why = why or self._why_again(reached) or ("asked for" if whole else "")
        reading = self._reading(reached, whole=bool(why))
        clock.lap("plan")
        folder = self._target.path / "staged" / uuid.uuid4().hex
        try:
            frame = self._frame(database.rows(reading), reading, moment, reached)
            failpoint(self._table.id, "before-stage")
            files = self._staged(frame, folder, database)
            failpoint(self._table.id, "after-stage")
            clock.lap("stage")
            metrics = measure(self._table, files, [moment.day])[moment.day]
            metrics.source = self._delays(files, moment, compared=not why) | apart
            outcomes = audit(self._table, metrics, {})
            blocked = any(each.blocking and not each.passed for each in outcomes)
            clock.lap("audit")
            metrics.checks = failed_checks(outcomes)
            if files and not blocked:
                self._commit(files, metrics, moment, reached, why)
            else:
                self._judge(metrics, moment.day)
            clock.lap("commit")
        finally:
            clear(folder)
        status = FAILED if blocked else PUBLISHED if files else UNCHANGED
        for day in self._asked[-1:]:
            added = metrics.rows if status == PUBLISHED and day == moment.day else 0
            result.days[day] = DayResult(status, DayMetrics(day, rows=held.get(day, 0) + added), outcomes)
        result.outcomes = outcomes
        result.facts |= self._facts(files, metrics, moment, reached, why)
        return result

    def _staged(self, frame: DataFrame, folder: Path, database: Database) -> list[StagedFile]:
        """The rows on disk; where some are of people who were forgotten, they are removed and staged without them."""
        try:
            stage(self._table, frame, folder)
        except Exception as error:
            if "org.postgresql" in str(error):  # the rows are read only now
                raise database.failed(error) from error
            raise
        files = read_staged(folder, self._table.partition_by)
        people = forgotten_in(self._lake.settings, self._table, [file.path for file in files])
        if not any(people.values()):
            return files
        store.delete_tree(folder, strict=True)
        for column, texts in people.items():
            frame = frame.where(F.col(column).isNull() | ~F.col(column).isin(sorted(texts)))
        return self._staged(frame, folder, database)  # the source is read again, and may name others by now

    def _next_watermark(self, moment: Moment, *, anew: bool) -> Watermark:
        batch = self._reached.batch + 1 if self._reached else 1
        since = self._reached.since if self._reached and not anew else batch
        watermark = moment.at - self._extract.lag // _MICROSECOND
        if self._reached and not anew:  # the database's clock may have been put back
            watermark = max(watermark, self._reached.watermark)
        exact = int(self._extract.mode == EXACT)
        source = fingerprint([moment.identity])
        return Watermark(batch, moment.low, moment.high, watermark, moment.at, source, exact, since)

    def _why_whole(self, moment: Moment) -> str:
        """Why every row has to be read, and none is known to be here; empty where transactions can be compared."""
        if self._reached is None:
            return "first batch"
        if self._reached.source != fingerprint([moment.identity]):
            return "another database, table or time line than that of the last batch"
        if self._reached.high > moment.high:
            return "the database has been put back: it is behind the last batch"
        return ""

    def _why_again(self, reached: Watermark) -> str:
        return "the mode has changed" if self._reached and self._reached.exact != reached.exact else ""

    def _reading(self, reached: Watermark, *, whole: bool) -> Reading:
        exact = self._extract.mode == EXACT
        if whole or self._reached is None:
            return Reading() if exact else Reading(until=reached.watermark)
        if exact:
            return Reading(xid=self._reached.xid)
        return Reading(since=self._reached.watermark - self._extract.overlap // _MICROSECOND, until=reached.watermark)

    def _frame(self, rows: DataFrame, reading: Reading, moment: Moment, reached: Watermark) -> DataFrame:
        version = [*self._extract.key, "_xid", "_tombstone"]
        files = self._overlapping(reading)
        if files:
            known = self._lake.read_files(self._table, self._base, files).where(F.col("_batch") >= reached.since)
            rows = rows.join(known.select(*version), version, "left_anti")
        ((parameter, _),) = self._table.inputs.items()
        taken = rows.withColumns(
            {
                "_arrival_date": F.lit(moment.day),
                "_batch": F.lit(reached.batch).cast("bigint"),
                "_ingested_run": F.lit(self._run_id),
                "_code_version": F.lit(self._table.code_version),
            }
        )
        return self._table.transform(**{parameter: taken})

    def _overlapping(self, reading: Reading) -> list[Any]:
        """Files that may hold row versions that the reading gives again."""
        if reading.xid is not None:
            low: Any = reading.xid
            highs = self._base.high("_xid")
        elif reading.since is not None:
            low, highs = iso(reading.since), self._base.high(self._extract.updated_at)
        else:
            return list(self._base.files)
        return [f for f in self._base.files if highs.get(f.path) is None or highs[f.path] >= low]

    def _delays(self, files: Sequence[StagedFile], moment: Moment, *, compared: bool) -> dict[str, Value | None]:
        """What this batch tells about the time from `updated_at` to commit.

        A row below the last batch's watermark that was not in it became visible after that batch: it took at least as
        long as from its `updated_at` to then.
        """
        delays: dict[str, Value | None] = {"open_seconds": moment.open_seconds}
        if moment.open_seconds is None and not moment.sees_all:
            delays["open_transactions"] = HIDDEN
        if compared and self._reached is not None:
            before = iso(self._reached.watermark)
            column = self._extract.updated_at
            texts = [text for f in files for text in parquet.read(f.path, [column])[column].to_pylist()]
            late = [text for text in texts if text is not None and text < before]
            delays["late_rows"] = len(late)
            delays["late_by_seconds"] = round((self._reached.at - micros(min(late))) / 1e6, 3) if late else 0.0
        return delays

    def _commit(
        self, files: Sequence[StagedFile], metrics: DayMetrics, moment: Moment, reached: Watermark, why: str
    ) -> None:
        day = moment.day
        before = self._base.rows_by_day(self._table.day_column).get(day, 0)
        seconds = round(sum(self._result.seconds.values()), 3)
        figures = {day.isoformat(): {**metrics.as_json(), "rows": before + metrics.rows, "seconds": seconds}}
        batch = {
            "number": reached.batch,
            "mode": self._extract.mode,
            "whole": why,
            "rows": metrics.rows,
            "taken_at": iso(moment.at),
            "watermark": iso(reached.watermark),
            "snapshot": moment.snapshot,
            "source": moment.identity,
            "event_days": _event_days(self._table, files),
        }
        facts = {
            "lakehouse.run_id": self._run_id,
            "lakehouse.code_version": self._table.code_version,
            "lakehouse.inputs": {},
            "lakehouse.batch": batch,
            "lakehouse.metrics": figures,
        }
        failpoint(self._table.id, "before-commit")
        rows = contents(self._table, files, self._base, added=True)
        commit = Commit(reached.transactions(self._extract) | rows, facts)
        self._result.version = append_batch(self._target, self._base, files, commit)
        failpoint(self._table.id, "after-commit")
        project_history(self._lake.settings.root, open_snapshot(self._target.path), self._table.id)

    def _judge(self, metrics: DayMetrics, day: date) -> None:
        """Say what the checks found on a batch that added nothing, where it is not what they found before."""
        kept = judgements(self._lake.settings.root, self._table.id).values()
        before = max(kept, key=lambda each: each.version).figures.get("checks", {}) if kept else {}
        # Not what they say: that a transaction has been open for so long is another sentence at each look.
        if {name: each["blocking"] for name, each in metrics.checks.items()} == {
            name: each["blocking"] for name, each in before.items()
        }:
            return
        facts = {
            "lakehouse.run_id": self._run_id,
            "lakehouse.code_version": self._table.code_version,
            "lakehouse.operation": JUDGE,
            JUDGED: {day.isoformat(): {"checks": metrics.checks}},
        }
        exchange_files(self._target, self._base, (), (), Commit(metadata=facts), days=[])
        project_history(self._lake.settings.root, open_snapshot(self._target.path), self._table.id)

    def _facts(
        self, files: Sequence[StagedFile], metrics: DayMetrics, moment: Moment, reached: Watermark, why: str
    ) -> dict[str, Any]:
        """The batch for people, as metadata of its materialization."""
        measured = {f"batch/{name}": value for name, value in metrics.source.items() if value is not None}
        return {
            "batch/number": reached.batch if files else reached.batch - 1,
            "batch/rows": sum(file.rows for file in files),
            "batch/mode": self._extract.mode,
            "batch/taken_at": iso(moment.at),
            "batch/watermark": iso(reached.watermark),
            "batch/snapshot": moment.snapshot,
            "batch/event_days": ", ".join(_event_days(self._table, files)) or "none",
            "batch/lag_seconds": self._extract.lag.total_seconds(),
            **measured,
            **({"batch/whole": why} if why else {}),
        }


def _event_days(table: Table, files: Iterable[StagedFile]) -> list[str]:
    return sorted({str(file.partition[table.content_day_column]) for file in files})
