"""What a build starts from: its table and the quarantine beside it, each at one version."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import date

from lakehouse.contracts import Table
from lakehouse.delta.commit import ensure_table
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import Snapshot
from lakehouse.delta.target import Target
from lakehouse.delta.transactions import day_transaction
from lakehouse.errors import SchemaMismatchError
from lakehouse.read.lake import Lake, table_path
from lakehouse.read.targets import targets
from lakehouse.records.history import project_history


@dataclass(frozen=True)
class Pinned:
    """A Delta table that will be committed to, at one version."""

    target: Target
    snapshot: Snapshot


@dataclass(frozen=True)
class Base:
    """One table at the version that a build starts from; commits go on that version or not at all.

    Attributes:
        main: the table itself.
        side: its quarantine; None where the table has no row rules, or is taken from a database.
    """

    lake: Lake
    table: Table
    main: Pinned
    side: Pinned | None = None

    @property
    def stores(self) -> list[Pinned]:
        """The table and, where there is one, its quarantine."""
        return [self.main, *([self.side] if self.side else [])]

    @property
    def is_live(self) -> bool:
        """Whether readers know the table by name: a candidate, built beside it, has no part in its history."""
        return self.main.target.path == table_path(self.lake.settings.root, self.table.id)

    def is_current(self, day: date, fingerprint: int) -> bool:
        """Whether the day was published, quarantine included, from these very inputs and code."""
        return all(each.snapshot.transaction(day_transaction(day)) == fingerprint for each in self.stores)

    def rows_kept(self) -> dict[date, int]:
        """Rows by day that are published or in quarantine."""
        # Both stores: a day whose rows all broke a rule is as much kept as one whose rows were all sound.
        kept: Counter[date] = Counter()
        for each in self.stores:
            kept.update(each.snapshot.rows_by_day(self.table.day_column))
        return dict(kept)


def open_base(lake: Lake, table: Table) -> Base:
    """The table and its quarantine as they are now; what does not exist yet is made, without rows.

    The table comes first. Where its contract is refused, the quarantine is left alone; where a kill leaves the
    quarantine behind the table, the next build brings it up.

    Raises:
        SchemaMismatchError, UnsupportedTableError: the table on the disk is not one that the contract can write to.
    """
    # This order is what the next build relies on after a kill in between: it finds the table ahead, never behind.
    target, side = targets(lake, table)
    try:
        main = Pinned(target, ensure_table(target))
    except SchemaMismatchError as error:
        if table.taken is None:
            raise
        raise SchemaMismatchError(
            f"{error} But {table.id} is taken from outside: a table that begins anew takes what is still there, and "
            "what is not is lost with the folder. A column that comes no more can stay in the contract, and be null."
        ) from error
    if side is None or table.taken is not None:  # a batch is taken as it is
        return Base(lake, table, main)
    return Base(lake, table, main, Pinned(side, ensure_table(side)))


def project_commits(base: Base) -> None:
    """Bring the history up to the log of the base's table."""
    project_history(base.lake.settings.root, open_snapshot(base.main.target.path), base.table.id)
