"""Rows of tables without an engine: delta-rs reads the log, Arrow the files. For small results."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.dataset as ds


def dataset(path: Path, day_column: str | None = None, days: Sequence[date] | None = None) -> ds.Dataset | None:
    """The table's live files as an Arrow dataset; None where the table was never built.

    Args:
        path: folder of the table.
        day_column: partition column that `days` limits.
        days: the days to look at; None: all.
    """
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(str(path)):
        return None
    partitions = None
    if day_column is not None and days is not None:
        partitions = [(day_column, "in", [day.isoformat() for day in days])]
    return DeltaTable(str(path)).to_pyarrow_dataset(partitions=partitions)


def top_rows(
    path: Path, columns: Sequence[str], *, order_by: Sequence[tuple[str, str]], limit: int, where: Any = None
) -> list[dict[str, Any]]:
    """The first rows of a table in some order; none where it was never built.

    Args:
        path: folder of the table.
        columns: what to read, the columns of the order included.
        order_by: pairs of column and `ascending` or `descending`.
        limit: most rows.
        where: an Arrow filter expression.
    """
    found = dataset(path)
    if found is None:
        return []
    rows: list[dict[str, Any]] = (
        found.to_table(columns=list(columns), filter=where).sort_by(list(order_by)).slice(0, limit).to_pylist()
    )
    return rows
