"""What a Delta table holds right now, read from its log without a JVM and without touching data files."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from lakehouse.errors import DamagedLogError, UnsupportedTableError
from lakehouse.tables.damage import damage
from lakehouse.tables.transactions import read_transactions

_LOG = "_delta_log"
# A log keeps the newest version of each application and cannot forget one. This stands for none: no fingerprint is
# below 0.
WITHDRAWN = -1
# What a commit of whole files respects. Any other feature a table has could be broken by one, so it is refused.
_SUPPORTED = {"appendOnly", "invariants", "timestampNtz", "vacuumProtocolCheck"}
# Old protocols do not list what a table uses; it shows in its configuration or in its columns.
_CONFIGURED = {
    "deletionVectors": "delta.enableDeletionVectors",
    "columnMapping": "delta.columnMapping.mode",
    "rowTracking": "delta.enableRowTracking",
    "changeDataFeed": "delta.enableChangeDataFeed",
    "checkConstraints": "delta.constraints.",
}
_DECLARED = {
    "generatedColumns": "delta.generationExpression",
    "identityColumns": "delta.identity.",
    "invariants": "delta.invariants",
}


@dataclass(frozen=True)
class DataFile:
    """One live file: its path in the log, its partition values as text, rows and bytes."""

    path: str
    partition: tuple[str | None, ...]
    rows: int
    size: int


@dataclass(frozen=True)
class Snapshot:
    """A table at one version; `version` is -1 where the table does not exist yet."""

    uri: str
    version: int
    partition_by: tuple[str, ...] = ()
    files: tuple[DataFile, ...] = ()
    delta: DeltaTable | None = field(default=None, compare=False, repr=False)

    def by_day(self, column: str) -> dict[date, list[DataFile]]:
        """Live files by the date in the partition column."""
        return self._days[self.partition_by.index(column)] if self.files else {}

    def rows_by_day(self, column: str) -> dict[date, int]:
        """Live rows by the date in the partition column, for days that have files."""
        return {day: sum(f.rows for f in files) for day, files in self.by_day(column).items()}

    def transaction(self, app_id: str) -> int | None:
        """The last version committed under an application id; None where there is none, or it was withdrawn."""
        if self.delta is None:
            return None
        known = self._transactions
        found = self.delta.transaction_version(app_id) if known is None else known.get(app_id)
        return None if found == WITHDRAWN else found

    def transactions(self) -> dict[str, int]:
        """All of them by application id, without those withdrawn; empty where they can be told one by one only."""
        known = self._transactions if self.delta is not None else None
        return {name: version for name, version in (known or {}).items() if version != WITHDRAWN}

    def nulls(self, column: str) -> dict[str, int | None]:
        """Nulls in a column by path of each live file; None where the log does not say, as for an older file."""
        if self.delta is None:
            return {}
        name, counts = f"null_count.{column}", self._statistics
        found = counts[name].to_pylist() if name in counts.column_names else [None] * counts.num_rows
        return dict(zip(map(unquote, counts["path"].to_pylist()), found, strict=True))

    def high(self, column: str) -> dict[str, Any]:
        """A bound of a column's values by path of each live file; None where the log has none."""
        if self.delta is None:
            return {}
        name, found = f"max.{column}", self._statistics
        values = found[name].to_pylist() if name in found.column_names else [None] * found.num_rows
        return dict(zip(map(unquote, found["path"].to_pylist()), values, strict=True))

    @cached_property
    def _statistics(self) -> pa.Table:
        assert self.delta is not None
        return pa.table(self.delta.get_add_actions(flatten=True))

    @cached_property
    def _transactions(self) -> dict[str, int] | None:
        return read_transactions(Path(self.uri), self.version)

    @cached_property
    def _days(self) -> list[dict[date, list[DataFile]]]:
        indexes: list[dict[date, list[DataFile]]] = []
        for position in range(len(self.partition_by)):
            days: dict[date, list[DataFile]] = defaultdict(list)
            for file in self.files:
                day = _date(file.partition[position])
                if day is not None:
                    days[day].append(file)
            indexes.append(dict(days))
        return indexes


