"""A database table as the input of a bronze table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from lakehouse.contracts.mistakes import are_known, check, is_time, unless
from lakehouse.environment import source_setting

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
    def setting(self) -> str:
        """Name of the setting with the database's address."""
        return source_setting(self.source)

    def __post_init__(self) -> None:
        of = f"a column of {self.relation}"
        check(
            unless(self.mode in (EXACT, LAG), "mode", f"{EXACT} or {LAG}", repr(self.mode), "Leave it out for exact."),
            unless(self.key, "inputs", "a key of the database table", "none", 'Write key=("id",).'),
            *(are_known("inputs", names, self.columns, of) for names in (self.key, self.times, self.carried)),
            are_known("updated_at", (self.updated_at,), self.times, f"one of the times of {self.relation}"),
            unless(self.deleted_at not in self.columns or self.deleted_at in self.times, "deleted_at",
                   f"one of the times of {self.relation}", repr(self.deleted_at), "Name it in times too."),
            unless(is_time(self.lag) and is_time(self.overlap), "lag", "lag and overlap that are not negative",
                   f"{self.lag} and {self.overlap}", "Write them as timedelta(minutes=5)."),
        )  # fmt: skip

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that reading gives: `columns`, and `deleted_at`."""
        return tuple(dict.fromkeys([*self.columns, self.deleted_at]))
