"""Keeping tables tidy, by delta-rs alone: files nobody refers to are removed, small files of a partition are merged."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from deltalake import ColumnProperties, CommitProperties, PostCommitHookProperties, WriterProperties
from deltalake.exceptions import CommitFailedError
from filelock import FileLock, Timeout
from pyspark.sql import types as T

from lakehouse.errors import LakehouseError, PublishConflictError
from lakehouse.tables.durable import settle, settle_entries
from lakehouse.tables.log import entries, oldest_entry, version_before
from lakehouse.tables.snapshot import Snapshot, fresh_snapshot, open_snapshot

SHORTEST_RETENTION_HOURS = 24.0
"""Six times the longest run: a file younger than this may belong to a run that has not committed yet."""

MAX_ATTEMPTS = 5
LONGEST_WAIT_SECONDS = 600.0
_STAGED = "staged"
_LOCK = ".compaction.lock"  # on one machine; a table on shared storage is compacted from one place


class RetentionError(LakehouseError):
    """A retention so short that files of running jobs would be removed."""


@dataclass(frozen=True)
class Vacuumed:
    """Files of a table that no version within the retention refers to; removed unless it was a rehearsal."""

    files: Sequence[str] = ()
    size: int = 0
    folders: int = 0


@dataclass(frozen=True)
class Compacted:
    """What a compaction did; `version` is the table's newest one afterwards."""

    version: int
    files_before: int = 0
    files_after: int = 0
    partitions: int = 0
    attempts: int = 0


@dataclass(frozen=True)
class Layout:
    """What a compaction has to know of a table."""

    path: Path
    schema: T.StructType
    pii: Collection[str] = ()


def check_retention(hours: float) -> None:
    """Refuse a retention below `SHORTEST_RETENTION_HOURS`.

    Raises:
        RetentionError: with the shortest one.
    """
    if not hours >= SHORTEST_RETENTION_HOURS:
        raise RetentionError(
            f"A retention of {hours:g} h could remove files that a running job has staged but not committed; at least "
            f"{SHORTEST_RETENTION_HOURS:g} h are kept."
        )


def vacuum(path: Path, hours: float, *, dry_run: bool = False) -> Vacuumed:
    """Remove what the table's versions of the last `hours` do not need: replaced files, and orphans of crashed runs.

    Committed files, young files and other tables' files (a quarantine is a table of its own) are never touched. Older
    versions can no longer be read afterwards.

    Args:
        path: folder of the table; nothing happens where it was never built.
        hours: retention.
        dry_run: only list the files.

    Raises:
        RetentionError: where `hours` is below `SHORTEST_RETENTION_HOURS`.
        PublishConflictError: where other writers won every attempt; nothing was removed.
    """
    check_retention(hours)
    for _ in range(MAX_ATTEMPTS):
        with suppress(CommitFailedError):  # it logs what it is about to do, and does nothing where that loses a race
            return _vacuum(path, hours, dry_run=dry_run)
    raise PublishConflictError(
        f"{path}: other runs published during each of {MAX_ATTEMPTS} vacuums; nothing was removed. Vacuum again when "
        "fewer runs are on."
    )


def _vacuum(path: Path, hours: float, *, dry_run: bool) -> Vacuumed:
    snapshot = fresh_snapshot(path)
    if snapshot.delta is None:
        return Vacuumed()
    delta = snapshot.delta
    found = delta.vacuum(round(hours), dry_run=True, enforce_retention_duration=False, full=True)
    keep = _versions_in_danger(path, snapshot, hours, found)
    if keep:
        found = delta.vacuum(round(hours), True, False, full=True, keep_versions=keep)
    live = {file.path for file in snapshot.files}
    if wrong := [name for name in found if name in live]:
        raise LakehouseError(f"{path}: live files were about to be removed ({wrong[0]}, …); nothing was. Report this.")
    size = sum(_size(path / name) for name in found)
    if dry_run:
        return Vacuumed(found, size)
    if found:  # two commits are written even where there is nothing to do
        found = delta.vacuum(
            round(hours), dry_run=False, enforce_retention_duration=False, full=True, keep_versions=keep or None
        )
    return Vacuumed(found, size, _remove_empty_folders(path, found, time.time() - hours * 3600))


