"""Tables of the lakehouse about itself, `ops.…`: rows are added by commits like those of any table, without an engine.

Each is partitioned by its first column: most by the table that its rows are about.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse import store
from lakehouse.delta.commit import append, append_batch, ensure_table
from lakehouse.delta.maintenance import Compactable, compact, mergeable
from lakehouse.delta.snapshot import Snapshot
from lakehouse.delta.staged import VALID, StagedFile, new_path, read_staged
from lakehouse.delta.target import Commit, Target
from lakehouse.lazy import T
from lakehouse.read.lake import table_path
from lakehouse.store import parquet

_LAST = (1 << 63) - 1
_EPOCH = datetime.fromtimestamp(0, UTC)
OPS = "ops"
TABLE_ID = "table_id"  # column of rows that speak of versions: of which log these are
MOST_TRIES = 20  # tries of a projection, each of which sees what another process has written meanwhile
MOST_FILES = 16  # of one partition; more are merged, for every run opens them several times
FULL = 1 << 20  # bytes of a file that stays as it is: a stream adds rows every second, and would merge all of them anew


def ops_target(root: Path, name: str, schema: T.StructType, description: str) -> Target:
    """The table `ops.…` as a commit needs to know it.

    Args:
        root: of the lakehouse.
        name: `ops.…`.
        schema: its columns; the first is the partition column.
        description: one line for its log.
    """
    return Target(table_path(root, name), schema, (schema.names[0],), description=description)


def ops_tables(root: Path) -> list[str]:
    """Every table `ops.…` that there is, by name."""
    folders = store.listed(root / "tables" / OPS)
    return [f"{OPS}.{folder.name}" for folder in folders if store.exists(folder / "_delta_log")]


def add_rows(
    target: Target,
    about: str,
    rows: Sequence[Mapping[str, Any]],
    transactions: Mapping[str, int],
    *,
    after: Snapshot | None = None,
    most_files: int = MOST_FILES,
) -> None:
    """Append rows of one partition; a repeat of the same transactions is a no-op.

    Args:
        target: as `ops_target` gives it.
        about: the value of their first column: as a rule, `layer.name` of a table.
        rows: by column, without the first; maps as lists of pairs. Without any, only the transactions are set.
        transactions: see `commit.append`.
        after: what the rows go on from, likewise.
        most_files: of the partition; from so many on they are merged.

    Raises:
        PublishConflictError: where rows of the same transactions came after `after`.
    """
    base = ensure_table(target) if after is None else after
    folder = target.path / "staged" / uuid.uuid4().hex
    files: list[StagedFile] = []
    if rows:
        from pyspark.sql.pandas.types import to_arrow_schema

        # Staged like rows of any table, so that the same gate looks at them.
        path = new_path(folder, VALID, target.partition_by, [about])
        stored = to_arrow_schema(T.StructType(target.schema.fields[1:]), timezone="UTC")
        parquet.write(pa.Table.from_pylist(list(rows), schema=stored), path)
        files = read_staged(folder, target.partition_by)
    if after is None:
        append(target, files, Commit(transactions))
    else:
        append_batch(target, after, files, Commit(transactions))
    # After the append, and by the base before it: one file too many is no harm, and the next append sees it.
    if mergeable(base.of(about), FULL) >= most_files:
        compact(Compactable(target.path, target.schema, full=FULL))


def position(projected: Snapshot, about: str, of: Snapshot) -> int | None:
    """Up to which version of a table's log rows about it were added; None where none were.

    A table that was moved away and built anew has a log that begins again, so each log has a position of its own.

    Args:
        projected: the table `ops.…`.
        about: `layer.name`.
        of: the table that the rows are about.
    """
    return projected.transaction(position_name(about, of))


def position_name(about: str, of: Snapshot) -> str:
    """The transaction that holds a `position`."""
    return f"{about}/{of.table_id}"


def newest_about(
    snapshot: Snapshot,
    about: str,
    table_id: str,
    days: Collection[date] | None = None,
    columns: Sequence[str] | None = None,
    up_to: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Of each day and operation the row of the newest version, and perhaps older ones: the newest of each file.

    A stream commits every second, and asks several times for what it said last: so what a file has is kept, and a day's
    rows are never all made objects of.

    Args:
        snapshot: a table whose rows have `day`, `operation` and `version`.
        about: the partition.
        table_id: only rows of this log, see `position`.
        days: only these.
        columns: what is read of the rows, with those three. None: all.
        up_to: of versions up to this one.
    """
    if days is not None and not days:
        return
    asked = None if days is None else tuple(sorted(set(days)))
    read = None if columns is None else tuple(columns)
    find = _newest_in if asked is read is None else _newest_kept  # all of everything is not kept
    for file in snapshot.of(about):
        path = Path(snapshot.uri) / file.path
        found = find(path, table_id, asked, read)
        if up_to is not None and any(row["version"] > up_to for row in found):
            found = _newest_in(path, table_id, asked, read, up_to)
        yield from found


