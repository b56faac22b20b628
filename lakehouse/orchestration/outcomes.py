"""How runs ended, by table, kept beside the state of Dagster's event log: Dagster itself takes seconds to import.

What is kept is used as long as the lake has the same days and nothing was written to the event log since, which holds
all else that decides it: what runs were to build, what they built, and how they ended. At the first look after that,
the event log's file is read as it is: most often each day that a run was to build is built, and no more has to be
known. Where one is not, and where Dagster's state is in another database, Dagster is asked. The kept file may be
removed at any time.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakehouse import catalog, store
from lakehouse.build.open_days import newest_partition

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from lakehouse.settings import Settings

EVENT_LOG = "event_log.db"
# Nanoseconds. A file may be written twice within one tick of the clock that its times are of, and would look the same
# after the second time.
SETTLED_NS = 2 * 10**9

_OUR_STORAGE = re.compile(  # as the `dagster.yaml` beside this file has it
    r"^event_log_storage:\n +module: lakehouse\.orchestration\.state\n +class: EventLog$", re.MULTILINE
)
_A_DAY_LEFT = """
    SELECT 1 FROM (
        SELECT max(id) FILTER (WHERE dagster_event_type = 'ASSET_MATERIALIZATION_PLANNED') AS planned,
               max(id) FILTER (WHERE dagster_event_type = 'ASSET_MATERIALIZATION') AS built
        FROM event_logs
        WHERE asset_key = :asset AND partition BETWEEN :first AND :last
          AND dagster_event_type IN ('ASSET_MATERIALIZATION_PLANNED', 'ASSET_MATERIALIZATION')
        GROUP BY partition
    ) WHERE planned > coalesce(built, 0) LIMIT 1
"""  # that a run was to build and has not built
_ASSET = "SELECT last_materialization, wipe_timestamp FROM asset_keys WHERE asset_key = :asset"

State = list[list[int] | None]


@dataclass(frozen=True)
class Outcomes:
    """How the newest runs of a table's days have ended.

    Attributes:
        unfinished: days whose newest run was to build them, did not, and is over.
        by_somebody: those of them whose run somebody ended.
        materialized_at: when a run last said of a day that it is built; None: never.
        underway: days whose newest run is to build them, and is not over.
    """

    unfinished: frozenset[date] = frozenset()
    by_somebody: frozenset[date] = frozenset()
    materialized_at: datetime | None = None
    underway: frozenset[date] = frozenset()


def outcomes(settings: Settings, tables: Sequence[str], *, settled_ns: int = SETTLED_NS) -> dict[str, Outcomes]:
    """By table, how the newest runs of its days have ended. Dagster is not imported where nothing has happened since.

    Args:
        settings: where the lakehouse is.
        tables: by `layer.name`.
        settled_ns: nanoseconds since the event log's last change, after which what it says is kept.
    """
    home = settings.dagster_home
    if not store.exists(home / "dagster.yaml"):
        return {name: Outcomes() for name in tables}
    state = _state(settings)
    kept = _read(settings.root, state)
    if kept is not None and kept.keys() >= set(tables):
        return {name: kept[name] for name in tables}
    if (built := _all_built(settings, tables)) is not None:
        if _is_to_be_kept(settings, state, settled_ns):
            _write(settings.root, state, {**(kept or {}), **built})
        return built
    from lakehouse.orchestration.event_log import BatchedSqliteEventLogStorage
    from lakehouse.orchestration.instance import instance_to_read

    with instance_to_read(settings) as instance:
        found, over = asked(instance, tables)
        ours = isinstance(instance.event_log_storage, BatchedSqliteEventLogStorage)
    if ours and over and _is_to_be_kept(settings, state, settled_ns):
        _write(settings.root, state, {**(kept or {}), **found})
    return found


def asked(instance: DagsterInstance, tables: Sequence[str]) -> tuple[dict[str, Outcomes], bool]:
    """What Dagster's instance says, and whether every run that was to build a day and has not built it is over."""
    from lakehouse.orchestration.ended import End, ends
    from lakehouse.orchestration.metadata import asset_key

    found = {}
    tried = ends(instance, tables)
    for table, days in tried.items():
        event = instance.get_latest_materialization_event(asset_key(table))
        found[table] = Outcomes(
            frozenset(day for day, end in days.items() if end is not None),
            frozenset(day for day, end in days.items() if end is End.BY_SOMEBODY),
            datetime.fromtimestamp(event.timestamp, UTC) if event else None,
            frozenset(day for day, end in days.items() if end is None),
        )
    return found, not any(each.underway for each in found.values())


