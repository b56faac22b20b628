"""Which batch a table takes from its database next: where the last one ended, and what has to be read for this one.

Where the next batch begins is kept in application transactions (numbers, which checkpoints keep for ever); the snapshot
as text is in the commit's metadata. A batch is refused where they moved since it was begun. Rows that are read once
more, because a transaction of the last batch's time still ran, are left out if the table has them: a row version is the
key together with the transaction that wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pydantic import SecretStr
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.build.base import Base
from lakehouse.build.intake.batch import Batch, Taken
from lakehouse.build.laps import Laps
from lakehouse.checks.metrics import HIDDEN, Value
from lakehouse.contracts import Extract
from lakehouse.contracts.extract import EXACT
from lakehouse.days import iso, micros_of
from lakehouse.delta.snapshot import DataFile, Snapshot, fingerprint
from lakehouse.delta.staged import StagedFile
from lakehouse.errors import SourceError
from lakehouse.sources.postgres import Database, Moment, Reading
from lakehouse.store import parquet

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Watermark:
    """Where a batch ended.

    Attributes:
        batch: its number, from 1.
        xid: the lowest transaction that could still write when it was begun (`Moment.low`).
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


@dataclass(frozen=True, kw_only=True)
class DatabaseBatch(Batch):
    """A batch of row versions.

    Attributes:
        database: where it is read.
        moment: what the database said of itself when the batch was begun.
        apart: how far its clock is from this machine's, in seconds.
        before: where the last batch ended; None of the first one.
        end: where this one ends.
        why_whole: why every row is read; empty where only the new ones are.
        reading: which rows are read.
    """

    database: Database
    moment: Moment
    apart: dict[str, Value | None]
    before: Watermark | None
    end: Watermark
    why_whole: str
    reading: Reading

    @property
    def extract(self) -> Extract:
        """What the contract says of the source."""
        return extract_of(self.base)

    @property
    def number(self) -> int:
        """From 1."""
        return self.end.batch

    @property
    def day(self) -> date:
        """On which it was begun, by the database's clock."""
        return self.moment.day

    def rows(self) -> DataFrame:
        """The transform's rows, without the row versions that the table has; read when they are staged."""
        return batch_rows(self)

    def failed(self, error: Exception) -> SourceError | None:
        """What reading failed of, where it did."""
        return self.database.failed(error) if "org.postgresql" in str(error) else None

    def taken(self, files: Sequence[StagedFile]) -> Taken:
        """What the batch tells about the time from `updated_at` to commit, and of the database and its clock."""
        source = {
            "mode": self.extract.mode,
            "taken_at": iso(self.moment.at),
            "watermark": iso(self.end.watermark),
            "snapshot": self.moment.snapshot,
        }
        whole = {"whole": self.why_whole} if self.why_whole else {}
        return Taken(
            measured=_delays(self, files) | self.apart,
            transactions=self.end.transactions(self.extract) if files else {},
            told={**source, "whole": self.why_whole, "source": self.moment.identity},
            shown={**source, "lag_seconds": self.extract.lag.total_seconds(), **whole},
        )


def plan_rows(base: Base, url: SecretStr, run_id: str, *, whole: bool, laps: Laps) -> DatabaseBatch:
    """Ask the database where it is, and decide from where on to read.

    Args:
        base: a table with an extract.
        url: of its database.
        run_id: recorded in the commit.
        whole: read every row of the source; those that the table has are left out again.
        laps: the seconds so far.

    Raises:
        SourceDownError: the database cannot be reached at the moment.
        SourceError: it refuses, or lacks what the contract names.
    """
    extract, started = extract_of(base), base.lake.engine_seconds
    database = Database(base.lake.spark, url, extract)  # starts the engine, where none is on
    laps = laps.lap("plan", base.lake.engine_seconds - started)
    # Of the version the batch goes on from: its commit is refused where another batch was added since.
    before = watermark_of(base.main.snapshot, extract)
    asked = datetime.now(UTC)
    moment = database.moment()
    apart = clock_apart(moment, asked, datetime.now(UTC))
    anew = _why_anew(before, moment)
    end = _end(extract, moment, None if anew else before, batch=before.batch + 1 if before else 1)
    # The modes read up to different points, so rows between the two would be missed; those known are left out again.
    again = "the mode has changed" if before and before.exact != end.exact else ""
    why = anew or again or ("asked for" if whole else "")
    reading = _reading(extract, None if why else before, end)
    return DatabaseBatch(
        base=base,
        run_id=run_id,
        laps=laps.lap("plan"),
        database=database,
        moment=moment,
        apart=apart,
        before=before,
        end=end,
        why_whole=why,
        reading=reading,
    )


def extract_of(base: Base) -> Extract:
    """The extract of a table that has one."""
    assert base.table.extract is not None
    return base.table.extract


def watermark_of(snapshot: Snapshot, extract: Extract) -> Watermark | None:
    """Where the last batch ended, as a table's log has it; None before the first batch."""
    # All of them or none: they were written by one entry.
    held = {name: snapshot.transaction(f"intake/{extract.source}/{name}") for name in Watermark.__dataclass_fields__}
    known = {name: value for name, value in held.items() if value is not None}
    return Watermark(**known) if len(known) == len(held) else None


