"""A database table as the input of a bronze table."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

EXACT, LAG = "exact", "lag"
TAKEN = ("_arrival_date", "_batch", "_xid", "_tombstone")  # how a row came out of its database


@dataclass(frozen=True)
class Extract:
    """Rows of a PostgreSQL table that is updated in place, taken in numbered batches (`lakehouse.build.intake`).

    The source has to see to three things: `updated_at` never goes back for a row, `updated_at` is set by every change
    (the mode `lag` finds changes by nothing else), and a deleted row leaves a tombstone or is only marked.

    Attributes:
        source: names the setting with the address, `LAKEHOUSE_<SOURCE>_URL`; without one there is nothing to take.
        relation: the table, with its schema where that is not on the search path.
        columns: its columns that are read, as text.
        times: those that are instants; they are read as ISO 8601 in UTC.
        key: columns that identify a row.
        updated_at: when the row was last changed; one of `times`.
        tombstones: table with `key`, `carried` and `deleted_at` of each deleted row; None where no row is deleted.
        carried: which further columns the tombstones have.
        deleted_at: when a row was deleted; one of `times` where deleted rows stay in the table and are marked by it.
        mode: `exact` reads whatever the last batch's transaction snapshot could not see for sure; `lag` reads rows by
            `updated_at`, up to `lag` ago, and misses those that are committed later than `lag` and `overlap` after it.
        lag: how long a transaction is given from `updated_at` to its commit.
        clock_apart: by how much the database's clock and this machine's may differ; then `database_clock` warns.
        overlap: how far before its watermark the mode `lag` looks for rows that came too late for it.
    """

    source: str
    relation: str
    columns: tuple[str, ...]
    times: tuple[str, ...]
    key: tuple[str, ...]
    updated_at: str = "updated_at"
    tombstones: str | None = None
    carried: tuple[str, ...] = ()
    deleted_at: str = "deleted_at"
    mode: str = EXACT
    lag: timedelta = timedelta(minutes=5)
    overlap: timedelta = timedelta(hours=1)
    clock_apart: timedelta = timedelta(minutes=1)

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that reading gives: `columns`, and `deleted_at`."""
        return tuple(dict.fromkeys([*self.columns, self.deleted_at]))

    def conditions(self, columns: Collection[str]) -> dict[str, bool]:
        """What must hold of it, and of the columns of the table that takes it, each with whether it does."""
        known = set(self.columns)
        return {
            f"the mode of an extract is one of {EXACT}, {LAG}": self.mode in (EXACT, LAG),
            "an extract needs a key among its columns": bool(self.key) and set(self.key) <= known,
            "times and carried of an extract are among its columns": {*self.times, *self.carried} <= known,
            "updated_at of an extract is one of its times": self.updated_at in self.times,
            "deleted_at of an extract, where it is a column, is one of its times": self.deleted_at not in known
            or self.deleted_at in self.times,
            "lag and overlap of an extract are not negative": min(self.lag, self.overlap) >= timedelta(0),
            f"a table of taken rows has the columns {', '.join(TAKEN)}": set(TAKEN) <= set(columns),
        }
