"""What a Delta table holds right now, read from its log without a JVM and without touching data files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property, lru_cache
from itertools import repeat
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Metadata, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from lakehouse import store
from lakehouse.delta.damage import damage
from lakehouse.delta.features import refuse_features
from lakehouse.delta.files import AGAIN, DataFile, LiveFiles, file_of
from lakehouse.delta.transactions import read_transactions
from lakehouse.errors import DamagedLogError

__all__ = ["AGAIN", "WITHDRAWN", "DataFile", "Snapshot", "fingerprint", "fresh_snapshot", "open_snapshot", "table_name"]

_LOG = "_delta_log"
# A log keeps the newest version of each application and cannot forget one. This stands for none: no fingerprint is
# below 0.
WITHDRAWN = -1
# Partition values of other types may be written in several ways, so that a text does not say which is meant.
_PLAIN = {"string", "date", "integer", "long"}


@dataclass(frozen=True)
class Snapshot:
    """A table at one version; `version` is -1 where the table does not exist yet.

    Attributes:
        uri: folder of the table.
        version: of its log.
        partition_by: its partition columns.
        live: its files.
        schema: its columns; None where it does not exist.
        metadata: the log's description of the table.
        null_columns: columns of which some file has, or had, a null; None where no log said so.
    """

    uri: str
    version: int
    partition_by: tuple[str, ...] = ()
    live: LiveFiles = field(default_factory=lambda: LiveFiles.of(()), compare=False, repr=False)
    schema: Schema | None = field(default=None, compare=False, repr=False)
    metadata: Metadata | None = field(default=None, compare=False, repr=False)
    null_columns: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @property
    def exists(self) -> bool:
        """Whether there is such a table."""
        return self.version >= 0

    @cached_property
    def files(self) -> tuple[DataFile, ...]:
        """All live files, by path: what takes time with their number. `of` and `by_day` do not."""
        return tuple(sorted(self.live, key=attrgetter("path")))

    def of(self, *partition: str | None) -> Sequence[DataFile]:
        """Live files of one partition."""
        return self.live.partitions.get(partition, ())

    def by_day(self, column: str) -> Mapping[date, Sequence[DataFile]]:
        """Live files by the date in the partition column."""
        return self.live.days(self.partition_by.index(column)).files if self.live.number else {}

    def rows_by_day(self, column: str) -> dict[date, int]:
        """Live rows by the date in the partition column, for days that have files."""
        if not self.live.number:
            return {}
        found = self.live.days(self.partition_by.index(column))
        return {
            day: sum(file.rows for file in found.files[day]) if said is None else said
            for day, said in found.rows.items()
        }

    def transaction(self, app_id: str) -> int | None:
        """The last version committed under an application id; None where there is none, or it was withdrawn."""
        if not self.exists:
            return None
        known = self._transactions
        found = self._read.transaction_version(app_id) if known is None else known.get(app_id)
        return None if found == WITHDRAWN else found

    def transactions(self) -> dict[str, int]:
        """All of them by application id, without those withdrawn; empty where they can be told one by one only."""
        known = self._transactions if self.delta is not None else None
        return {name: version for name, version in (known or {}).items() if version != WITHDRAWN}

    def nulls(self, column: str) -> dict[str, int | None]:
        """Nulls in a column by path of each live file; None where the log does not say, as for an older file."""
        return self._statistic(f"null_count.{column}")

    def high(self, column: str) -> dict[str, Any]:
        """A bound of a column's values by path of each live file; None where the log has none."""
        return self._statistic(f"max.{column}")

    def _statistic(self, name: str) -> dict[str, Any]:
        if not self.exists:
            return {}
        found = self._statistics
        values = found[name].to_pylist() if name in found.column_names else [None] * found.num_rows
        return dict(zip(map(unquote, found["path"].to_pylist()), values, strict=True))

    @cached_property
    def delta(self) -> DeltaTable | None:
        """The table as delta-rs has it, None where there is none: opening it reads the whole log.

        Who changes the table through it takes a `fresh_snapshot`.
        """
        return DeltaTable(self.uri, version=self.version) if self.exists else None

    @cached_property
    def _statistics(self) -> pa.Table:
        return _add_actions(self._read)

    @property
    def _read(self) -> DeltaTable:
        assert self.delta is not None
        return self.delta

    @cached_property
    def _transactions(self) -> Mapping[str, int] | None:
        return read_transactions(Path(self.uri), self.version)


