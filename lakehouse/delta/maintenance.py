"""Keeping tables tidy without an engine: files nobody refers to are removed, small files of a partition are merged."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from deltalake.exceptions import CommitFailedError

from lakehouse import store
from lakehouse.delta.commit import merge_files
from lakehouse.delta.failpoints import failpoint
from lakehouse.delta.log import entries, oldest_entry, read_entry, version_before
from lakehouse.delta.merge import merge
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import DataFile, Snapshot, fresh_snapshot, table_name
from lakehouse.delta.target import Commit, Target
from lakehouse.errors import LakehouseError, PublishConflictError
from lakehouse.lazy import T
from lakehouse.store.disk import keep_leftovers

SHORTEST_RETENTION_HOURS = 24.0
"""Six times the longest run: a file younger than this may belong to a run that has not committed yet."""

MAX_ATTEMPTS = 5
FULL_BYTES = 50 << 20
"""Of a merged file: large enough to read at full speed, small enough to write again."""
_STAGED = "staged"
_EACH = 1000  # entries that are read one by one, which takes 0.1 s


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
    """What a compaction did; `version` is its own, where it did something."""

    version: int
    files_before: int = 0
    files_after: int = 0
    partitions: int = 0
    attempts: int = 0


@dataclass(frozen=True)
class Compactable:
    """What a compaction has to know of a table."""

    path: Path
    schema: T.StructType
    pii: Collection[str] = ()
    full: int = FULL_BYTES
    """Bytes from which on a file stays as it is; of smaller ones, so many are made one as have as much together."""


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
    # Delta-rs looks into every folder, and ends at the first that it may not read.
    if closed := keep_leftovers(path / _STAGED):
        folder, who = closed
        raise LakehouseError(
            f"{table_name(path)}: {folder} may not be read. {who} is building, or a run of {who} was killed. Once no "
            f"such run is on, have {who} run `lakehouse vacuum`, which opens it to the group; then vacuum again."
        )
    # Three looks: what delta-rs would remove, what of it versions within the retention still need, and the removal.
    found = delta.vacuum(round(hours), dry_run=True, enforce_retention_duration=False, full=True)
    # Undo must work for as long as it is promised, whatever a checkpoint has forgotten.
    keep = _versions_in_danger(path, snapshot, hours, found)
    if keep:
        found = delta.vacuum(round(hours), True, False, full=True, keep_versions=keep)
    # Delta-rs decides what goes; that nothing live is among it is asked again, for this cannot be undone.
    live = {file.path for file in snapshot.files}
    if wrong := [name for name in found if name in live]:
        raise LakehouseError(f"{path}: live files were about to be removed ({wrong[0]}, …); nothing was. Report this.")
    # Before they go: afterwards nobody can tell how much room that made.
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
    `delta.deletedFileRetentionDuration` (a week, by default), and then only the file's own age counts. Nor does it know
    that the clock of who replaced the file was behind.
    """
    before = _surely_before(path, datetime.now(UTC) - timedelta(hours=hours))
    first = max(oldest_entry(path), 0) if before is None else before
    holders: dict[str, list[int]] = {}
    live = {file.path for file in open_snapshot(path, first).files}
    # Only versions that hold a doomed file matter; those are looked for entry by entry, without opening each version.
    doomed = set(found)
    for name in live & doomed:
        holders.setdefault(name, []).append(first)
    for entry in entries(path, first + 1, snapshot.version, ()):
        for name in doomed & entry.added.keys():
            holders.setdefault(name, []).append(entry.version)
    return sorted({version for versions in holders.values() for version in versions})


def _surely_before(path: Path, moment: datetime) -> int | None:
    """As `version_before`, or an older version, where the clock of who committed was behind meanwhile."""
    found = version_before(path, moment)
    while found is not None and (later := stamped_later(path, found, moment)) is not None:
        found = version_before(path, moment, later - 1)
    return found


def stamped_later(path: Path, version: int, moment: datetime) -> int | None:
    """The newest version before one that was committed after a moment, though the one says that it came earlier.

    A clock that is behind stamps a commit with a time long ago, but what the commit has replaced was live until just
    now: the entries before it tell. A stamp that is still to come, of a clock that was ahead, tells nothing.
    """
    now = datetime.now(UTC)
    looked_at = _looked_back(version, max(oldest_entry(path), 0))
    return next((each for each in looked_at if moment < read_entry(path, each).time <= now), None)


