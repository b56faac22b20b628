"""Staged Parquet files: what a write left on disk, read from the footers alone."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from lakehouse import store
from lakehouse.delta.files import DataFile
from lakehouse.errors import StagedFileError
from lakehouse.store import parquet

ROUTE = "route"
VALID, QUARANTINED = "valid", "quarantined"
UNSEEN = ("_raw", "_error", "_rescued")  # may hold what their columns hide: no bounds, in no output
REPEATED = "repeated"  # one row a key that another day's row comes before: it is counted, and read by nobody
ROUTES = (VALID, QUARANTINED, REPEATED)
COPIES = "_copies"
CONTENT = "_content"
BESIDE = (COPIES, CONTENT)  # of staged files, not of tables
FAILED_RULES = "_failed_rules"
# Attempts of tasks write aside, and the driver moves what it takes from them. By version 2, which an engine may have
# been told, they write where they are read: of a task that died and one that took its place, both would be.
IN_TWO_STEPS = {"mapreduce.fileoutputcommitter.algorithm.version": "1"}
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_LONGEST_STATISTIC = 64  # characters; a longer bound would be cut, and a cut maximum is wrong


@dataclass(frozen=True)
class StagedFile:
    """One staged file with what its footer says."""

    path: Path
    route: str
    partition: Mapping[str, str | None]
    rows: int
    size: int
    nulls: Mapping[str, int]
    low: Mapping[str, Any]
    high: Mapping[str, Any]
    types: Mapping[str, str]


def name_routes(folder: Path) -> None:
    """Call the folders of the routes by their names alone, once an engine has written them as `route=…`.

    The files become a table's where they are, and readers such as Polars take every `…=…` of a path for a partition
    column: they refuse a table that has no column `route`.

    Args:
        folder: the stage folder, as the engine has left it.
    """
    for route in ROUTES:
        written = folder / f"{ROUTE}={route}"
        if store.is_folder(written):
            with suppress(PermissionError):  # somebody else's, as where a cluster has a user of its own: it stays so
                store.move(written, folder / route)


def read_staged(folder: Path, partition_by: Sequence[str], expected: int | None = None) -> list[StagedFile]:
    """Every Parquet file below a stage folder that the driver has put there, sorted by path.

    Attempts of tasks write below `_temporary`, one that is taken for dead perhaps still: those files are nobody's.

    Args:
        folder: the stage folder, partitioned by route and then by the table's partition columns.
        partition_by: the table's partition columns.
        expected: how many rows were written there; None: not known.

    Raises:
        StagedFileError: the files hold another number of rows than were written, or one is no whole Parquet file.
        OSError: a folder cannot be listed, or there is none; it must not pass for an empty one.
    """
    if not store.is_folder(folder):
        raise FileNotFoundError(f"{folder} is not there.")
    entries = [each for each in store.listed(folder) if not each.name.startswith((".", "_"))]
    if strange := [each for each in entries if _route(each.name) not in ROUTES]:
        raise StagedFileError(f"{folder} is no stage folder: {strange[0].name} is in it. Run the partition again.")
    found = (path for route in entries for path in store.walk(route))
    paths = sorted(p for p in found if p.suffix == ".parquet" and not p.name.startswith((".", "_")))
    with ThreadPoolExecutor(max_workers=min(8, (os.cpu_count() or 1) * 2)) as pool:
        files = list(pool.map(lambda path: _read(path, folder, partition_by), paths))
    if expected is not None and (found_rows := sum(file.rows for file in files)) != expected:
        raise StagedFileError(
            f"The engine wrote {expected} row(s) to {folder}, but the files there hold {found_rows}. Nothing was "
            "published. Every executor must see the lakehouse's folder, by the same path: `lakehouse doctor` looks."
        )
    return files


def clear(folder: Path) -> None:
    """Remove what is never committed: the folder of the moved quarantine files, Spark's markers.

    Files of days that failed stay until the next vacuum, like those of a crashed run: no reader sees them.
    """
    for child in store.listed(folder):
        if not store.is_folder(child):
            store.delete(child)
        elif _route(child.name) != VALID:
            store.delete_tree(child)


def _read(path: Path, folder: Path, partition_by: Sequence[str]) -> StagedFile:
    first, *parts = path.relative_to(folder).parts[:-1]
    # In a column's name special characters are escaped as in its value.
    values = {unquote(name): value_of_folder(text) for name, _, text in (part.partition("=") for part in parts)}
    return staged_file(path, {name: values[name] for name in partition_by}, _route(first))


def _route(folder: str) -> str:
    return folder.removeprefix(f"{ROUTE}=")


def value_of_folder(text: str) -> str | None:
    """A partition value as a folder's name has it, behind `column=`: special characters are escaped there."""
    return None if text == HIVE_NULL else unquote(text)


def staged_file(path: Path, partition: Mapping[str, str | None], route: str = VALID) -> StagedFile:
    """One Parquet file by its footer.

    Args:
        path: of the file.
        partition: its partition values as text, by column.
        route: `valid`, `quarantined` or `repeated`.

    Raises:
        StagedFileError: where it is no whole Parquet file.
    """
    try:
        footer = parquet.footer(path)
    except Exception as error:
        raise StagedFileError(f"The staged file {path} cannot be read ({error}); run the partition again.") from error
    nulls: dict[str, int] = {}
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    types: dict[str, str] = {}
    for index in range(footer.num_columns):
        name = footer.schema.column(index).path
        if "." in name:  # a part of a nested column
            continue
        types[name] = _type_name(footer.schema.column(index))
        counted, bounds = _told(footer, index)
        if counted is not None:
            nulls[name] = counted
        if bounds is not None:
            low[name], high[name] = bounds
    # The size is what the disk says now; the gate compares it again just before the commit.
    found = store.stat(path)
    size = found.size if found else -1  # -1: gone meanwhile, which the gate refuses
    return StagedFile(path, route, partition, footer.num_rows, size, nulls, low, high, types)