def _all_built(settings: Settings, tables: Sequence[str]) -> dict[str, Outcomes] | None:
    """By table, as Dagster would say; None where a day was not built that a run was to build, or it cannot be told.

    The tables and columns of Dagster's that are read here, and what they mean, are those that Dagster itself reads for
    the same questions; tests compare the two after any history of runs.
    """
    home = settings.dagster_home
    if not _OUR_STORAGE.search(store.read_text(home / "dagster.yaml")):
        return None
    first, last = settings.first_day, newest_partition(settings, catalog.tables(), datetime.now(UTC))
    found = dict[str, Outcomes]()
    try:
        with closing(sqlite3.connect(f"{(home / EVENT_LOG).as_uri()}?mode=ro", uri=True)) as log:
            for name in tables:
                about = {"asset": json.dumps(name.split(".")), "first": str(first), "last": str(last)}
                newest, wiped = log.execute(_ASSET, about).fetchone() or (None, None)
                # Of what somebody wiped, Dagster leaves out what was before.
                if wiped or log.execute(_A_DAY_LEFT, about).fetchone():
                    return None
                at = json.loads(newest)["event_log_entry"]["timestamp"] if newest else None
                found[name] = Outcomes(materialized_at=None if at is None else datetime.fromtimestamp(at, UTC))
    except (sqlite3.Error, ValueError, KeyError, TypeError):  # none yet, damaged, or of another Dagster
        return None
    return found


def _state(settings: Settings) -> State:
    """The days of the lake, and whether the event log was written to: its files, the write-ahead log's among them."""
    last = newest_partition(settings, catalog.tables(), datetime.now(UTC))
    home, days = settings.dagster_home, (settings.first_day, last)
    where = int(hashlib.sha256(store.read(home / "dagster.yaml")).hexdigest()[:15], 16)
    found: State = [[where, *(day.toordinal() for day in days)]]
    for name in (EVENT_LOG, f"{EVENT_LOG}-wal"):
        facts = store.stat(home / name)
        # SQLite makes an empty write-ahead log for whoever only reads, and removes it at the end. To one that is there
        # it gives the owner of the file anew, as root: then it was changed, and not written.
        times = [facts.modified_ns, facts.changed_ns if name == EVENT_LOG else facts.modified_ns] if facts else []
        found.append([*facts.identity, *times] if facts and facts.size else None)
    return found


def _is_to_be_kept(settings: Settings, state: State, settled_ns: int) -> bool:
    """Whether what was found at a state of the log is still so, and its next change is going to be seen."""
    _, log, ahead = state
    settled = log is not None and all(time.time_ns() - max(each[-2:]) > settled_ns for each in (log, ahead or log))
    return settled and state == _state(settings)


def _place(root: Path) -> Path:
    return root / "cache" / "outcomes.json"


def _read(root: Path, state: State) -> dict[str, Outcomes] | None:
    try:
        held = json.loads(store.read_text(_place(root)))
        if held["state"] != state or state[1] is None:
            return None
        return {name: _outcomes(each) for name, each in held["tables"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # none yet, or damaged
        return None


def _outcomes(held: Mapping[str, Any]) -> Outcomes:
    at = held["materialized_at"]
    return Outcomes(
        frozenset(map(date.fromisoformat, held["unfinished"])),
        frozenset(map(date.fromisoformat, held["by_somebody"])),
        datetime.fromisoformat(at) if at else None,
    )


def _write(root: Path, state: State, found: Mapping[str, Outcomes]) -> None:
    tables = {
        name: {
            "unfinished": sorted(map(str, each.unfinished)),
            "by_somebody": sorted(map(str, each.by_somebody)),
            "materialized_at": each.materialized_at.isoformat() if each.materialized_at else None,
        }
        for name, each in found.items()
    }
    with suppress(OSError):  # where nothing can be written, Dagster is asked each time
        place = _place(root)
        store.make_folder(place.parent)
        store.put(place, json.dumps({"state": state, "tables": tables}))
