"""The gate before each commit: Delta's log takes any file, so one that the table must not hold is refused here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deltalake.transaction import AddAction

from lakehouse import store
from lakehouse.delta.staged import StagedFile, delta_statistics
from lakehouse.errors import SchemaMismatchError, StagedFileError
from lakehouse.lazy import T

if TYPE_CHECKING:
    from lakehouse.delta.target import Target

# How Parquet names the types that need no parameters.
_STORED_AS = {
    "string": "String",
    "date": "Date",
    "long": "INT64",
    "integer": "INT32",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
}


def add_action(target: Target, file: StagedFile, days: set[str] | None) -> AddAction:
    """The log entry for a staged file; one that is not exactly what the table may hold is refused by name.

    Args:
        target: the table.
        file: staged, below the table's folder.
        days: the days being replaced; None: any.

    Raises:
        StagedFileError, SchemaMismatchError: the file, and what is wrong with it.
    """
    path = file.path.relative_to(target.path).as_posix()
    if missing := [c for c in target.partition_by if c not in file.partition]:
        raise StagedFileError(f"{path}: no value for the partition column(s) {', '.join(missing)}.")
    day = file.partition[target.day_column]
    if days is not None and day not in days:
        raise StagedFileError(
            f"{path}: its {target.day_column} is {day}, outside the days being replaced. The transform gave rows of "
            "a day it was not asked for."
        )
    stored = [f for f in target.schema.fields if f.name not in target.partition_by]
    if wrong := _misfits(target, file, stored):
        raise SchemaMismatchError(f"{path} does not fit the table: {'; '.join(wrong)}.")
    if nulls := [f"{n} ({file.nulls[n]})" for n in sorted(target.required) if file.nulls.get(n, 0)]:
        raise StagedFileError(f"{path}: nulls in column(s) that must have none: {', '.join(nulls)}.")
    if any(file.partition[c] is None for c in target.partition_by if c in target.required):
        raise StagedFileError(f"{path}: a required partition column has no value.")
    return as_action(file, path, delta_statistics(file, [f.name for f in stored], tuple(target.pii)))


def _misfits(target: Target, file: StagedFile, stored: Sequence[T.StructField]) -> list[str]:
    wrong = [
        f"{f.name} is {file.types.get(f.name, 'missing')}"
        for f in stored
        if not _fits(file.types.get(f.name), f.dataType)
    ]
    surplus = set(file.types) - {f.name for f in stored} - set(target.extra_columns)
    return wrong + [f"{name} is not in the contract" for name in sorted(surplus)]


def as_action(file: StagedFile, path: str, statistics: str, *, data_change: bool = True) -> AddAction:
    """The log entry that makes a file live; without `data_change`, one that holds rows of others.

    Args:
        file: staged.
        path: of the file inside the table's folder.
        statistics: as `delta_statistics` gives them.
        data_change: False where no row comes or goes, so that whoever follows the table sees nothing new.

    Raises:
        StagedFileError: where the file is gone.
    """
    found = store.stat(file.path)
    if found is None:
        raise StagedFileError(f"{path} is gone; nothing was committed. Run it again.")
    return AddAction(
        path=path,
        size=file.size,
        partition_values=dict(file.partition),
        modification_time=found.modified_ns // 1_000_000,  # milliseconds
        data_change=data_change,
        stats=statistics,
    )


def _fits(stored: str | None, expected: T.DataType) -> bool:
    """Whether a Parquet column (logical type, else physical) is how Spark stores the expected type."""
    if isinstance(expected, T.ArrayType | T.MapType | T.StructType):
        return True  # nested columns are refused or accepted by the schema of the staged frame
    if stored is None:
        return False
    if isinstance(expected, T.TimestampType):
        # An instant in microseconds; local times and other units would be read as other moments.
        return stored.startswith("Timestamp(isAdjustedToUTC=true, timeUnit=microseconds")
    if isinstance(expected, T.DecimalType):
        return stored == f"Decimal(precision={expected.precision}, scale={expected.scale})"
    return stored == _STORED_AS.get(expected.typeName(), stored)


def check_on_disk(files: Sequence[StagedFile]) -> None:
    """Refuse files that are gone or short."""
    for file in files:
        found = store.stat(file.path)
        size = found.size if found else -1
        if found is None or size != file.size:  # as when it was staged: gone, or cut short by a full disk
            raise StagedFileError(
                f"The staged file {file.path} {'is gone' if size < 0 else f'has {size} bytes instead of {file.size}'}; "
                "nothing was committed. A vacuum with too short a retention removes files of running jobs. Run it "
                "again."
            )
