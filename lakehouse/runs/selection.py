"""Which tables and days somebody asks for, and which days the lakehouse has."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta

from lakehouse.catalog import lake_without_engine, landings, look_closely, tables
from lakehouse.errors import UnknownTableError, UsageError
from lakehouse.runs.listener import QUIET
from lakehouse.settings import Settings, get_settings
from lakehouse.sources.landing import landing_files
from lakehouse.texts import near

ENDED_AFTER_DAYS = 7
"""Days without a new file after which a lake's data counts as ended, when it is set up."""


def select_tables(selections: Sequence[str] | None) -> list[str]:
    """The selected tables by `layer.name`, upstream tables first.

    Args:
        selections: in Dagster's selection grammar, where a table may also be called `layer.name`; all that one of them
            selects; None: every table.

    Raises:
        UnknownTableError: where one matches nothing or is no selection.
    """
    known = list(tables())
    if not selections:
        return known
    chosen = set().union(*[_selected(each.strip(), known) for each in selections])
    return [name for name in known if name in chosen]


def _selected(selection: str, known: Sequence[str]) -> set[str]:
    if selection == "*":
        return set(known)
    if selection in known:
        return {selection}
    look_closely()
    # Only a selection needs all of Dagster's definitions, which take longer to load than most commands to run.
    from dagster import AssetSelection, DagsterError

    from lakehouse.definitions import defs

    text = selection
    for name in known:
        # A name that is not part of a longer one and not inside a quoted key.
        text = re.sub(rf'(?<![\w."/:]){re.escape(name)}(?![\w."/])', f'key:"{name.replace(".", "/")}"', text)
    try:
        keys = AssetSelection.from_string(text).resolve(defs.resolve_asset_graph())
    except DagsterError:
        keys = set()
    chosen = {".".join(key.path) for key in keys}
    if not chosen:
        # What was probably meant, for the question whether a near name was.
        tried = selection.replace("/", ".").replace('"', "").removeprefix("key:").strip("+* ")
        raise UnknownTableError(
            f"The selection {selection!r} matches no table.{near(tried, known)} Tables: {', '.join(known)}. "
            'Selections are Dagster\'s: key:"gold/*"+, group:silver, kind:pyspark; a name alone works too.'
        )
    return chosen


def check_days(settings: Settings, first: date | None, last: date | None) -> tuple[date, date]:
    """The range asked for, after checking that Dagster has partitions for it.

    Args:
        settings: whose first day it is.
        first: first day; None: nobody said.
        last: last day, inclusive; None: nobody said.

    Raises:
        UsageError: where a bound is missing, they are in the wrong order, or a day has no partition.
    """
    if first is None or last is None:
        landed = landed_range(settings)
        there = f" Files have landed for {landed[0]} … {landed[1]}." if landed else " No file has landed yet."
        asked = "Which days? Give --from DAY and --to DAY"
        if first or last:
            asked = f"--from {first} needs --to DAY" if first else f"--to {last} needs --from DAY"
        raise UsageError(f"{asked}, both inclusive.{there}")
    in_order(first, last)
    from lakehouse.orchestration.partitions import check_range

    check_range(first, last)
    return first, last


def in_order(first: date | None, last: date | None) -> None:
    """Refuse a range whose bounds are swapped; one that is open at an end is in order.

    Raises:
        UsageError: with the bounds.
    """
    if first and last and first > last:
        raise UsageError(f"--from {first} is after --to {last}; swap them.")


def in_the_lake(first: date | None, last: date | None, settings: Settings) -> None:
    """Refuse a range without a day of the lake: of no day, nothing is wrong, and a page would say that all is well.

    Raises:
        UsageError: with the lake's days.
    """
    if first is None and last is None:
        return
    begin, end = settings.first_day, last_partition()
    if (first and first > end) or (last and last < begin):
        asked = " ".join(f"{name} {day}" for name, day in (("--from", first), ("--to", last)) if day)
        raise UsageError(f"No day of the lake is in {asked}: its days are {begin} … {end}. Choose some of these.")


def last_partition() -> date:
    """The newest day with a partition (`lakehouse.orchestration.partitions`), for who has not loaded Dagster yet."""
    from lakehouse.orchestration import partitions

    return partitions.last_partition()


def fit_days(settings: Settings, say: Callable[[str], None] = QUIET.say) -> Settings:
    """Let the lake's days be those of its landed files: it begins with the first, and ends with a last that is old.

    Dagster then shows no thousands of empty partitions, and nothing is due that will never come. Nothing is written
    where the first or the last day was set by a variable or in `.env`.

    Args:
        settings: as they are.
        say: is told of new days.

    Returns:
        The settings from now on; what this process has loaded of Dagster's definitions stays as it is.
    """
    set_by_hand = Settings().model_fields_set & {"first_day", "last_day"}
    landed = landed_range(settings)
    if set_by_hand or landed is None:
        return settings
    # A file may have been tidied away since its rows were published, or be called as its source calls none any more:
    # its day stays one of the lake, or no run would build it again.
    built = _arrived(settings)
    begin, end = min({landed[0], *built}), max({landed[1], *built})
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    # A source that has been still for so long is a closed file of the past; else its next day may come tomorrow.
    ended = end if end < yesterday - timedelta(days=ENDED_AFTER_DAYS) else None
    if (settings.first_day, settings.last_day) != (begin, ended):
        settings.keep(first_day=begin, last_day=ended)
        told = f"to {ended}, its last" if ended else "on"
        say(f"The lake's days are those of its files, from {begin} {told} ({settings.own_file}).")
        # Whoever asks from now on gets them from the file that was just written.
        get_settings.cache_clear()
    return get_settings()


def _arrived(settings: Settings) -> set[date]:
    """The arrival days that landed tables have rows of."""
    lake = lake_without_engine(settings)
    landed = [table for table in lake.tables.values() if table.landing]
    return set[date]().union(*(lake.snapshot(table.id).by_day(table.day_column) for table in landed))


def landed_range(settings: Settings) -> tuple[date, date] | None:
    """First and last day for which any file has landed."""
    days = [file.arrival_date for each in landings().values() for file in landing_files(settings.root, each)]
    return (min(days), max(days)) if days else None
