"""What cannot be put back or put in place: an older version apart from the rest, a candidate in other folders."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from lakehouse.contracts import Table
from lakehouse.delta.log import LogEntry, days_of
from lakehouse.delta.snapshot import Snapshot
from lakehouse.errors import UndoRefusedError

_NAMED = 5  # days named in one message


def refuse_taken(table: Table) -> None:
    """Where its source goes on, the log knows for the table as a whole: rows that go from some days come no more.

    Raises:
        UndoRefusedError: the table takes its rows from a topic or a database.
    """
    if table.taken is not None:
        raise UndoRefusedError(
            f"{table.id}: what comes next from its source counts for the whole table, so rows that leave some days "
            "would never be taken again. Restore the whole table (without --from and --to): they are then taken again."
        )


def refuse_columns(table: Table, base: Snapshot, wanted: Snapshot) -> None:
    """Files of the older version must be readable under the table's columns of today.

    Args:
        table: the contract, for its name.
        base: the table now.
        wanted: the older version.

    Raises:
        UndoRefusedError: a column went, or changed its type.
    """
    assert base.schema is not None
    assert wanted.schema is not None
    now = {f.name: f.type for f in base.schema.fields}
    # Columns that came since are null in older files, which is right; one that went or changed its type is not.
    wrong = [f.name for f in wanted.schema.fields if now.get(f.name) != f.type]
    if wrong:
        raise UndoRefusedError(
            f"{table.id}: the columns have changed since version {wanted.version} ({', '.join(wrong)}), so its days "
            "cannot stand beside newer ones. Restore the whole table (without --from and --to)."
        )


def refuse_torn(table: Table, between: Sequence[LogEntry], days: set[date]) -> None:
    """Rows of an upsert table move between days: what one commit replaced together goes back together.

    Args:
        table: the contract, for its name.
        between: the log since the older version.
        days: to put back.

    Raises:
        UndoRefusedError: a commit replaced some of the days together with others.
    """
    for entry in between:
        touched = days_of([*entry.added.values(), *entry.removed.values()])
        # Days that the commit wrote together with those to restore, and that nobody asked to put back.
        outside = sorted(touched - days)
        if entry.changes_rows and touched & days and outside:
            listed = ", ".join(map(str, outside[:_NAMED])) + (", …" if len(outside) > _NAMED else "")
            raise UndoRefusedError(
                f"{table.id}: version {entry.version} replaced {listed} together with days to restore. Its rows move "
                "between days, so that one could be there twice or not at all. Restore those days too, or the whole "
                "table (without --from and --to)."
            )


def refuse_other_partitions(table: Table, live: Snapshot, wanted: Sequence[str]) -> None:
    """The files of a candidate must lie in folders as the live table's do.

    Args:
        table: the contract, for its name.
        live: the table now.
        wanted: the partition columns of its candidate.

    Raises:
        UndoRefusedError: they are other ones.
    """
    if tuple(live.partition_by) != tuple(wanted):
        raise UndoRefusedError(
            f"{table.id} is partitioned by {', '.join(live.partition_by)}, its candidate by {', '.join(wanted)}; Delta "
            "cannot change that. Give the changed table a new name."
        )
