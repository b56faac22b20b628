"""Build what a batch touched: the stale days of every table that reads its table, directly or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from enum import Enum, auto

from lakehouse.build.build import build
from lakehouse.build.grow import may_grow
from lakehouse.build.result import BuildResult
from lakehouse.build.stale import stale_days
from lakehouse.contracts import Table
from lakehouse.read.lake import Lake


class Which(Enum):
    """Which of the tables that read a table."""

    ALL = auto()
    GROWING = auto()
    """Those whose days can be added to, which is quick."""
    WHOLE = auto()
    """The others."""


def build_followers(lake: Lake, source: Table, run_id: str, which: Which = Which.ALL) -> Mapping[str, BuildResult]:
    """Build the stale days of every table that reads a table, directly or not; tables without such days are left out.

    A day that fails its audit holds up nothing: what reads it goes on with its last good rows. Of tables that look back
    on earlier days, no day is built that has not begun: its rows would say what is known at its end.

    Args:
        lake: where the tables are and what computes them.
        source: the table that has changed.
        run_id: recorded in the commits.
        which: of the tables.
    """
    built = dict[str, BuildResult]()
    for each in followers(lake, source):
        is_one = which is Which.ALL or may_grow(each, lake) == (which is Which.GROWING)
        if is_one and (days := _begun(each, stale_days(lake, each))):
            built[each.id] = build(lake, each, days, run_id=run_id)
    return built


def followers(lake: Lake, source: Table) -> list[Table]:
    """Every table that reads a table, directly or not, upstream tables first."""
    reached, found = {source.id}, list[Table]()
    for each in lake.tables.values():  # upstream tables come first
        if reached.intersection(read.table for read in each.upstream.values()):
            reached.add(each.id)
            found.append(each)
    return found


def _begun(table: Table, days: Iterable[date]) -> list[date]:
    """The days without those to come, where a day has rows by what other days hold."""
    today = datetime.now(UTC).date()
    return [day for day in days if day <= today or not table.reads_other_days]