def table_name(folder: Path) -> str:
    """`layer.name` of the table in a folder: what `lake.table_path` says, backwards."""
    return f"{folder.parent.name}.{folder.name}"


def open_snapshot(path: Path, version: int | None = None) -> Snapshot:
    """A table as its log says; the newest version comes from memory where nothing was committed since it was read.

    A run looks at the log of every table many times, and with years of days behind it each look takes longer. What is
    returned is shared: who changes the table through `delta` takes a `fresh_snapshot`.

    Args:
        path: folder of the table.
        version: the version to read; None for the newest.

    Raises:
        UnsupportedTableError: where the table uses a feature this project must not write to.
        DamagedLogError: where a checkpoint of the newest version is broken; it says what mends it.
    """
    if version is not None:
        return fresh_snapshot(path, version)
    try:
        log = (path / _LOG).stat()
    except OSError:
        return fresh_snapshot(path)
    kept, state = _kept(path), (log.st_ino, log.st_mtime_ns)
    found = kept.get(state)
    # Two commits may bear one time, by a clock that ticks every few milliseconds: so the next entry is looked for too.
    if found is None or (path / _LOG / f"{found.version + 1:020}.json").exists():
        found = fresh_snapshot(path)
        kept.clear()
        kept[state] = found
    return found


@lru_cache(maxsize=64)
def _kept(_path: Path) -> dict[tuple[int, int], Snapshot]:
    """The last snapshot of a table, by the state of its log's folder: the inode and the time of its last change."""
    return {}


def fresh_snapshot(path: Path, version: int | None = None) -> Snapshot:
    """As `open_snapshot`, but read now and for the caller alone."""
    try:
        delta = DeltaTable(str(path), version=version)
    except TableNotFoundError:
        return Snapshot(str(path), -1)
    except DeltaError as error:
        if version is None and (what := damage(path)):
            raise DamagedLogError(what) from error
        raise
    _refuse_features(delta, path)
    return snapshot_of(delta, str(path))


def snapshot_of(delta: DeltaTable, uri: str) -> Snapshot:
    """The snapshot that an opened table shows."""
    columns = tuple(delta.metadata().partition_columns)
    actions = pa.table(delta.get_add_actions(flatten=True))
    parts = [_texts(actions, f"partition.{name}") for name in columns]
    files = tuple(
        DataFile(unquote(path), values, rows or 0, size)
        for path, rows, size, *values_list in zip(
            actions["path"].to_pylist(),
            actions["num_records"].to_pylist() if "num_records" in actions.column_names else [0] * len(actions),
            actions["size_bytes"].to_pylist(),
            *parts,
            strict=True,
        )
        for values in [tuple(values_list)]
    )
    return Snapshot(uri, delta.version(), columns, files, delta)


def _texts(actions: pa.Table, column: str) -> list[str | None]:
    return [None if value is None else str(value) for value in actions[column].to_pylist()]


@lru_cache(maxsize=100_000)  # the same few thousand days are read of every table, several times a run
def _date(value: str | None) -> date | None:
    if value is None or not re.fullmatch(r"\d{4}-\d{2}-\d{2}", value):
        return None
    return date.fromisoformat(value)


def _refuse_features(delta: DeltaTable, path: Path) -> None:
    protocol = delta.protocol()
    used = {*(protocol.writer_features or []), *(protocol.reader_features or [])} - _SUPPORTED
    for name, value in delta.metadata().configuration.items():
        if value not in ("none", "false"):
            used |= {feature for feature, setting in _CONFIGURED.items() if name.startswith(setting)}
    columns = delta.schema().to_json()
    used |= {feature for feature, setting in _DECLARED.items() if f'"{setting}' in columns}
    if used:
        raise UnsupportedTableError(
            f"The Delta table at {path} uses {', '.join(sorted(used))}, which commits of whole files would break. "
            "Rewrite it without that feature (a plain copy into a new table) before this project writes to it."
        )


def fingerprint(parts: Iterable[str]) -> int:
    """A positive 63-bit number over an ordered list of texts, to compare what a partition was made from."""
    digest = hashlib.sha256("\x1f".join(parts).encode(errors="surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big") >> 1