def _versions_in_danger(path: Path, snapshot: Snapshot, hours: float, found: Collection[str]) -> list[int]:
    """Versions of the last hours whose files a vacuum would remove; none, as a rule.

    Delta-rs knows when a file was replaced from its entry in the log. A checkpoint forgets those entries after
    `delta.deletedFileRetentionDuration` (a week, by default), and then only the file's own age counts.
    """
    before = version_before(path, datetime.now(UTC) - timedelta(hours=hours))
    first = max(oldest_entry(path), 0) if before is None else before
    holders: dict[str, list[int]] = {}
    live = {file.path for file in open_snapshot(path, first).files}
    doomed = set(found)
    for name in live & doomed:
        holders.setdefault(name, []).append(first)
    for entry in entries(path, first + 1, snapshot.version, ()):
        for name in doomed & entry.added.keys():
            holders.setdefault(name, []).append(entry.version)
    return sorted({version for versions in holders.values() for version in versions})


def compact(
    layout: Layout, *, dry_run: bool = False, values: Collection[str] | None = None, target_size: int | None = None
) -> Compacted:
    """Merge the files of each partition that has several; no row changes.

    A run that publishes one of these partitions meanwhile wins: the compaction starts over on what is there then.

    Args:
        layout: the table; nothing happens where it was never built.
        dry_run: only count the files.
        values: only partitions with one of these values of the first partition column; None: all.
        target_size: bytes of a merged file; None: as delta-rs has it.

    Raises:
        PublishConflictError: where other writers won every attempt.
    """
    if dry_run or not layout.path.is_dir():
        return _compact(layout, dry_run=True, values=values, target_size=target_size)
    # Of two compactions of the same files, delta-rs 1.6.6 lets both commit, and every row is there twice.
    try:
        with FileLock(layout.path / _LOCK, timeout=LONGEST_WAIT_SECONDS):
            return _compact(layout, dry_run=False, values=values, target_size=target_size)
    except Timeout as error:
        raise PublishConflictError(
            f"{layout.path}: another compaction has been running for {LONGEST_WAIT_SECONDS:g} s. Compact again later."
        ) from error


def _compact(layout: Layout, *, dry_run: bool, values: Collection[str] | None, target_size: int | None) -> Compacted:
    for attempt in range(1, MAX_ATTEMPTS + 1):
        snapshot = fresh_snapshot(layout.path)
        partitions = Counter(file.partition for file in snapshot.files)
        wanted = [each for each in partitions if values is None or each[0] in values]
        several = {each: partitions[each] for each in wanted if partitions[each] > 1}
        if snapshot.delta is None or not several or dry_run:
            before = sum(several.values())
            return Compacted(snapshot.version, before, len(several) if dry_run else before, len(several), attempt - 1)
        try:
            metrics = snapshot.delta.optimize.compact(
                None if values is None else [(snapshot.partition_by[0], "in", sorted(values))],
                target_size,
                writer_properties=_writer_properties(layout),
                commit_properties=CommitProperties(custom_metadata={"lakehouse.compaction": "1"}),
                post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False),
            )
        except CommitFailedError:
            continue
        removed, added = int(metrics["numFilesRemoved"]), int(metrics["numFilesAdded"])
        merged = open_snapshot(layout.path)  # delta-rs leaves it to the system when its files reach the disk
        settle([layout.path / each.path for each in set(merged.files) - set(snapshot.files)], layout.path)
        settle_entries(layout.path, range(snapshot.version + 1, merged.version + 1))
        return Compacted(merged.version, removed, added, len(several), attempt)
    raise PublishConflictError(
        f"{layout.path}: other runs published during each of {MAX_ATTEMPTS} compactions; their data stands. Compact "
        "again when fewer runs are on."
    )


def _writer_properties(layout: Layout) -> WriterProperties:
    """Bounds only where delta-rs writes exact ones, and none of personal data.

    It cuts the maximum of a timestamp to milliseconds and a decimal to a float, so that a reader would skip a file
    that holds the row it looks for.
    """
    exact = [
        f.name
        for f in layout.schema.fields
        if isinstance(f.dataType, T.DateType | T.LongType | T.IntegerType) and f.name not in layout.pii
    ]
    return WriterProperties(
        compression="SNAPPY",
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties={name: ColumnProperties(statistics_enabled="CHUNK") for name in exact},
    )


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _remove_empty_folders(path: Path, removed: Sequence[str], older_than: float) -> int:
    """Remove stage folders that are empty: those just emptied, and old ones. A folder with a file in it stays."""
    emptied = {folder for name in removed for folder in (path / name).parents}
    number = 0
    for top, _, _ in os.walk(path / _STAGED, topdown=False):
        folder = Path(top)
        if folder == path / _STAGED:
            continue
        with suppress(OSError):  # not empty, or gone already
            if folder in emptied or folder.stat().st_mtime < older_than:
                folder.rmdir()
                number += 1
    return number
