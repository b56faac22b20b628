"""Build what a batch touched: the stale days of every table that reads its table, directly or not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from enum import Enum, auto
from itertools import chain

from lakehouse.build import open_days
from lakehouse.build.build import build
from lakehouse.build.grow import may_grow
from lakehouse.build.plan import input_days, make_plan
from lakehouse.build.result import BuildResult
from lakehouse.build.stale import changed_days, known_days, turned_down
from lakehouse.contracts import Table
from lakehouse.contracts.graph import all_downstream
from lakehouse.read.lake import Lake
from lakehouse.records.history import judgements


class Which(Enum):
    """Which of the tables that read a table."""

    ALL = auto()
    GROWING = auto()
    """Those whose days can be added to, which is quick."""
    WHOLE = auto()
    """The others, beside the turns of a stream that build those."""


def each_built(lake: Lake, source: Table, run_id: str, which: Which = Which.ALL) -> Iterator[BuildResult]:
    """Build the days of every table that reads a table, directly or not, whose inputs have changed.

    One after the other, each told once it is built: what was committed is known, whatever the next one meets.

    A day that fails its audit holds up nothing: what reads it goes on with its last good rows. It is not built again by
    the same run until its inputs change: it would fail again. Days that only changed code makes stale are left to
    `backfill --older-code`: no message waits while years are built anew. Of tables that look back on earlier days, no
    day is built that has not begun: its rows would say what is known at its end.

    Args:
        lake: where the tables are and what computes them.
        source: the table that has changed.
        run_id: recorded in the commits.
        which: of the tables.
    """
    left = dict[str, set[date]]()  # days of tables built here that are left for later
    for each in followers(lake, source):
        if which is not Which.ALL and may_grow(each, lake) != (which is Which.GROWING):
            continue
        days = _due(lake, each, run_id)
        if which is Which.WHOLE:
            left[each.id] = _too_early(lake, each, days, run_id, left)
            days = [day for day in days if day not in left[each.id]]
        if days:
            yield build(lake, each, days, run_id=run_id)


def followers(lake: Lake, source: Table) -> list[Table]:
    """Every table that reads a table, directly or not, upstream tables first."""
    return [lake.table(name) for name in all_downstream(lake.tables, source.id)]


def _too_early(
    lake: Lake, table: Table, days: Collection[date], run_id: str, left: Mapping[str, Collection[date]]
) -> set[date]:
    """Those of some days that are closed, and read what a turn is still to add to or what is left for later as well.

    The messages that close a day are taken before they are in what it reads: it would be judged as a whole without.
    """
    closed = set(days) - open_days.still_open(lake, table, days, open_days.present())
    found = set[date]()
    for each in table.upstream.values() if closed else ():
        read = {day: input_days(each, day) for day in closed}
        coming = left.get(each.table, ())
        if may_grow(source := lake.table(each.table), lake):
            # Now, after it was seen which days are closed: what closed them is known of here, too. A day of which
            # nothing is known has no rows, and no turn will ever build it.
            coming = _due(lake, source, run_id, known_days(lake, source).intersection(chain(*read.values())))
        found |= {day for day in closed if not set(read[day]).isdisjoint(coming)}
    return found


def _due(lake: Lake, table: Table, run_id: str, among: Collection[date] | None = None) -> list[date]:
    """The days whose inputs have changed since they were built, restored, or found bad by this run; none to come."""
    changed = changed_days(lake, table, among)
    restored = turned_down(lake, table, changed)
    days = _begun(table, (day for day in changed if day not in restored))
    found = judgements(lake.settings.root, table.id, days) if days else {}
    tried = {day: each.figures.get("tried") for day, each in found.items() if each.run_id == run_id}
    tried = {day: fingerprint for day, fingerprint in tried.items() if fingerprint is not None}
    if not tried:
        return days
    now = make_plan(lake, table, sorted(tried)).fingerprints
    return [day for day in days if day not in tried or tried[day] != now[day]]


def _begun(table: Table, days: Iterable[date]) -> list[date]:
    """The days without those to come, where a day has rows by what other days hold."""
    today = datetime.now(UTC).date()
    return [day for day in days if day <= today or not table.reads_other_days]
