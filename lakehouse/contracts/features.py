"""Features: rows that say what was known of somebody or something at the end of a day, and how long that may be used.

Whoever joins them by time, for training or for serving, takes the words of time from here, so that both see the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING

from lakehouse.contracts.mistakes import are_names, check, is_time, unless

if TYPE_CHECKING:
    from lakehouse.contracts.table import Table

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class Features:
    """The table's rows are features of an entity: a row says what was known at the end of its day.

    A row may be used from the end of its day on (00:00 UTC of the next), for `ttl`. Of several the newest counts.

    Attributes:
        entity: whom or what the rows are about, such as `user`; tables of one entity have the same key columns.
        key: columns that identify the entity; with the day column they are the table's key.
        ttl: how long after the end of its day a row may be used, the last moment included.
        while_open: online, rows of a day that is not over are served too, as a stream builds them: what is known so
            far. A training set never has them before the day's end.
    """

    entity: str
    key: tuple[str, ...]
    ttl: timedelta
    while_open: bool = False

    def __post_init__(self) -> None:
        check(
            unless(_is_name(self.entity), "features.entity", "a name of small letters, digits and _", repr(self.entity),
                   'Name whom the rows are about, such as "user".'),
            are_names("features.key", self.key),
            unless(is_time(self.ttl, timedelta.resolution), "features.ttl", "a time above zero", str(self.ttl),
                   "Write it as timedelta(days=7)."),
        )  # fmt: skip

    def columns(self, table: Table) -> tuple[str, ...]:
        """The features of a table: its columns but for key, partition and technical columns (`_…`), in order."""
        left_out = {*self.key, *table.key, *table.partition_by}
        return tuple(name for name in table.columns if name not in left_out and not name.startswith("_"))

    def valid_from(self, day: date) -> datetime:
        """The first moment at which the rows of a day may be used: the end of that day, UTC."""
        return datetime.combine(day + timedelta(days=1), time.min, UTC)

    def is_online(self, day: date, now: datetime) -> bool:
        """Whether the rows of a day are served at a moment."""
        has_begun = self.while_open and datetime.combine(day, time.min, UTC) < now
        return (has_begun or self.valid_from(day) <= now) and now <= self.valid_until(day)

    def valid_until(self, day: date) -> datetime:
        """The last moment at which the rows of a day may be used, UTC."""
        return self.valid_from(day) + self.ttl


def _is_name(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def feature_tables(tables: Iterable[Table], entity: str = "") -> list[Table]:
    """The tables that hold features, in their order.

    Args:
        tables: all there are.
        entity: only those of this one; empty: of all.
    """
    return [each for each in tables if each.features and entity in ("", each.features.entity)]