def _newest_in(
    path: Path,
    table_id: str,
    days: tuple[date, ...] | None,
    columns: tuple[str, ...] | None,
    up_to: int | None = None,
) -> Sequence[dict[str, Any]]:
    rows = _read(path, columns, days, table_id=table_id)
    if up_to is not None:
        rows = rows.filter(pc.less_equal(rows["version"], up_to))
    if rows.num_rows > 1:
        keys = ("day", "operation")
        rows = rows.take(pc.sort_indices(rows, [(name, "ascending") for name in (*keys, "version")]))
        differs = [pc.not_equal(rows[name].slice(1), rows[name].slice(0, rows.num_rows - 1)) for name in keys]
        ends = pa.concat_arrays([pc.or_(*differs).combine_chunks(), pa.array([True])])
        rows = rows.filter(ends)
    return tuple(_dicts(rows))


_newest_kept = lru_cache(maxsize=512)(_newest_in)  # files never change


def rows_about(
    snapshot: Snapshot,
    about: str | None = None,
    days: Collection[date] | None = None,
    columns: Sequence[str] | None = None,
    after: int | None = None,
    table_id: str | None = None,
) -> Iterable[dict[str, Any]]:
    """The rows of one partition or (None) of all, of some days or of all, in no order; maps as lists of pairs.

    Args:
        snapshot: the table of the rows.
        about: the partition.
        days: only these.
        columns: what is read of the rows; with `days`, `day` is one of them. None: all.
        after: only of versions after this one; None: of all. `version` is then one of the columns.
        table_id: only of this log, see `position`; None: of any.
    """
    if days is not None and not days:
        return
    asked = None if days is None else sorted(set(days))
    for file in snapshot.live if about is None else snapshot.of(about):
        yield from _dicts(_read(Path(snapshot.uri) / file.path, columns, asked, after, table_id))


def _read(
    path: Path,
    columns: Sequence[str] | None,
    days: Sequence[date] | None,
    after: int | None = None,
    table_id: str | None = None,
) -> pa.Table:
    """The rows of a file, of some days, of versions after one and of one log; days are sorted."""
    if table_id is not None and columns is not None:
        columns = (*columns, TABLE_ID)
    between = ("day", days[0], days[-1]) if days else None if after is None else ("version", after, _LAST)
    rows = parquet.read(path, columns, between)
    if days is not None:
        rows = rows.filter(pc.is_in(rows["day"], pa.array(days, pa.date32())))
    if after is not None:
        rows = rows.filter(pc.greater(rows["version"], after))
    if table_id is None:
        return rows
    # Rows that do not say of which log they are come from code that did not keep it, and are added again.
    return rows.filter(pc.equal(rows[TABLE_ID], table_id)) if TABLE_ID in rows.column_names else rows.slice(0, 0)


def _dicts(rows: pa.Table) -> Iterator[dict[str, Any]]:
    columns = [_values(rows[name].combine_chunks()) for name in rows.column_names]
    yield from (dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True))


def _values(column: pa.Array) -> list[Any]:
    """As `to_pylist`, which takes ten times as long of maps and moments: the report reads 40,000 rows of them."""
    if pa.types.is_map(column.type) and not column.null_count:
        pairs = list(zip(_values(column.keys), _values(column.items), strict=True))
        return [pairs[begin:end] for begin, end in pairwise(column.offsets.to_pylist())]
    if pa.types.is_timestamp(column.type) and column.type.unit == "us" and column.type.tz == "UTC":
        ticks = column.cast(pa.int64()).to_pylist()
        return [None if each is None else _EPOCH + timedelta(microseconds=each) for each in ticks]
    found: list[Any] = column.to_pylist()
    return found
