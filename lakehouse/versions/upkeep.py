"""Tables keep themselves tidy, a bounded piece at a time: small files merged, dead ones removed, logs summed up.

What is found untidy decides what is done, so that a night that was cut short, by its limits or by a kill, is gone on
with in the next one. The table where it stopped comes first then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from deltalake.exceptions import DeltaError

from lakehouse import store
from lakehouse.contracts import Table
from lakehouse.delta.evolve import stored_schema
from lakehouse.delta.log import oldest_entry, read_entry
from lakehouse.delta.maintenance import FULL_BYTES, Compactable, compact, stamped_later, vacuum
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import fresh_snapshot
from lakehouse.errors import LakehouseError
from lakehouse.read.lake import table_path
from lakehouse.read.targets import quarantine_schema
from lakehouse.records.history import project_history
from lakehouse.records.ops import ops_tables
from lakehouse.records.quarantined import project_quarantine
from lakehouse.store import parquet

SMALL_BYTES = FULL_BYTES // 2
MANY_SMALL = 4  # small files of one partition that are worth a merge
CHECKPOINT_AFTER = 10  # entries
LOG_DAYS = 90  # at least as long as any undo window; entries that are younger stay, but where there are too many
MOST_ENTRIES = 1_000_000  # of a log, but for the undo window: a stream adds up to 130,000 files a day, of 5 KB each
BATCH_BYTES = 1 << 30  # merged in one commit
DRAFT_SECONDS = 86_400.0  # age of a draft that nobody can be writing any more
_NEXT = "upkeep.next"


@dataclass(frozen=True)
class Limits:
    """How much is done in a night.

    Attributes:
        seconds: after which no further table is begun.
        bytes: of files that are merged.
        batch_bytes: of them, in one commit.
        entries: of a log since its last checkpoint, from which on there is another.
    """

    seconds: float
    bytes: float
    batch_bytes: float = BATCH_BYTES
    entries: int = CHECKPOINT_AFTER


@dataclass(frozen=True)
class Untidy:
    """What is to be tidied in one table, as its log says.

    Attributes:
        partitions: that have several small files, by the value of the first partition column, with their bytes.
        files: live files.
        small: those of them that would be merged.
        most: most files of one partition.
        entries: log entries since the last checkpoint.
    """

    partitions: Mapping[str, int] = field(default_factory=dict)
    files: int = 0
    small: int = 0
    most: int = 0
    entries: int = 0


@dataclass
class Tidied:
    """What was done to one table; `left` counts partitions that wait for another night, `problem` says what failed."""

    table: str
    files_before: int = 0
    files_after: int = 0
    removed: int = 0
    bytes_freed: int = 0
    log_entries_removed: int = 0
    checkpoint: bool = False
    left: int = 0
    busy: bool = False
    problem: str = ""

    @property
    def changed(self) -> bool:
        """Whether anything was done."""
        done = self.files_before != self.files_after or self.removed or self.log_entries_removed
        return bool(done or self.checkpoint)


def layouts(root: Path, tables: Collection[Table], *, ops: bool) -> dict[str, Compactable]:
    """Tables and their quarantines, as far as they were built, and `ops.…` where these are meant too.

    Args:
        root: of the lakehouse.
        tables: contracts.
        ops: the tables of the lakehouse about itself too.
    """
    found: dict[str, Compactable] = {}
    for contract in tables:
        found[contract.id] = Compactable(table_path(root, contract.id), contract.schema, contract.pii)
        if contract.rules:
            path = table_path(root, contract.quarantine_id)
            found[contract.quarantine_id] = Compactable(path, quarantine_schema(contract), contract.pii)
    for name in ops_tables(root) if ops else ():
        path = table_path(root, name)
        found[name] = Compactable(path, stored_schema(open_snapshot(path)))
    return {name: layout for name, layout in found.items() if store.exists(layout.path / "_delta_log")}


def untidy(path: Path) -> Untidy:
    """What is to be tidied in the table of a folder; reads its log only."""
    snapshot = open_snapshot(path)
    partitions: dict[str, int] = {}
    small = most = 0
    for values, files in snapshot.live.partitions.items():
        most = max(most, len(files))
        of_part = [file.size for file in files if file.size < SMALL_BYTES]
        if len(of_part) >= MANY_SMALL and values and values[0] is not None:
            partitions[values[0]] = partitions.get(values[0], 0) + sum(of_part)
            small += len(of_part)
    since = snapshot.version - max(_checkpoints(path), default=-1)
    return Untidy(partitions, snapshot.live.number, small, most, since)


def tidy(
    root: Path,
    tables: Collection[Table],
    limits: Limits,
    *,
    undo_days: int,
    busy: Callable[[], Collection[str]] = tuple,
) -> Generator[Tidied]:
    """Tidy every table of the lake until the limits are reached; what was done comes table by table.

    Args:
        root: of the lakehouse.
        tables: its contracts.
        limits: of this night.
        undo_days: days for which every version stays readable.
        busy: the tables that runs are building now, by `layer.name`; they, with their quarantines, are left alone, for
            a run loses its commit where the files of its days change. Asked before each commit.
    """
    ends, spare = time.monotonic() + limits.seconds, limits.bytes
    owners = {name: each.id for each in tables for name in (each.id, each.quarantine_id)}
    contracts = {each.id: each for each in tables}
    marker = root / "cache" / _NEXT
    sweep_drafts(root)
    all_of = layouts(root, tables, ops=True)
    for name in _from(list(all_of), marker):
        if time.monotonic() >= ends:
            return
        # Before the table, not after it: a table at which a night was killed is the first of the next night.
        store.put(marker, name)
        done = Tidied(name)

        def held(name: str = name) -> bool:
            return owners.get(name, name) in busy()

        try:
            # Asked again before each commit: a run that begins meanwhile must not lose its own to tidying.
            if held():
                done.busy = True
            else:
                path = all_of[name].path
                # Merge first, then sum up, then remove: each step leaves the next one less to look at.
                spare -= _merge(all_of[name], done, ends, replace(limits, bytes=spare), held)
                _sum_up(root, path, contracts.get(owners.get(name, "")), name, limits.entries, done)
                done.log_entries_removed = clean_up_log(path, _kept_from(path, undo_days))
                if not held():
                    gone = vacuum(path, undo_days * 24.0)
                    done.removed, done.bytes_freed = len(gone.files), gone.size
        except (LakehouseError, DeltaError, OSError) as error:  # the other tables are tidied all the same
            done.problem = f"{type(error).__name__}: {error}"
        yield done
    store.delete(marker)


def sweep_drafts(root: Path) -> int:
    """Remove files in the making that a killed writer left outside of the tables; returns how many.

    Those of tables' logs go with their entries (`clean_up_log`). No reader sees a draft, but it takes room, and it may
    hold what a landed file holds.
    """
    gone = 0
    for path in store.walk(root, gone_ok=True):
        if (
            path.name.startswith(".")
            and path.name.endswith(store.DRAFT)
            and path.relative_to(root).parts[0] != "tables"
        ):
            gone += _delete_if_old(path)
    return gone


def _delete_if_old(draft: Path) -> bool:
    with suppress(OSError):  # its writer may be at work, or another sweep
        found = store.stat(draft)
        if found is not None and time.time() - found.modified > DRAFT_SECONDS:
            store.delete(draft)
            return True
    return False


def _from(names: list[str], marker: Path) -> list[str]:
    """The tables, beginning with the one where the last night stopped."""
    with suppress(OSError, ValueError):
        first = names.index(store.read_text(marker))
        return names[first:] + names[:first]
    return names


def _merge(layout: Compactable, done: Tidied, ends: float, limits: Limits, held: Callable[[], bool]) -> float:
    """Merge small files, a batch of partitions in one commit; returns the bytes that were merged."""
    found = untidy(layout.path)
    merged = 0.0
    waiting = sorted(found.partitions.items())
    done.files_before = found.files
    while waiting and time.monotonic() < ends and not held():
        batch: list[str] = []
        size = 0.0
        while waiting and (not batch or size + waiting[0][1] <= limits.batch_bytes) and merged + size < limits.bytes:
            value, number = waiting.pop(0)
            batch.append(value)
            size += number
        if not batch:
            break
        compact(layout, values=batch)
        merged += size
    done.files_after, done.left = open_snapshot(layout.path).live.number, len(waiting)
    return merged


def _sum_up(root: Path, path: Path, contract: Table | None, name: str, most_entries: int, done: Tidied) -> None:
    """Write a checkpoint where there are many entries since the last, and keep elsewhere what entries say of days."""
    newest = max(_checkpoints(path), default=-1)
    snapshot = fresh_snapshot(path)
    if snapshot.delta is not None and snapshot.version - newest >= most_entries:
        snapshot.delta.create_checkpoint()
        log = path / "_delta_log"
        store.fsync([log / f"{snapshot.version:020}.checkpoint.parquet", log / "_last_checkpoint"], log)
        done.checkpoint = True
    if contract is not None:  # before the entries go
        if name == contract.id:
            project_history(root, snapshot, name)
        else:
            project_quarantine(root, contract)


def _kept_from(path: Path, undo_days: int) -> datetime:
    """The moment from which on the entries of a log are kept."""
    now, newest, oldest = datetime.now(UTC), open_snapshot(path).version, oldest_entry(path)
    first = now - timedelta(days=LOG_DAYS)
    if newest - oldest < MOST_ENTRIES:
        return first
    many = read_entry(path, newest - MOST_ENTRIES + 1).time
    return max(first, min(many, now - timedelta(days=undo_days)))


def clean_up_log(path: Path, before: datetime) -> int:
    """Remove log entries that a checkpoint of that time or earlier sums up; returns how many files that were.

    Every version from that moment on can be read afterwards as before, the one that stood at the moment included.

    Args:
        path: folder of the table.
        before: the moment.
    """
    log = path / "_delta_log"
    for draft in store.listed(log, f".*{store.DRAFT}"):  # of commits that were killed
        _delete_if_old(draft)
    oldest = oldest_entry(path)  # asked once: a stream's log has a million names, and a checkpoint for each twenty

    def is_old(checkpoint: int) -> bool:
        return checkpoint < oldest or read_entry(path, checkpoint).time <= before

    keep = next(filter(is_old, sorted(_checkpoints(path), reverse=True)), -1)
    # A clock that was behind made a young checkpoint look old: the entries before it are of the undo window.
    if keep < 1 or stamped_later(path, keep, before) is not None:
        return 0
    # Entries are the only other way to the same state: they stay until the checkpoint that replaces them was read
    # whole.
    if not _sound(log / f"{keep:020}.checkpoint.parquet"):
        return 0
    numbered = [each for each in store.listed(log) if each.name[:20].isdigit() and int(each.name[:20]) < keep]
    for each in sorted(numbered):  # the oldest first: a kill leaves no gap between what is left
        store.delete(each)
    return len(numbered)


def _sound(checkpoint: Path) -> bool:
    try:
        parquet.footer(checkpoint)
    except Exception:  # noqa: BLE001 - whatever is wrong with it: the entries are needed then
        return False
    return True


def _checkpoints(path: Path) -> Sequence[int]:
    names = [each.name for each in store.listed(path / "_delta_log", "*.checkpoint.parquet")]
    return [int(name[:20]) for name in names if name[:20].isdigit()]