def live_file(folder: Path, partition_by: Sequence[str], file: DataFile, route: str = VALID) -> StagedFile:
    """A file that a table's log names, by its footer.

    Args:
        folder: of the table.
        partition_by: its partition columns.
        file: as the log has it.
        route: of its rows.

    Raises:
        StagedFileError: where it is no whole Parquet file.
    """
    return staged_file(folder / file.path, dict(zip(partition_by, file.partition, strict=True)), route)


@lru_cache(maxsize=4096)
def known_file(folder: Path, partition_by: tuple[str, ...], file: DataFile, route: str = VALID) -> StagedFile:
    """As `live_file`, and kept: of a day that a stream adds to, every turn asks for all its files."""
    return live_file(folder, partition_by, file, route)


def _told(footer: parquet.Footer, index: int) -> tuple[int | None, tuple[Any, Any] | None]:
    """Nulls and bounds of a column over all row groups; None where one group does not say them.

    A group of nulls alone has no bounds and takes nothing from those of the others.
    """
    nulls = 0 if footer.num_row_groups else None
    found: list[tuple[Any, Any]] = []
    is_bounded = True
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(index)
        stats = chunk.statistics
        if stats is None or not stats.has_null_count:
            # One group without a count makes the sum unknown: a statistic that is too small would make readers skip
            # rows.
            return None, None
        nulls = (nulls or 0) + stats.null_count
        if (bounds := _bounds(stats)) is not None:
            found.append(bounds)
        elif stats.null_count < chunk.num_values:
            is_bounded = False
    if not found or not is_bounded:
        return nulls, None
    return nulls, (min(low for low, _ in found), max(high for _, high in found))


def _bounds(stats: Any) -> tuple[Any, Any] | None:
    """Smallest and largest value, where the footer has them and Python has such values (years have four digits)."""
    try:
        return (stats.min, stats.max) if stats.has_min_max else None
    except (ValueError, OverflowError):  # UnicodeDecodeError and Arrow's errors among them
        return None


def _type_name(column: Any) -> str:
    logical = str(column.logical_type)
    return column.physical_type if logical == "None" else logical


def delta_statistics(file: StagedFile, columns: Sequence[str], hidden: Sequence[str]) -> str:
    """The `stats` of a Delta add action: rows, nulls and bounds, without any column of `hidden` (personal data).

    Of columns that hold what arrived as it arrived, nulls are counted but there are no bounds.

    Timestamps are cut to milliseconds, as the log stores them, with the maximum rounded up so that it still bounds.

    Args:
        file: with null counts and bounds from its footer.
        columns: those of the table.
        hidden: columns of which nothing is said.
    """
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    for name in columns:
        if name in hidden or name in UNSEEN or name not in file.low:
            continue
        bounds = _bound(file.low[name], up=False), _bound(file.high[name], up=True)
        if None not in bounds:
            low[name], high[name] = bounds
    nulls = {name: file.nulls[name] for name in columns if name in file.nulls and name not in hidden}
    return json.dumps({"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def _bound(value: Any, up: bool) -> Any:
    match value:
        case bool() | float() | bytes():
            return None  # NaN and truncation make such bounds unsafe, and no reader needs them
        case int():
            return value
        case Decimal():
            number = float(value)
            return number if Decimal(repr(number)) == value else None
        case datetime():
            moment = value.astimezone(UTC) if value.tzinfo else value
            cut = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
            if up and cut != moment:
                try:
                    cut += timedelta(milliseconds=1)
                except OverflowError:
                    return None  # the end of time has no later millisecond
            return cut.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
        case date():
            return value.isoformat()
        case str():
            return value if len(value) <= _LONGEST_STATISTIC else None
    return None


def new_path(folder: Path, route: str, partition_by: Sequence[str], values: Sequence[str | None]) -> Path:
    """A path for a new file of a partition, below a stage folder, as an engine would name it.

    Args:
        folder: the stage folder.
        route: `valid`, `quarantined` or `repeated`.
        partition_by: the table's partition columns.
        values: the partition's, in the same order.
    """
    parts = [
        f"{quote(name, safe=' _.-')}={HIVE_NULL if value is None else quote(value, safe=' _.-')}"
        for name, value in zip(partition_by, values, strict=True)
    ]
    return folder.joinpath(route, *parts, f"part-{uuid.uuid4().hex}.snappy.parquet")


def moved(file: StagedFile, folder: Path, *, keep: bool) -> StagedFile:
    """The file in another stage folder; where it is to be kept, it stays where it was too.

    Args:
        file: a staged file.
        folder: the other stage folder, of the same table or of its quarantine.
        keep: it stays where it was too: the next attempt may need it there.

    Raises:
        FileNotFoundError: where it is not there any more.
    """
    below = len(file.partition) + 2  # its route, its partition, its name
    path = folder.joinpath(*file.path.parts[-below:])
    if keep:
        store.link(file.path, path)
    else:
        store.move(file.path, path)
    return replace(file, path=path)
