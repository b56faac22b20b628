"""Loading: the newest row of each entity, as Delta has it, into the online store; from Spark's partitions at once.

The protocol; whoever begins again after a kill, or a restart of Redis, begins at the first step, and does no harm:

1. The floor says which version is loaded: from now on no load of an older one writes what this one reads.
2. Each entity's newest row that may be used now is put in, where it is newer than what is there.
3. Rows of older versions that were not found are removed, and rows that are too old. Only now is what a correction
   took away gone, and so nothing is missing at any moment that was there and is right.
4. If Redis was started again or flushed meanwhile, it may have lost rows: the load begins again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING

from lakehouse.contracts import Table
from lakehouse.days import days_between, end_of
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import Snapshot
from lakehouse.errors import EngineError, OnlineError
from lakehouse.lazy import F
from lakehouse.online.address import told_by_workers
from lakehouse.online.sets import FeatureSet, milliseconds
from lakehouse.online.store import EVERYTHING, NEVER, OnlineStore, Put, opened
from lakehouse.read.lake import Lake, quoted
from lakehouse.records.history import older_code
from lakehouse.spark.planning import plan_for

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

ATTEMPTS = 3  # where Redis is started again while it is loaded
_DAY = timedelta(days=1)
_COUNTS = "written long, same long, older long"


@dataclass(frozen=True)
class Source:
    """What of a table is to be online: its state at one version, as of one moment.

    Attributes:
        table: with features.
        features: as they are stored.
        snapshot: the version.
        days: whose rows may be used at that moment, and were made by the present code.
        expired: rows of days before these.
        other_code: days that other code has made; their rows are not mixed with those of this one.
        now: the moment.
    """

    table: Table
    features: FeatureSet
    snapshot: Snapshot
    days: list[date]
    expired: int
    other_code: list[date]
    now: datetime


@dataclass(frozen=True)
class Loaded:
    """What a load came to.

    Attributes:
        table: `layer.name`.
        delta_version: that was loaded.
        put: what became of the rows.
        removed: rows of older versions that Delta has no more, and rows that may not be used any more.
        expired: rows of Delta that may not be used any more; not written.
        other_code: days that other code has made; not written.
        superseded: a load of a later version has begun; its rows stand.
        attempts: 2 or more where Redis was started again, or emptied, meanwhile.
        seconds: in all.
    """

    table: str
    delta_version: int
    put: Put
    removed: int = 0
    expired: int = 0
    other_code: list[date] = field(default_factory=list)
    superseded: bool = False
    attempts: int = 1
    seconds: float = 0.0


def lake_now(last_day: date | None, now: datetime | None = None) -> datetime:
    """The moment of a lake: now, and where its data has ended, the end of its last day.

    Args:
        last_day: of the lake; None: it goes on.
        now: the present; None: by the clock.
    """
    present = now or datetime.now(UTC)
    return present if last_day is None else min(present, end_of(last_day))


def source_of(lake: Lake, table: Table, now: datetime, version: int | None = None) -> Source:
    """What of a table is to be online at a moment.

    Args:
        lake: where it is.
        table: with features.
        now: the moment.
        version: of the table; None: the newest.

    Raises:
        OnlineError: the table does not exist yet, or is published faster than it can be looked at.
    """
    features, said = FeatureSet.of(table), table.features
    assert said is not None
    # Of a long history only the days that may be served: a stream looks every few seconds.
    near = days_between((now - said.ttl).date() - timedelta(days=1), now.date())
    served = [day for day in near if said.is_online(day, now)]
    snapshot, other = _seen(lake, table, version, served)
    rows = snapshot.rows_by_day(table.day_column)
    usable = [day for day in served if day in rows]
    return Source(
        table,
        features,
        snapshot,
        [day for day in usable if day not in other],
        sum(number for day, number in rows.items() if said.valid_until(day) < now),
        sorted(other & set(usable)),
        now,
    )


def _seen(lake: Lake, table: Table, version: int | None, days: Collection[date]) -> tuple[Snapshot, set[date]]:
    """A version of a table and those of some days that other code has made, of one state of its log."""
    for _ in range(10):
        newest = lake.snapshot(table.id)
        other = older_code(lake.settings.root, table.id, table.code_version, days)
        if lake.snapshot(table.id).version == newest.version:
            found = newest if version in (None, newest.version) else lake.snapshot(table.id, version)
            if not found.exists:
                raise OnlineError(
                    f"{table.id} has no rows yet. Build it: "
                    f"lakehouse backfill --select '+{table.id}' --from DAY --to DAY"
                )
            return found, set(chain.from_iterable(other.values()))
    raise OnlineError(f"{table.id} is published faster than it can be looked at; try again.")


def load(
    lake: Lake,
    url: str,
    table: Table,
    now: datetime,
    *,
    whole: bool = True,
    only: Collection[date] | None = None,
    told: Callable[[str], object] = lambda _: None,
) -> Loaded:
    """Put the newest usable row of each entity into the store, and take out what Delta has no more.

    Args:
        lake: with an engine.
        url: of Redis; it may hold a password, and is shown to nobody.
        table: with features.
        now: the lake's moment; rows that may not be used then are not written.
        whole: `now` is the present, so that nothing later is known; else rows of later days in the store stay.
        only: rows of these days alone, as of a backfill: older rows than those in the store are passed over, and
            nothing is taken out.
        told: called where it begins again.

    Raises:
        OnlineDownError: Redis does not answer; the same call goes on.
        OnlineRefusedError: it does, and does not take the rows: it is full, say.
        OnlineError: Redis was started again or emptied each time, or is full and pushed keys out, or holds rows of
            another table of this name, or of later versions than the table has.
    """
    began = time.perf_counter()
    with opened(url) as store:
        for attempt in range(1, ATTEMPTS + 1):
            held, pushed_out = store.holding(), store.pushed_out()
            source = source_of(lake, table, now)
            made = _once(lake, url, store, source, whole=whole, only=only)
            if store.holding() == held:
                store.refuse_pushed_out(table.id, pushed_out)
                return replace(made, attempts=attempt, seconds=time.perf_counter() - began)
            told(f"Redis was started again, or emptied, while {table.id} was loaded: the load begins again.")
    raise OnlineError(
        f"Redis was started again, or emptied, in each of {ATTEMPTS} loads of {table.id}: see its log. One that is "
        "full pushes rows out, unless its maxmemory-policy is noeviction."
    )


def _once(
    lake: Lake, url: str, store: OnlineStore, source: Source, *, whole: bool, only: Collection[date] | None
) -> Loaded:
    version, features = source.snapshot.version, source.features
    assert source.snapshot.metadata is not None
    known = None if only is not None else EVERYTHING if whole else milliseconds(source.now)
    newest = version
    if known is not None:
        newest = store.begin(features, version, known, str(source.snapshot.table_id))
        if newest > version:  # loaded by a later run, or before the table was put back
            _refuse_older_copy(source, newest, open_snapshot(lake.path(source.table.id)).version)
    days = [day for day in source.days if only is None or day in only]
    made = Put()
    if days:
        files = source.snapshot.by_day(source.table.day_column)
        plan_for(lake.spark, lake.settings, sum(file.size for day in days for file in files.get(day, ())))
        rows = newest_rows(lake, source, days)
        # The end of a day is a moment that was chosen, and stands still. Redis' clock goes on: by it, rows that may be
        # used at that moment would be gone soon, and those of the last moment at once.
        shift = None if source.now == end_of(source.now.date() - _DAY) else store.now() - milliseconds(source.now)
        made = _written(rows, url, source, known, shift)
    oldest = milliseconds(source.now - features.ttl)
    removed = store.sweep(features, version, known, oldest) if known is not None else 0
    return Loaded(
        source.table.id, version, made, removed, source.expired, source.other_code, superseded=newest > version
    )


def _refuse_older_copy(source: Source, loaded: int, newest: int) -> None:
    """Refuse a table that was put back from a copy: of what Redis has of later versions, none could be told apart.

    Args:
        source: what is loaded.
        loaded: newest version that was ever loaded.
        newest: of the table; a later load than this one may have seen a later version than `source`.

    Raises:
        OnlineError: the table does not have the version that was loaded.
    """
    if loaded > newest:
        raise OnlineError(
            f"Redis has rows of version {loaded} of {source.table.id}, whose newest version is {newest}: the table was "
            "put back from an older copy. Load it from nothing before it is built further: "
            f"lakehouse online rebuild {source.table.id}"
        )


def newest_rows(lake: Lake, source: Source, days: Collection[date]) -> DataFrame:
    """The newest row of each entity within some days: key columns, features, and the day last."""
    features, day = source.features, source.table.day_column
    rows = lake.read(source.table, days, source.snapshot)
    key = [F.col(quoted(name)) for name in features.key]
    kept = [F.col(quoted(name)) for name in (*features.columns, day)]
    if len(days) == 1:  # a day has one row of each entity
        return rows.select(*key, *kept)
    found = rows.groupBy(*key).agg(F.max_by(F.struct(*kept), F.col(quoted(day))).alias("_row"))
    return found.select(*key, "_row.*")


def _written(rows: DataFrame, url: str, source: Source, known: int | None, shift: int | None) -> Put:
    """Write each partition where it is; only counts come back."""
    from pyspark.errors import PySparkException

    features, version = source.features, source.snapshot.version
    counts = rows.mapInArrow(_writer(url, features, version, known, shift), _COUNTS)
    try:
        [total] = counts.agg(
            *[F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("written", "same", "older")]
        ).collect()
    except PySparkException as error:
        if (found := told_by_workers(str(error))) is not None:
            raise found from None
        # Its text may quote values of rows.
        raise EngineError(
            f"{source.table.id} could not be loaded: {type(error).__name__}. See the engine's log."
        ) from None
    return Put(total["written"], total["same"], total["older"])


def _writer(
    url: str, features: FeatureSet, version: int, known: int | None, shift: int | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What is done where the rows are; it holds the address, which goes to the workers and to no log."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        done = Put()
        with opened(url) as store:
            for batch in batches:
                done += store.put(features, packed(features, batch, version, shift), version, known)
        yield pa.RecordBatch.from_pydict({name: [number] for name, number in done.__dict__.items()})

    return write


def packed(
    features: FeatureSet, batch: pa.RecordBatch, version: int, shift: int | None
) -> Iterator[tuple[str, int, bytes]]:
    """Rows as the store takes them.

    Args:
        features: whose rows they are.
        batch: key columns, features, and the day.
        version: of the Delta table.
        shift: milliseconds from the lake's moment to the present; None: that moment stands still, and no row goes.
    """
    columns = [column.to_pylist() for column in batch.columns]
    keys, ttl = len(features.key), features.ttl
    for row in zip(*columns, strict=True):
        valid = end_of(row[-1])
        # The last moment is included, and Redis removes at the moment itself.
        yield (
            features.redis_key(row[:keys]),
            NEVER if shift is None else milliseconds(valid + ttl) + 1 + shift,
            features.pack(milliseconds(valid), version, row[keys:-1]),
        )


def rebuild(
    lake: Lake,
    url: str,
    table: Table,
    now: datetime,
    *,
    whole: bool = True,
    told: Callable[[str], object] = lambda _: None,
) -> Loaded:
    """Forget what the store has of a table, and load it from nothing; meanwhile rows are missing.

    Args:
        lake: with an engine.
        url: of Redis.
        table: with features.
        now: as of `load`.
        whole: as of `load`.
        told: as of `load`.
    """
    with opened(url) as store:
        store.drop(FeatureSet.of(table))
    return load(lake, url, table, now, whole=whole, told=told)
