"""Features of today, online: what a stream has built is put into Redis as soon as it is published.

The same rows are read from Delta that the load of a whole table reads, so a batch and a stream cannot give two numbers:
what is served of a day that is not over is what its table says of it, and at its end it is the day's last row.

Which days are still to be loaded is kept in memory alone. So whole tables are loaded at first, for a stream that was
killed may have published what it did not load, and once Redis lost something: its last second by a restart, or all by
a flush.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime

from lakehouse.build.result import PUBLISHED, BuildResult
from lakehouse.contracts import Table
from lakehouse.errors import OnlineDownError, OnlineError, OnlineRefusedError
from lakehouse.online.address import redis_url
from lakehouse.online.load import lake_now, load
from lakehouse.online.store import opened
from lakehouse.read.lake import Lake

REST = 60.0  # seconds in which a Redis that took nothing is not asked again: the stream waits for nobody


class OnlineToday:
    """Loads what a stream builds of tables whose features are served while a day is open.

    Args:
        lake: with an engine.
        tell: is told of what was not loaded, and why.
        which: whether a table is one of those that are loaded; all are by default.
        rest: seconds in which a Redis that took nothing is not asked again.
    """

    def __init__(
        self,
        lake: Lake,
        tell: Callable[[str], object],
        which: Callable[[Table], bool] = lambda _table: True,
        rest: float = REST,
    ) -> None:
        self._lake, self._tell, self._rest = lake, tell, rest
        self._owed: dict[str, set[date]] = {}
        self._owed_whole: set[str] = set()
        self._held = ""  # by Redis when it was last written to
        self._not_before = 0.0
        self._tables: Mapping[str, Table] = {
            name: each
            for name, each in lake.tables.items()
            if each.features and each.features.while_open and which(each)
        }

    def add(self, built: Mapping[str, BuildResult], now: datetime | None = None) -> int:
        """Load what was published; returns how many rows were written.

        Days that could not be loaded are loaded with the next ones. Rows of other days, and those that are gone, are a
        whole load's to see to.

        Args:
            built: by table, what a turn has built.
            now: the moment; None: by the clock.
        """
        return self.load({name: each.with_status(PUBLISHED) for name, each in built.items()}, now)

    def load(self, published: Mapping[str, Collection[date]], now: datetime | None = None) -> int:
        """As `add`, by the days that were published of each table."""
        for name in published.keys() & self._tables.keys():
            self._owed.setdefault(name, set()).update(published[name])
        if not self._tables or time.monotonic() < self._not_before:
            return 0
        written = 0
        try:
            self._look_for_a_loss()
            for name in sorted(self._owed_whole | self._owed.keys()):
                written += self._load(name, now)
        except (OnlineDownError, OnlineRefusedError) as error:
            self._not_before = time.monotonic() + self._rest
            self._tell(f"{error} The stream goes on; what it builds meanwhile is loaded later.")
        return written

    def _look_for_a_loss(self) -> None:
        with opened(redis_url(self._lake.settings)) as store:
            held = store.holding()
        if held != self._held:
            self._owed_whole = {name for name in self._tables if self._lake.snapshot(name).exists}
            self._held = held

    def _load(self, name: str, now: datetime | None) -> int:
        settings = self._lake.settings
        only = None if name in self._owed_whole else self._owed[name]
        moment = lake_now(settings.last_day, now)
        written = 0
        try:
            written = load(self._lake, redis_url(settings), self._tables[name], moment, only=only).put.written
        except (OnlineDownError, OnlineRefusedError):
            raise
        except OnlineError as error:  # of this table alone: somebody has to see to it, and others are loaded
            self._tell(str(error))
        self._owed.pop(name, None)
        self._owed_whole.discard(name)
        return written
