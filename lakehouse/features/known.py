"""What readers of a table saw at a time: from when to when each of its files was live, by the table's log.

A label of a time may be joined with what was published by then, and with nothing that came later: late rows and
corrections are other files. Times at which something changed cut history into spans, within which all labels see the
same files. A table's rows are read once, however many spans there are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse.contracts import Table
from lakehouse.days import micros_of
from lakehouse.delta.files import DataFile
from lakehouse.delta.log import entries, gone_files, oldest_entry, snapshot_at
from lakehouse.errors import HistoryGoneError
from lakehouse.lazy import F, T
from lakehouse.read.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SPAN = "_span"


@dataclass(frozen=True)
class Life:
    """A file, and when readers saw it: `first` inclusive, `end` exclusive; None: it is live still."""

    file: DataFile
    first: datetime
    end: datetime | None


def lives(path: Path, version: int, day_column: str, days: Collection[date], since: datetime) -> list[Life]:
    """The files of some days that readers saw at a time or later.

    Args:
        path: folder of the table.
        version: the newest that counts.
        day_column: its partition column.
        days: of the files.
        since: the first time that is asked for.

    Raises:
        HistoryGoneError: for a time before the log begins whose older entries were cleaned up.
    """
    oldest = oldest_entry(path)
    log = list(entries(path, oldest, version, (day_column,)))
    # Clocks differ, so a commit may be stamped before the one it follows. Readers saw a version from the earliest time
    # that it or a later one is stamped with.
    seen = list(accumulate((each.time for each in reversed(log)), min))[::-1]
    base = bisect_right(seen, since) - 1
    if base < 0 and oldest > 0:
        raise HistoryGoneError(
            f"{path.parent.name}.{path.name} cannot be read as it was known at {since:%Y-%m-%dT%H:%M:%SZ}: its log "
            f"begins with version {oldest}, of {seen[0]:%Y-%m-%dT%H:%M:%SZ}; older entries were cleaned up. Take "
            "labels from then on, or leave out --as-known-then."
        )
    wanted = {each.isoformat() for each in days}
    live: dict[str, tuple[DataFile, datetime]] = {}
    if base >= 0:
        live = {each.path: (each, seen[base]) for each in snapshot_at(path, log[base].version).files}
    ended: list[Life] = []
    for entry, moment in zip(log[base + 1 :], seen[base + 1 :], strict=True):
        ended += [Life(*live.pop(name), moment) for name in entry.removed.keys() & live.keys()]
        live |= {name: (each, moment) for name, each in entry.added.items()}
    found = [*ended, *(Life(*each, None) for each in live.values())]
    # Of two commits in one millisecond nobody saw the first.
    return [each for each in found if each.file.partition[0] in wanted and each.first != each.end]


def times(found: Iterable[Life]) -> list[datetime]:
    """The times at which what readers saw became another, in order."""
    return sorted({each for life in found for each in (life.first, life.end) if each is not None})


def span_of(moment: Column, cuts: Sequence[datetime]) -> Column:
    """The number of the span that a time is in: how many cuts there are by then."""
    if not cuts:
        return F.lit(0)
    # One text rather than a node of the plan for each: there may be thousands.
    listed = F.split(F.lit(",".join(str(micros_of(each)) for each in cuts)), ",").cast("array<bigint>")
    return F.size(F.filter(listed, lambda each: each <= F.unix_micros(moment)))


def read_lives(
    lake: Lake, table: Table, version: int, found: Sequence[Life], spans: Mapping[str, list[int]]
) -> DataFrame:
    """The rows of some files, each once for every span that it was live in.

    Args:
        lake: where the table is.
        table: its contract.
        version: the newest that counts.
        found: files and when they were live.
        spans: by path of a file the spans that labels need it in.

    Raises:
        HistoryGoneError: for a file that a vacuum has removed.
    """
    path = lake.path(table.id)
    needed = [each for each in found if spans.get(each.file.path)]
    if gone := gone_files(path, [each.file for each in needed]):
        # Of what replaced them, which other labels need, files may be gone as well.
        all_gone = {each.path for each in gone_files(path, [each.file for each in found])}
        last = max(each.end for each in found if each.end and each.file.path in all_gone)
        raise HistoryGoneError(
            f"{table.id} cannot be read as it was known then: a vacuum or `lakehouse forget` has removed {len(gone)} "
            f"of {len(needed)} files. Labels from {last:%Y-%m-%dT%H:%M:%SZ} on need none of them; or leave out "
            "--as-known-then."
        )
    if not needed:
        return lake.read(table, (), lake.snapshot(table.id)).withColumn(SPAN, F.lit(0))
    schema = T.StructType(
        [T.StructField("_path", T.StringType()), T.StructField("_spans", T.ArrayType(T.IntegerType()))]
    )
    by_file = lake.spark.createDataFrame([(each.file.path, spans[each.file.path]) for each in needed], schema)
    place = F.col("_metadata.file_path")
    rows = lake.read_files(table, snapshot_at(path, version), [each.file for each in needed])
    rows = rows.withColumn("_path", F.substring_index(place, f"/{table.name}/", -1))
    return rows.join(F.broadcast(by_file), "_path").withColumn(SPAN, F.explode("_spans")).drop("_path", "_spans")