def _looked_back(version: int, oldest: int) -> Iterator[int]:
    """Versions before one, newest first: each of the last ones, and fewer and fewer of a long log."""
    before = version - 1
    while before >= oldest:
        yield before
        before -= max(1, version - before - _EACH)


def mergeable(files: Collection[DataFile], full: int) -> int:
    """How many files are not full, but for one of each further partition, which merging leaves."""
    partitions = Counter(file.partition for file in files if file.size < full)
    return partitions.total() - max(len(partitions) - 1, 0)


def compact(layout: Compactable, *, dry_run: bool = False, values: Collection[str] | None = None) -> Compacted:
    """Merge the files of each partition that has several; no row changes.

    Of a partition that a run publishes meanwhile, what the run has published stands; the others are merged. Where a
    compaction has merged nothing for that reason, it starts over. The merged files are on the disk before the one
    commit that names them.

    Args:
        layout: the table; nothing happens where it was never built.
        dry_run: only count the files.
        values: only partitions with one of these values of the first partition column; None: all.

    Raises:
        PublishConflictError: where other writers won every attempt.
    """
    for attempt in range(1, MAX_ATTEMPTS + 1):
        snapshot = fresh_snapshot(layout.path)
        groups = _groups(snapshot, values, layout.full)
        if not groups or dry_run:
            return _compacted(snapshot.version, groups, attempt - 1)
        target = Target(layout.path, layout.schema, snapshot.partition_by, pii=layout.pii)
        folder = layout.path / "staged" / uuid.uuid4().hex  # where a vacuum finds it, should this be killed
        name = table_name(layout.path)
        failpoint(name, "before-merge")
        # Killed here or below, before the commit: merged files that no log names, below `staged`, where the next vacuum
        # finds them. After the commit: the old files are the log's past.
        merged = [(merge(snapshot, group, folder), group) for group in groups]
        failpoint(name, "before-merge-commit")
        version, landed = merge_files(target, snapshot, merged, Commit(metadata={"lakehouse.compaction": "1"}))
        failpoint(name, "after-merge-commit")
        # Every group lost a file to a run meanwhile: what was merged is of no use, and is begun anew.
        if landed:
            return _compacted(version, landed, attempt)
    raise PublishConflictError(
        f"{layout.path}: other runs published during each of {MAX_ATTEMPTS} compactions; their data stands. Compact "
        "again when fewer runs are on."
    )


def _compacted(version: int, groups: Sequence[Sequence[DataFile]], attempts: int) -> Compacted:
    partitions = {group[0].partition for group in groups}
    return Compacted(version, sum(map(len, groups)), len(groups), len(partitions), attempts)


def _groups(snapshot: Snapshot, values: Collection[str] | None, full: int) -> list[list[DataFile]]:
    """Files of one partition to make one of, of twice as many bytes at most; files with as many stay as they are."""
    groups: list[list[DataFile]] = []
    of_partition: dict[tuple[str | None, ...], tuple[list[DataFile], int]] = {}
    for file in sorted(snapshot.files, key=lambda each: each.path):
        if file.size >= full or (values is not None and file.partition[0] not in values):
            continue
        group, size = of_partition.get(file.partition, ([], 0))
        # In the order of names, each group filled before the next one is begun: small files never wait for a fitting
        # one. Filled, it is full: one that is nearly so would be merged with every few files that come.
        if not group or size >= full:
            group, size = [], 0
            groups.append(group)
        group.append(file)
        of_partition[file.partition] = group, size + file.size
    return [group for group in groups if len(group) > 1]


def _size(path: Path) -> int:
    found = store.stat(path)
    return found.size if found else 0


def _remove_empty_folders(path: Path, removed: Sequence[str], older_than: float) -> int:
    """Remove stage folders that are empty: those just emptied, and old ones. A folder with a file in it stays."""
    emptied = {folder for name in removed for folder in (path / name).parents}
    number = 0
    for folder in store.folders_below(path / _STAGED):
        with suppress(OSError):  # not empty, gone already, or not ours to look at
            found = store.stat(folder)
            if found is not None and (folder in emptied or found.modified < older_than):
                store.delete_empty_folder(folder)
                number += 1
    return number
