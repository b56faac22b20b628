"""What a Delta table holds right now, read from its log without a JVM and without touching data files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from itertools import repeat
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Metadata, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from lakehouse.delta.damage import damage
from lakehouse.delta.features import refuse_features
from lakehouse.delta.files import AGAIN, DataFile, LiveFiles
from lakehouse.delta.transactions import read_transactions
from lakehouse.errors import DamagedLogError

__all__ = ["AGAIN", "WITHDRAWN", "DataFile", "Snapshot", "fingerprint", "fresh_snapshot", "table_name"]

# A log keeps the newest version of each application and cannot forget one. This stands for none: no fingerprint is
# below 0.
WITHDRAWN = -1


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

    @property
    def table_id(self) -> str | None:
        """The log's own: a table that was moved away and built anew under its name has another. None: there is none."""
        return str(self.metadata.id) if self.metadata else None

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
        known = self.known_transactions
        found = self._read.transaction_version(app_id) if known is None else known.get(app_id)
        return None if found == WITHDRAWN else found

    def transactions(self) -> dict[str, int]:
        """All of them by application id, without those withdrawn; empty where they can be told one by one only."""
        known = self.known_transactions if self.exists else None
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
    def known_transactions(self) -> Mapping[str, int] | None:
        """By application id, those withdrawn too; None where they can be told one by one only."""
        return read_transactions(Path(self.uri), self.version)


def table_name(folder: Path) -> str:
    """`layer.name` of the table in a folder: what `table_path` says, backwards."""
    return f"{folder.parent.name}.{folder.name}"


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
