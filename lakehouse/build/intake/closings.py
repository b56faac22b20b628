"""When the hours of a stream were closed, kept in the log of its table, and what a transform is shown of it.

An hour is closed by the first batch whose watermark is at its end plus the allowed lateness, or later. Of all
watermarks only the first in each hour can have closed anything, since the bounds are full hours: that one is kept, with
the newest arrival that had been taken by then. Both are application transactions of the batch's own commit: they are
there with the rows or not at all, checkpoints keep them when the entries of the log are cleaned away, and a restore
takes them back. There are at most two for each hour of the stream's life, and none is ever changed; so whatever is
built from rows and log again, and whenever, comes out the same.

A stream that took messages before this was kept has one such watermark without an arrival: nobody knows when the hours
before it were closed, and they stay as if no stream had closed them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, NamedTuple

from lakehouse.build.intake.ends import Ends
from lakehouse.contracts import Input
from lakehouse.contracts.table import CLOSING
from lakehouse.days import micros_of
from lakehouse.delta.snapshot import Snapshot
from lakehouse.lazy import F, T
from lakehouse.read.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HOUR = 3_600_000_000
_CLOSED_AT, _CAME_AFTER = CLOSING
_TAKEN = "_taken_then"


class Closing(NamedTuple):
    """An hour that is closed; all in microseconds.

    Attributes:
        hour: its start.
        watermark: that closed it.
        arrived: the newest arrival that had been taken by then.
    """

    hour: int
    watermark: int
    arrived: int


@dataclass(frozen=True)
class Closings:
    """The first watermark of each hour that a stream's watermark was in, in order.

    Attributes:
        hours: since 1970, which ones.
        watermarks: in microseconds.
        arrived: the newest arrival taken by then, in microseconds; None where nobody knows.
    """

    hours: Sequence[int] = ()
    watermarks: Sequence[int] = ()
    arrived: Sequence[int | None] = ()

    def of(self, day: date, after: timedelta) -> list[Closing]:
        """The hours of a day that are closed, and known to be since when.

        Args:
            day: UTC.
            after: full hours from an hour's end to when it may be closed.
        """
        first = micros_of(datetime.combine(day, time(), UTC)) // _HOUR
        found = []
        for hour in range(first, first + 24):
            at = bisect_left(self.hours, hour + 1 + after // timedelta(hours=1))
            if at < len(self.hours) and (arrived := self.arrived[at]) is not None:
                found.append(Closing(hour * _HOUR, self.watermarks[at], arrived))
        return found


def closings_of(snapshot: Snapshot, source: str) -> Closings:
    """What the log of a table with a topic has kept.

    Args:
        snapshot: of the table.
        source: of its topic.
    """
    prefix, found, arrived = _name(source, "watermark"), dict[int, int](), dict[int, int]()
    for name, value in snapshot.transactions().items():
        if name.startswith(prefix):
            found[value // _HOUR] = value
        elif name.startswith(_name(source, "arrived")):
            arrived[_numbered(name)] = value
    hours = sorted(found)
    return Closings(hours, [found[hour] for hour in hours], [arrived.get(hour) for hour in hours])


def closed_by(before: Ends, after: Ends, source: str, *, known: bool) -> Mapping[str, int]:
    """What a batch adds to what is kept, as application transactions: mostly nothing.

    Args:
        before: where the last batch ended.
        after: where this one does.
        source: of the topic.
        known: whether anything was kept before.
    """
    made: dict[str, int] = {}
    last = None if before.watermark is None else before.watermark // _HOUR
    if before.watermark is not None and not known:
        made |= _kept(source, before.watermark)
    if after.watermark is not None and after.watermark // _HOUR != last:
        made |= _kept(source, after.watermark, after.arrived or 0)
    return made


def parts_of(closings: Iterable[Closing]) -> str:
    """Closed hours as a text, for a fingerprint."""
    return ",".join(f"{hour}:{watermark}:{arrived}" for hour, watermark, arrived in closings)


def closings_read(lake: Lake, each: Input, snapshot: Snapshot) -> Closings:
    """What the log of an input says of closed hours; nothing where the input does not ask for it."""
    topic = lake.table(each.table).topic
    return Closings() if each.hours_close_after is None or topic is None else closings_of(snapshot, topic.source)


def input_rows(
    lake: Lake, each: Input, days: Collection[date], snapshot: Snapshot, paths: Collection[str] | None = None
) -> DataFrame:
    """What a transform reads of an input: the rows of some days, with when their hours were closed where it asks.

    Args:
        lake: where the tables are.
        each: the input.
        days: of the input.
        snapshot: its version.
        paths: only of these files; None: of all.
    """
    rows = lake.read(lake.table(each.table), days, snapshot, paths)
    if each.hours_close_after is None:
        return rows
    found = closings_read(lake, each, snapshot)
    return with_closings(lake, rows, [hour for day in days for hour in found.of(day, each.hours_close_after)])


def input_schema(lake: Lake, each: Input) -> T.StructType:
    """The columns of `input_rows`."""
    return with_closing(each, lake.table(each.table).schema)


def with_closing(each: Input, schema: T.StructType) -> T.StructType:
    """The columns of an input's table, and those that it asks for beside them."""
    if each.hours_close_after is None:
        return schema
    kinds = (T.TimestampType(), T.BooleanType())
    more = [T.StructField(name, kind, True) for name, kind in zip(CLOSING, kinds, strict=True)]
    return T.StructType([*schema.fields, *more])


def with_closings(lake: Lake, rows: DataFrame, closings: Sequence[Closing]) -> DataFrame:
    """Messages with the watermark that closed the hour of their event time, and whether they came after that.

    Args:
        lake: whose engine makes the columns.
        rows: of a table with a topic.
        closings: the closed hours.
    """
    from lakehouse.build.recompute import frame_of  # which needs Spark; most of this is read without

    names = ("_hour", _CLOSED_AT, _TAKEN)
    schema = T.StructType([T.StructField(name, T.TimestampType()) for name in names])
    # As data of a join, not as literals: there is a new hour each hour, and the engine would compile anew for each.
    hours = frame_of(lake, schema, [dict(zip(names, each, strict=True)) for each in closings])
    joined = rows.join(F.broadcast(hours), F.date_trunc("hour", F.col("_event_at")) == F.col("_hour"), "left")
    return joined.withColumn(_CAME_AFTER, F.col("_arrived_at") > F.col(_TAKEN)).drop("_hour", _TAKEN)


def _name(source: str, what: str) -> str:
    return f"closed/{source}/{what}/"


def _numbered(name: str) -> int:
    return micros_of(datetime.fromisoformat(f"{name.rpartition('/')[2]}:00+00:00")) // _HOUR


def _kept(source: str, watermark: int, arrived: int | None = None) -> dict[str, int]:
    hour = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=watermark // _HOUR)
    named = {"watermark": watermark, "arrived": arrived}
    return {f"{_name(source, n)}{hour:%Y-%m-%dT%H}": number for n, number in named.items() if number is not None}
