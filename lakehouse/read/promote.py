"""Fields that became columns: rows that arrived before are read with the value that waited in `_rescued`.

A field is promoted by the contract alone: its name in `Landing` or `Topic` and in the model, with the next
`schema_version`. Days that are built again from their landed files put it into the column. The others need not be, and
messages are never taken again: whoever reads the table through the lake gets the text that arrived, as `_rescued` has
it, where the file is older than the column. Personal fields were left out there, and are null; e-mail addresses within
other texts stay masked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lakehouse.contracts import Table
from lakehouse.contracts.schema_versions import added_later, read_lock
from lakehouse.delta.snapshot import DataFile, Snapshot
from lakehouse.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RESCUED = "_rescued"
_KEPT = "_kept_fields"


def promoted_columns(table: Table, snapshot: Snapshot, files: Iterable[DataFile]) -> tuple[str, ...]:
    """The columns whose values some of the files may still have in `_rescued`: decided from contract and log.

    Args:
        table: the contract.
        snapshot: the table at one version.
        files: those that are to be read.
    """
    source = table.landing or table.topic
    if source is None or RESCUED not in table.columns:
        return ()
    later = added_later(table, read_lock().get(table.id, ()))
    added = [c for c in source.columns if c in (table.columns if later is None else later)]
    if not added:
        return ()
    # By null counts in the log: a file all of whose `_rescued` are null has nothing to promote, and is not opened for
    # it.
    rescued = snapshot.nulls(RESCUED)
    waiting = [file.path for file in files if rescued.get(file.path) != file.rows]
    # A file that has the column has a null count of it. Without one it may be older, or have lost its statistics. Of
    # messages files that have it and files that lack it are merged into one, which has nulls from these.
    merged = table.topic is not None
    nulls = {c: snapshot.nulls(c) for c in added}
    counts = {c: [known.get(path) for path in waiting] for c, known in nulls.items()}
    return tuple(c for c, found in counts.items() if any(n is None or (merged and n > 0) for n in found))


def with_promoted(frame: DataFrame, columns: Iterable[str]) -> DataFrame:
    """The rows with these columns filled from `_rescued` where they are null."""
    from lakehouse.transforms.columns import PERSONAL

    names = list(columns)
    if not names:
        return frame
    kept = frame.withColumn(_KEPT, F.from_json(RESCUED, "map<string,string>"))
    # The column itself wins; a field that was replaced as personal is no value of it.
    filled = {name: F.coalesce(F.col(name), F.nullif(F.col(_KEPT).getItem(name), F.lit(PERSONAL))) for name in names}
    return kept.withColumns(filled).drop(_KEPT)