def clock_apart(moment: Moment, asked: datetime, answered: datetime) -> dict[str, Value | None]:
    """How far the database's clock is ahead of this machine's, and within how many seconds that is certain.

    As in NTP, by one question: the database told its time at some moment between the question and the answer.

    Args:
        moment: what the database answered.
        asked: when it was asked, by this machine's clock.
        answered: when the answer was there.
    """
    told = datetime.fromisoformat(iso(moment.at))
    # Half of the round trip is the bound of the error: the clock was read at some point of it, nobody knows which.
    half = (answered - asked) / 2  # the answer may have been given at either end, but no earlier and no later
    ahead = told - (asked + half)
    return {
        "clock_ahead_seconds": round(ahead.total_seconds(), 3),
        "clock_within_seconds": round(half.total_seconds(), 3),
    }


def batch_rows(batch: DatabaseBatch) -> DataFrame:
    """The transform's rows of the batch, without the row versions that the table has; read when they are staged."""
    base, reading, extract = batch.base, batch.reading, batch.extract
    rows = batch.database.rows(reading)
    if files := _overlapping(base.main.snapshot, extract, reading):
        # A row version is its key and the transaction that wrote it; of older numbering, the numbers say nothing.
        # A tombstone has the key of its row, and may have been written by the same transaction as a new row of that
        # key.
        version = [*extract.key, "_xid", "_tombstone"]
        known = base.lake.read_files(base.table, base.main.snapshot, files).where(F.col("_batch") >= batch.end.since)
        rows = rows.join(known.select(*version), version, "left_anti")
    ((parameter, _),) = base.table.inputs.items()
    taken = rows.withColumns(
        {
            "_arrival_date": F.lit(batch.moment.day),
            "_batch": F.lit(batch.end.batch).cast("bigint"),
            "_ingested_run": F.lit(batch.run_id),
            "_code_version": F.lit(base.table.code_version),
        }
    )
    return base.table.transformed(**{parameter: taken})


def _why_anew(before: Watermark | None, moment: Moment) -> str:
    """Why every row has to be read, and none is known to be here; empty where transactions can be compared."""
    if before is None:
        return "first batch"
    if before.source != fingerprint([moment.identity]):
        return "another database, table or time line than that of the last batch"
    if before.high > moment.high:
        return "the database has been put back: it is behind the last batch"
    return ""


def _end(extract: Extract, moment: Moment, before: Watermark | None, *, batch: int) -> Watermark:
    """Where a batch ends that is begun now; `before` is the last end, where its numbers can be compared."""
    watermark = moment.at - extract.lag // _MICROSECOND
    if before:  # the database's clock may have been put back
        watermark = max(watermark, before.watermark)
    # Where a database is read anew, transaction numbers begin anew: only batches from this one on can be compared.
    since = before.since if before else batch
    exact, source = int(extract.mode == EXACT), fingerprint([moment.identity])
    return Watermark(batch, moment.low, moment.high, watermark, moment.at, source, exact, since)


def _reading(extract: Extract, before: Watermark | None, end: Watermark) -> Reading:
    """Which rows to read: all of them, or those from the last end on.

    In the mode exact a row may be new where its transaction could still write when the last batch was begun. In the
    mode lag its `updated_at` says so: from `overlap` below the last watermark up to this one, both in microseconds; or
    that it has none.
    """
    exact = extract.mode == EXACT
    if before is None:
        return Reading() if exact else Reading(until=end.watermark)
    if exact:
        return Reading(xid=before.xid)
    return Reading(since=before.watermark - extract.overlap // _MICROSECOND, until=end.watermark)


def _overlapping(held: Snapshot, extract: Extract, reading: Reading) -> list[DataFile]:
    """Files that may hold row versions that the reading gives again."""
    if reading.xid is not None:
        low: Any = reading.xid
        highs, nulls = held.high("_xid"), dict[str, int | None]()
    elif reading.since is not None:
        low, highs = iso(reading.since), held.high(extract.updated_at)
        nulls = held.nulls(extract.updated_at)
    else:
        return list(held.files)
    # A file without bounds may hold anything.
    return [f for f in held.files if highs.get(f.path) is None or highs[f.path] >= low or nulls.get(f.path, 0) != 0]


def _delays(batch: DatabaseBatch, files: Sequence[StagedFile]) -> dict[str, Value | None]:
    """What this batch tells about the time from `updated_at` to commit.

    A row below the last batch's watermark that was not in it became visible after that batch: it took at least as
    long as from its `updated_at` to then.
    """
    moment, before = batch.moment, batch.before
    delays: dict[str, Value | None] = {"open_seconds": moment.open_seconds}
    if moment.open_seconds is None and not moment.sees_all:
        delays["open_transactions"] = HIDDEN
    if before is not None and not batch.why_whole:
        # Only compared where the last batch read up to a watermark of the same numbering: else every row would look
        # late.
        known, column = iso(before.watermark), batch.extract.updated_at
        texts = [text for f in files for text in parquet.read(f.path, [column])[column].to_pylist()]
        # Times as texts of one length: they sort as the times do. A longer one is of a year beyond 9999, and not late.
        late = [text for text in texts if text is not None and len(text) == len(known) and text < known]
        delays["late_rows"] = len(late)
        oldest = micros_of(datetime.fromisoformat(min(late))) if late else before.at
        delays["late_by_seconds"] = round((before.at - oldest) / 1e6, 3)
    return delays