def table_name(folder: Path) -> str:
    """`layer.name` of the table in a folder: what `table_path` says, backwards."""
    return f"{folder.parent.name}.{folder.name}"


def open_snapshot(path: Path, version: int | None = None) -> Snapshot:
    """A table as its log says; the newest version is carried on from the last one that was read, by what came since.

    A run looks at the log of every table many times, and with years of days behind it each look at all of it takes
    longer. What is returned is shared, and never changes.

    Args:
        path: folder of the table.
        version: the version to read; None for the newest.

    Raises:
        UnsupportedTableError: where the table uses a feature this project must not write to.
        DamagedLogError: where a checkpoint of the newest version is broken; it says what mends it.
    """
    if version is not None:
        return fresh_snapshot(path, version)
    kept, state = _kept(path), _state(path)
    if state is None:
        return fresh_snapshot(path)
    last = kept.get("last")
    # Two commits may bear one time, by a clock that ticks every few milliseconds: so the next entry is looked for too.
    # The state of the log's folder is asked, not its entries: one call, however long the log is.
    if last is not None and last.state == state and not store.exists(_entry(path, last.snapshot.version + 1)):
        return last.snapshot
    # From what is known, by the few entries that came since; from scratch where the folder is another one.
    found = _carried_on(path, last) if last is not None and last.state[0] == state[0] else None
    if found is None:
        found = fresh_snapshot(path)
        if found.exists and found._transactions is not None:  # noqa: SLF001 - of this module
            found.__dict__.pop("delta", None)  # as large as all the rest, and hardly anybody asks for it
    # Of each table the newest snapshot alone is kept: older ones are asked for by version.
    if found.exists:
        kept["last"] = _Kept(found, state, _identity(path, found.version))
    else:
        kept.clear()
    return found


class _Kept(NamedTuple):
    """The last snapshot of a table, the state of the log's folder before it was read, and which its newest entry is."""

    snapshot: Snapshot
    state: tuple[int, int]
    identity: tuple[int, int, int] | None


@lru_cache(maxsize=64)
def _kept(_path: Path) -> dict[str, _Kept]:
    return {}


def _state(path: Path) -> tuple[int, int] | None:
    log = store.stat(path / _LOG)
    return (log.inode, log.modified_ns) if log else None


def _entry(path: Path, version: int) -> Path:
    return path / _LOG / f"{version:020}.json"


def _identity(path: Path, version: int) -> tuple[int, int, int] | None:
    """What tells an entry from another one of that number, as in a table that was made anew; None: it is not there."""
    found = store.stat(_entry(path, version))
    return found.identity if found else None


def _carried_on(path: Path, last: _Kept) -> Snapshot | None:
    """The newest version from the last one by the entries since; None where the log has to be read as a whole.

    That is where the last version's entry is not the one that was read, and for whatever is not plain files that come
    and go: new columns, features, or an entry that cannot be understood.
    """
    snapshot = last.snapshot
    if last.identity is None or _identity(path, snapshot.version) != last.identity or not _plain(snapshot):
        return None
    while True:
        try:
            text = store.read_text(_entry(path, snapshot.version + 1))
        except FileNotFoundError:
            return snapshot
        except (OSError, ValueError):
            return None
        try:
            after = _after(snapshot, text)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        if after is None:
            return None
        snapshot = after


def _plain(snapshot: Snapshot) -> bool:
    if snapshot.schema is None:
        return False
    types = {each.name: getattr(each.type, "type", None) for each in snapshot.schema.fields}
    return all(types.get(name) in _PLAIN for name in snapshot.partition_by)


def _actions(entry: str) -> Iterator[tuple[str, Any]]:
    """The actions of a log entry by kind: one a line."""
    for line in entry.splitlines():
        if line:
            yield from json.loads(line).items()


