"""Why days are due, in the few words that a run's page has room for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date

from lakehouse.build.intake.closings import Closings, closings_read
from lakehouse.build.late import accepted_through, late_rows
from lakehouse.build.plan import as_open, make_plan
from lakehouse.contracts import Input, Table
from lakehouse.delta.log import snapshot_at
from lakehouse.delta.transactions import day_transaction
from lakehouse.errors import HistoryGoneError
from lakehouse.orchestration.run_tags import LONGEST
from lakehouse.read.lake import Lake
from lakehouse.records.history import latest_records


def what_happened(lake: Lake, due: Mapping[str, Collection[date]]) -> str:
    """What has happened that some days of tables are due, in a few words.

    Args:
        lake: without an engine.
        due: days by table.
    """
    told: dict[str, None] = {}
    for name, days in due.items():
        if not days:
            continue
        table = lake.table(name)
        built = latest_records(lake.settings.root, name, days, figures=("inputs",))
        if _have_closed(lake, table, days):
            told[f"the day is over, of {name}"] = None
        elif table.landing is not None:
            told[f"{_of_landing(lake, table, days)} {name}"] = None
        taken_in = _taken_in(lake, table, days)
        if taken_in:
            told[f"late rows taken in by {name}"] = None
        others = [day for day in days if day not in taken_in]
        inputs = {day: built[day].inputs for day in others if day in built}
        for each in table.upstream.values():
            version = lake.snapshot(each.table).version
            if not all(day in inputs and inputs[day].get(each.table) == version for day in others):
                told[_of_input(lake, each, others, inputs)] = None
    return "; ".join(told)[:LONGEST]


def _taken_in(lake: Lake, table: Table, days: Collection[date]) -> set[date]:
    """The days whose late rows were all accepted, and still are in quarantine: they are due without a new input."""
    if table.allowed_lateness is None or table.landing is not None:
        return set()
    accepted = accepted_through(table, lake.snapshot(table.quarantine_id), days)
    waiting = late_rows(lake, table, accepted) if accepted else {}
    return {day for day, (_, last) in waiting.items() if last <= accepted[day]}


def _of_input(lake: Lake, each: Input, days: Collection[date], built: Mapping[date, Mapping[str, int]]) -> str:
    """What has happened to an input since days were built from these versions, by table."""
    if each.hours_close_after is not None and _closed_since(lake, each, built):
        return f"hours of {each.table} were closed"
    newest = _newest_late(lake, each.table, days)
    return f"late rows in {each.table} {newest}" if newest else f"{each.table} has changed"


def _of_landing(lake: Lake, table: Table, days: Collection[date]) -> str:
    """What has happened to some days of a landed table: its name follows."""
    published = lake.snapshot(table.id).transaction
    return "files landed for" if any(published(day_transaction(day)) is None for day in days) else "files changed for"


def _have_closed(lake: Lake, table: Table, days: Collection[date]) -> bool:
    """Whether days are due for no other reason than that they were open when they were built, and are not any more."""
    published, made_of = lake.snapshot(table.id).transaction, make_plan(lake, table, sorted(days)).fingerprints
    return all(published(day_transaction(day)) == as_open(made_of[day]) for day in days)


def _closed_since(lake: Lake, each: Input, built: Mapping[date, Mapping[str, int]]) -> bool:
    """Whether hours of some days were closed since these were built from versions of an input, by table."""
    after = each.hours_close_after
    assert after is not None
    now, then = closings_read(lake, each, lake.snapshot(each.table)), dict[int, Closings]()
    for day, versions in built.items():
        version = versions.get(each.table, -1)
        if version not in then:
            then[version] = _closings_at(lake, each, version)
        if now.of(day, after) != then[version].of(day, after):
            return True
    return False


def _closings_at(lake: Lake, each: Input, version: int) -> Closings:
    """As the log told it then; nothing where it does not tell that version any more."""
    try:
        return closings_read(lake, each, snapshot_at(lake.path(each.table), version)) if version >= 0 else Closings()
    except HistoryGoneError:
        return Closings()


def _newest_late(lake: Lake, name: str, days: Collection[date]) -> str:
    """The newest arrival day that brought rows of some earlier event days; empty where none did."""
    source = lake.table(name)
    if source.content_day_column == source.day_column:
        return ""
    by_day = lake.snapshot(name).by_day(source.content_day_column)
    arrivals = {(file.partition[0] or "", day) for day in days for file in by_day.get(day, ())}
    return max((arrived for arrived, day in arrivals if arrived > str(day)), default="")
