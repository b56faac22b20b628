"""Data-aware automation: what has landed or changed is built, and so is what reads it, day by day.

There is no list of seen files that could be lost: a day is due when its published fingerprint is not that of the inputs
which are there now. The cursor only remembers what was asked for, so that a day which fails is not asked for again
until its inputs change. Dagster stores the cursor together with the runs it is about to start.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

from dagster import (
    DagsterRun,
    DefaultSensorStatus,
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    sensor,
)
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from lakehouse.build import open_days
from lakehouse.build.plan import make_plan
from lakehouse.build.stale import changed_days, has_news_of_files, tidied_days, turned_down
from lakehouse.build.verdicts import refused_from_another
from lakehouse.catalog import landings, tables
from lakehouse.contracts import Table
from lakehouse.contracts.graph import all_downstream, all_upstream
from lakehouse.days import end_of, is_younger
from lakehouse.delta.snapshot import fingerprint
from lakehouse.orchestration.backfills import still_to_come
from lakehouse.orchestration.cursor import Cursor, Days
from lakehouse.orchestration.due_reasons import what_happened
from lakehouse.orchestration.ended import Ended, ended_days
from lakehouse.orchestration.instance import (
    STARTED_AGAIN,
    checks_of,
    close_abandoned_runs,
    days_of_run,
    partition_tags,
    table_of,
    unfinished_runs,
)
from lakehouse.orchestration.lake_state import state_of
from lakehouse.orchestration.metadata import asset_key
from lakehouse.orchestration.pieces import Piece, bridged, pieces_of
from lakehouse.orchestration.run_tags import AUTOMATIC, DAYS_TAG, WHY_TAG, span_text
from lakehouse.privacy.alone import erasure_is_on
from lakehouse.read.lake import Lake, PinnedLake
from lakehouse.records.history import latest_records
from lakehouse.settings import Settings, get_settings
from lakehouse.sources.landing import landing_files
from lakehouse.texts import days_text

INTERVAL = 20  # seconds
SETTLES_IN = 10.0  # seconds after which a landed file is taken to be whole
WAITS_FOR_FILES = 60.0  # most seconds that a day whose files come all day long waits for a moment without a new one
_ERASES = "A `lakehouse forget` is on, which builds what it changes. All else that is due waits for its end."
# What crashed is started again by Dagster; what failed for its data is not, until the data changes.
TAGS = {AUTOMATIC: "true", **STARTED_AGAIN}


@dataclass(frozen=True)
class Decision:
    """What is to be run now, what is remembered, why nothing is run, and why each piece is."""

    pieces: Sequence[Piece]
    cursor: Cursor
    reason: str
    why: Sequence[str] = ()


class Findings(NamedTuple):
    """What one look at the lake finds, each day with the state of its inputs.

    Attributes:
        asked: was asked for, and has not changed since.
        due: is to be built now.
        waits: somebody ended its run, or restored it: it waits until its input changes, or a person launches it.
        later: days that are due once a run, a backfill or a file is finished.
    """

    asked: Days
    due: Days
    waits: Days
    later: set[date]


class _Look(NamedTuple):
    """As `Findings`, of the days of one table."""

    asked: dict[date, int]
    due: dict[date, int]
    waits: dict[date, int]
    later: set[date]


def automation_sensor(job: UnresolvedAssetJobDefinition) -> SensorDefinition:
    """The sensor over a job that holds every table; `LAKEHOUSE_AUTO_DAYS=0` leaves it switched off."""

    @sensor(
        name="landed",
        job=job,
        minimum_interval_seconds=INTERVAL,
        default_status=DefaultSensorStatus.RUNNING if get_settings().auto_days else DefaultSensorStatus.STOPPED,
        description="Builds the days whose files have landed or changed, then exactly the days these touch in other "
        "tables. Code that changes makes no run: that is what lakehouse backfill --older-code is for.",
    )
    def landed(context: SensorEvaluationContext) -> SensorResult:
        now = time.time()
        settings, moment = get_settings(), datetime.fromtimestamp(now, UTC)
        close_abandoned_runs(context.instance)
        if erasure_is_on(settings.root):
            # It builds table by table, all that it touches. What is begun between two of its runs is built twice, and
            # where it still is on when old files are to go, the erasure ends with an error.
            return SensorResult([], cursor=context.cursor, skip_reason=_ERASES)
        assert context.repository_def is not None
        # Of the checks, the job has those of days only.
        graph = context.repository_def.get_job(job.name).asset_layer.asset_graph
        made = decide(
            PinnedLake(settings, tables()),
            Cursor.of(context.cursor, now),
            unfinished_runs(context.instance),
            leave=still_to_come(context.instance, graph),
            ended=ended_days(context.instance, list(tables())),
            last=open_days.newest_partition(settings, tables(), moment),
            limit=settings.auto_days or 31,
            now=now,
        )
        requests = [
            _request(piece, made.cursor.count, why, graph) for piece, why in zip(made.pieces, made.why, strict=True)
        ]
        reason = " ".join(filter(None, [made.reason, outside(settings, moment)]))
        return SensorResult(requests, cursor=made.cursor.text(), skip_reason=None if requests else reason)

    return landed


def decide(
    lake: Lake,
    cursor: Cursor,
    runs: Sequence[DagsterRun],
    *,
    leave: Mapping[str, Collection[date]] | None = None,
    ended: Ended | None = None,
    last: date,
    limit: int,
    now: float,
) -> Decision:
    """What to run next, decided from logs and landed files.

    Tables are asked for where nothing they read is still due, together with all that reads them, for the same days;
    days beyond these that turn out to be touched come with a later look.

    Args:
        lake: without an engine.
        cursor: what was asked for before.
        runs: that are not finished.
        leave: by table, days that a backfill of the daemon is still to build.
        ended: days whose newest run was cancelled.
        last: newest partition.
        limit: most days at once, the oldest first.
        now: seconds since the epoch.
    """
    if any(AUTOMATIC in run.tags for run in runs):
        return Decision([], cursor, "The runs asked for before are not over.")
    ended = ended or Ended()
    state = state_of(lake, last, ended, datetime.fromtimestamp(now, UTC))
    # As a rule it ends here: every look costs the listings that the digest is made of, and nothing more.
    if state == cursor.seen:
        return Decision([], cursor, f"Nothing has landed or changed.{cursor.waiting}")
    found = _findings(lake, cursor, runs, leave or {}, ended, last, now)
    roots = _roots(lake, found.due)
    # The oldest first: windows look back, so later days are built on what is there by then.
    chosen = sorted(set().union(*roots.values()))[:limit]
    return _request_of(lake, cursor, found, roots, chosen) if chosen else _nothing_now(cursor, found, state)


def _roots(lake: Lake, due: Days) -> Days:
    """Of what is due, the tables that read nothing that is due as well."""
    below = {name for name in due if any(map(due.get, all_upstream(lake.tables, lake.table(name))))}
    return {name: days for name, days in due.items() if days and name not in below}


def _nothing_now(cursor: Cursor, found: Findings, state: str) -> Decision:
    # Where something is left for later, the next look must not end at "nothing has changed".
    seen, reason = (
        ("", "What is due waits for runs, backfills or files that are not finished.")
        if found.later
        else (state, "Everything is built.")
    )
    left = Cursor(cursor.count, seen, found.asked, found.waits)
    return Decision([], left, reason + left.waiting)


def _request_of(lake: Lake, cursor: Cursor, found: Findings, roots: Days, chosen: Collection[date]) -> Decision:
    # A run may span days that are up to date, but none that failed, waits, or comes later.
    leave_out = found.later.union(*found.asked.values(), *found.due.values(), *found.waits.values()) - set(chosen)
    now_due = {name: {day: state for day, state in days.items() if day in chosen} for name, days in roots.items()}
    pieces = _pieces(lake, now_due, leave_out)
    why = [_why(lake, piece, roots) for piece in pieces]
    # Remembered with the state of its inputs: what failed is not asked for again until these are others.
    asked = found.asked | {name: found.asked.get(name, {}) | days for name, days in now_due.items()}
    return Decision(pieces, Cursor(cursor.count + 1, "", asked, found.waits), "", why)


def _pieces(lake: Lake, due: Days, leave: Collection[date]) -> list[Piece]:
    """Runs over the days of some tables, and the same days of all that reads them."""
    found: dict[str, set[date]] = {}
    for name, days in due.items():
        for each in (name, *all_downstream(lake.tables, name)):
            found.setdefault(each, set()).update(days)
    stay = {name: {*leave, *tidied_days(lake, lake.table(name), days)} for name, days in found.items()}
    return pieces_of({name: bridged(days, leave=stay[name]) for name, days in found.items()}, list(lake.tables))


def _why(lake: Lake, piece: Piece, roots: Days) -> str:
    due = {name: set(days).intersection(piece.days) for name, days in roots.items()}
    return what_happened(lake, due) or f"stale: {', '.join(name for name, days in due.items() if days)}"


def _findings(
    lake: Lake,
    cursor: Cursor,
    runs: Sequence[DagsterRun],
    leave: Mapping[str, Collection[date]],
    ended: Ended,
    last: date,
    now: float,
) -> Findings:
    looks: dict[str, _Look] = {}
    for name, table in lake.tables.items():
        if days := _changed(lake, table, last, now):
            busy = _days_of_runs(runs, name).union(leave.get(name, ()), _still_landing(lake, table, days, now))
            looks[name] = _look(lake, table, days, cursor, ended, busy)
    return Findings(
        asked={name: each.asked for name, each in looks.items() if each.asked},
        due={name: each.due for name, each in looks.items()},
        waits={name: each.waits for name, each in looks.items() if each.waits},
        later=set[date]().union(*(each.later for each in looks.values())),
    )


def _changed(lake: Lake, table: Table, last: date, now: float) -> list[date]:
    """The days with a partition whose inputs have changed, but for an open one that something else builds."""
    first, is_over = lake.settings.first_day, now >= end_of(last).timestamp()
    changed = [day for day in changed_days(lake, table) if first <= day <= last]
    return [day for day in changed if day < last or is_over or _builds_open(lake, table, day)]


def _look(
    lake: Lake, table: Table, days: Sequence[date], cursor: Cursor, ended: Ended, busy: Collection[date]
) -> _Look:
    """What becomes of the changed days of a table, some of which a run, a backfill or a file keeps busy."""
    name = table.id
    # What a bound refused is asked for again once the bound is another, of which the fingerprint knows nothing.
    prints = make_plan(lake, table, days).fingerprints
    states = {day: fingerprint([str(inputs), table.policy_version]) for day, inputs in prints.items()}
    interrupted = ended.interrupted.get(name, ())
    before = {day: state for day, state in cursor.asked.get(name, {}).items() if day not in interrupted}
    # A file may be written anew just while the run reads it: what was asked for then, that run has not judged.
    same = {day: prints[day] for day in days if before.get(day) == states[day]}
    if refused := refused_from_another(lake, table, same):
        newest = ended.tried(name)
        before = {day: state for day, state in before.items() if day not in refused or newest.get(day) != refused[day]}
    # As the input was when it was asked for, or when its end was first seen.
    known = before | cursor.ended.get(name, {})
    mine = [day for day in days if day in ended.by_somebody.get(name, ())]
    waits = {day: states[day] for day in mine if known.get(day, states[day]) == states[day]}
    waits |= {day: states[day] for day in turned_down(lake, table, days)}
    asked = {day: before[day] for day in days if before.get(day) == states[day]}
    fresh = {day: states[day] for day in days if day not in {*asked, *waits}}
    later = set(busy).intersection(fresh)
    due = {day: state for day, state in fresh.items() if day not in later}
    # What a look leaves for later stays known as it was: a file that came after somebody ended the run, and was
    # still young at this look, would else pass for the input of the run that was ended.
    return _Look(asked | {day: known[day] for day in later if day in known}, due, waits, later)


def _builds_open(lake: Lake, table: Table, day: date) -> bool:
    """Whether the day that is on is built as its rows come: a stream builds what it brings rows to by itself."""
    if not open_days.takes_today(lake.settings, lake.tables, table):
        return False
    return not open_days.has_messages(lake, table) or has_news_of_files(lake, table, day)


def _days_of_runs(runs: Sequence[DagsterRun], name: str) -> set[date]:
    """The days of a table that runs are building, or will."""
    return {day for run in runs if _covers(run, name) for day in days_of_run(run.tags)}


def outside(settings: Settings, now: datetime) -> str:
    """Which landed files are not built yet, being of a day that is not over or after the last; empty: none."""
    days = set[date]()
    for each in landings().values():
        last = settings.last_day or open_days.newest_arrival(each, now)
        days |= {file.arrival_date for file in landing_files(settings.root, each, last + timedelta(days=1))}
    if not days:
        return ""
    if settings.last_day is None:
        return f"Files of {days_text(sorted(days))} wait until their day is over (UTC)."
    return (
        f"Files of {len(days)} day(s) after {settings.last_day}, the lake's last, are not built (the newest: "
        f"{max(days)}): change LAKEHOUSE_LAST_DAY."
    )


def _covers(run: DagsterRun, name: str) -> bool:
    return run.asset_selection is None or name in {table_of(key) for key in run.asset_selection}


def _still_landing(lake: Lake, table: Table, days: Collection[date], now: float) -> set[date]:
    """Days with a file that may still be written by a program that does not put it in its place in one step."""
    if table.landing is None:
        return set()
    files = landing_files(lake.settings.root, table.landing, min(days), max(days))
    # A file may keep the time of another machine, whose clock is ahead.
    landing = {file.arrival_date for file in files if is_younger(file.mtime_ns / 1e9, now, SETTLES_IN)}
    if not landing or not table.landing.during_day:
        return landing
    # A file every few seconds would keep an open day from ever being built; what is read in part is read again.
    built = latest_records(lake.settings.root, table.id, landing, figures=())
    since = {day: built[day].at.timestamp() if day in built else 0.0 for day in landing}
    waited = [each for each in files if since.get(each.arrival_date, now) < each.ctime_ns / 1e9 < now - WAITS_FOR_FILES]
    return landing - {each.arrival_date for each in waited}


def _request(piece: Piece, count: int, why: str, graph: BaseAssetGraph[Any]) -> RunRequest:
    names = {**partition_tags(piece.first, piece.last), DAYS_TAG: span_text(piece.first, piece.last), WHY_TAG: why}
    return RunRequest(
        run_key=f"{count}/{piece.first}/{piece.last}/{','.join(piece.tables)}",
        asset_selection=[asset_key(name) for name in piece.tables],
        asset_check_keys=sorted(checks_of(graph, piece.tables)),
        tags={**names, **TAGS},
    )