def _with_nulls(action: Mapping[str, Any]) -> set[str]:
    counts = json.loads(action.get("stats") or "{}").get("nullCount") or {}
    return {name for name, number in counts.items() if number}


def _removed(action: Mapping[str, Any], snapshot: Snapshot) -> DataFile:
    file = file_of(action, snapshot.partition_by, snapshot.uri)
    if snapshot.partition_by and not action.get("partitionValues"):  # other writers need not repeat them
        file = file._replace(partition=snapshot.live.partition_of(file.path) or file.partition)
    return file


def _after(snapshot: Snapshot, entry: str) -> Snapshot | None:
    """The next version; None where its entry has more to say than files, transactions and facts."""
    added: list[DataFile] = []
    removed: list[DataFile] = []
    transactions: dict[str, int] = {}
    nulls: set[str] = set()
    for kind, action in _actions(entry):
        match kind:
            case "add" if not action.get("deletionVector"):
                added.append(file_of(action, snapshot.partition_by, snapshot.uri))
                nulls |= _with_nulls(action)
            case "remove":
                removed.append(_removed(action, snapshot))
            case "txn":
                transactions[action["appId"]] = int(action["version"])
            case "commitInfo":
                pass
            case _:
                return None
    if {file.path for file in added} & {file.path for file in removed}:
        return None
    made = replace(
        snapshot,
        version=snapshot.version + 1,
        live=snapshot.live.changed(added, removed) if added or removed else snapshot.live,
        null_columns=snapshot.null_columns | nulls,
    )
    known = snapshot._transactions  # noqa: SLF001 - of this module
    made.__dict__["_transactions"] = None if known is None else {**known, **transactions} if transactions else known
    return made


def fresh_snapshot(path: Path, version: int | None = None) -> Snapshot:
    """As `open_snapshot`, but read now, from the whole log, and for the caller alone."""
    try:
        delta = DeltaTable(str(path), version=version)
    except TableNotFoundError:
        return Snapshot(str(path), -1)
    except DeltaError as error:
        if version is None and (what := damage(path)):
            raise DamagedLogError(what) from error
        raise
    refuse_features(delta, path)
    return snapshot_of(delta, str(path))


def snapshot_of(delta: DeltaTable, uri: str) -> Snapshot:
    """The snapshot that an opened table shows."""
    metadata = delta.metadata()
    columns = tuple(metadata.partition_columns)
    actions = _add_actions(delta)
    logged = actions["path"].to_pylist()
    rows = actions["num_records"].to_pylist() if "num_records" in actions.column_names else [None] * len(logged)
    parts = [_texts(actions, f"partition.{name}") for name in columns]
    partitions = zip(*parts, strict=True) if parts else repeat((), len(logged))
    paths = [unquote(each) if "%" in each else each for each in logged]
    files = (
        DataFile(path, partition, number, size, None if path == name else name, uri)
        for path, partition, number, size, name in zip(
            paths, partitions, rows, actions["size_bytes"].to_pylist(), logged, strict=True
        )
    )
    counts = [name for name in actions.column_names if name.startswith("null_count.")]
    nulls = frozenset(name.removeprefix("null_count.") for name in counts if _any(actions[name]))
    made = Snapshot(uri, delta.version(), columns, LiveFiles.of(files), delta.schema(), metadata, nulls)
    made.__dict__["delta"] = delta
    return made


def _add_actions(delta: DeltaTable) -> pa.Table:
    """A row of each live file; by its stream, since `pa.table` would import pandas to ask whether it is one of its."""
    return pa.RecordBatchReader.from_stream(delta.get_add_actions(flatten=True)).read_all()


def _any(counts: pa.ChunkedArray) -> bool:
    return not pa.types.is_integer(counts.type) or bool(pc.sum(counts).as_py())


def _texts(actions: pa.Table, column: str) -> list[str | None]:
    found = actions[column].to_pylist()
    texts = {value: None if value is None else str(value) for value in set(found)}
    return [texts[value] for value in found]


def fingerprint(parts: Iterable[str]) -> int:
    """A positive 63-bit number over an ordered list of texts, to compare what a partition was made from."""
    digest = hashlib.sha256("\x1f".join(parts).encode(errors="surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big") >> 1
