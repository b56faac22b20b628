"""Why days are due, in the few words that a run's page has room for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date

from lakehouse.build.intake.closings import Closings, closings_read
from lakehouse.build.late import accepted_through
from lakehouse.build.made_from import DayStates
from lakehouse.build.plan import as_open, input_days, make_plan, neighbours
from lakehouse.contracts import Input, Table
from lakehouse.delta.log import snapshot_at
from lakehouse.delta.snapshot import Snapshot
from lakehouse.delta.transactions import day_transaction
from lakehouse.errors import HistoryGoneError
from lakehouse.orchestration.run_tags import LONGEST
from lakehouse.read.lake import Lake
from lakehouse.records.history import latest_records, records


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
        if _have_closed(lake, table, days):
            told[f"the day is over, of {name}"] = None
        elif table.landing is not None:
            told[f"{_of_landing(lake, table, days)} {name}"] = None
        inputs = _built_from(lake, table, days)
        if _took_in(lake, table, days, inputs):
            told[f"late rows taken in by {name}"] = None
        for each in table.upstream.values():
            if said := _of_input(lake, table, each, days, inputs):
                told[said] = None
    return "; ".join(told)[:LONGEST]


def _built_from(lake: Lake, table: Table, days: Collection[date]) -> dict[date, Mapping[str, int]]:
    """By day, from which version of each input it was built last; none of a day that never was."""
    if not table.upstream:
        return {}
    root, figures = lake.settings.root, ("inputs",)
    found = {day: each.inputs for day, each in latest_records(root, table.id, days, figures).items()}
    # Who restores reads no input, and has seen what the build before was made from.
    if restored := [day for day, inputs in found.items() if not inputs]:
        found |= {each.day: each.inputs for each in records(root, table.id, restored, figures) if each.inputs}
    return found


def _took_in(lake: Lake, table: Table, days: Collection[date], built: Mapping[date, Mapping[str, int]]) -> bool:
    """Whether late rows of a day were accepted, and nothing else has happened to it."""
    if table.allowed_lateness is None or table.landing is not None:
        return False
    accepted = accepted_through(table, lake.snapshot(table.quarantine_id), days)
    inputs = table.upstream.values()
    return any(not any(_of_input(lake, table, each, [day], built) for each in inputs) for day in accepted)


def _of_input(
    lake: Lake, table: Table, each: Input, days: Collection[date], built: Mapping[date, Mapping[str, int]]
) -> str:
    """What has happened to an input since days were built from these versions, by table; empty: nothing they read."""
    if all(built.get(day, {}).get(each.table) == lake.snapshot(each.table).version for day in days):
        return ""
    if each.hours_close_after is not None and _closed_since(lake, each, built):
        return f"hours of {each.table} were closed"
    others = _read_otherwise(lake, table, each, days, built)
    if not others:
        return ""
    newest = _newest_late(lake, each.table, others)
    return f"late rows in {each.table} {newest}" if newest else f"{each.table} has changed"


def _read_otherwise(
    lake: Lake, table: Table, each: Input, days: Collection[date], built: Mapping[date, Mapping[str, int]]
) -> dict[date, Snapshot | None]:
    """The days of an input that some days would read other rows of now than they were built from; any publish is new.

    Each with the input as it was then; None where it was never read, or the log does not tell that version any more.
    """
    by_version: dict[int, set[date]] = {}
    for day in days:
        reads = {read for near in (day, *neighbours(table, day)) for read in input_days(each, near)}
        by_version.setdefault(built.get(day, {}).get(each.table, -1), set()).update(reads)
    source, found = lake.table(each.table), dict[date, Snapshot | None]()
    now = DayStates(source, lake.snapshot(each.table))
    for version, reads in by_version.items():
        before = _snapshot_then(lake, each.table, version)
        if before is None:
            found |= dict.fromkeys(read for read in reads if now.rows.get(read))
        else:
            then = DayStates(source, before)
            found |= dict.fromkeys((read for read in reads if now.identity(read) != then.identity(read)), before)
    return found


def _snapshot_then(lake: Lake, name: str, version: int) -> Snapshot | None:
    """A table as its log told it at a version; None where it does not tell that version any more, or never had it."""
    try:
        return snapshot_at(lake.path(name), version)
    except HistoryGoneError:
        return None


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
            snapshot = _snapshot_then(lake, each.table, version)
            then[version] = closings_read(lake, each, snapshot) if snapshot else Closings()
        if now.of(day, after) != then[version].of(day, after):
            return True
    return False


def _newest_late(lake: Lake, name: str, days: Mapping[date, Snapshot | None]) -> str:
    """The newest arrival day that brought rows of some earlier event days since then; empty where none did."""
    source = lake.table(name)
    column = source.content_day_column
    if column == source.day_column:
        return ""
    now, arrivals = lake.snapshot(name).by_day(column), set[tuple[str, date]]()
    for day, before in days.items():
        known = {file.first_name for file in before.by_day(column).get(day, ())} if before else set()
        arrivals |= {(file.partition[0] or "", day) for file in now.get(day, ()) if file.first_name not in known}
    return max((arrived for arrived, day in arrivals if arrived > str(day)), default="")
