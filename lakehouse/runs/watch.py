"""What has become of a backfill of Dagster's daemon, told from the events of its runs."""

from __future__ import annotations

from datetime import date

from dagster import DagsterEventType as Of
from dagster import DagsterInstance, DagsterRun

# Dagster (1.13) has no public name for its own backfills.
from dagster._core.execution.backfill import PartitionBackfill

from lakehouse.build.plan import input_days
from lakehouse.catalog import tables
from lakehouse.errors import DaemonError
from lakehouse.orchestration.backfills import backfill_of, is_over, runs_of, state_of, tables_of, target_of
from lakehouse.orchestration.instance import days_of_run
from lakehouse.orchestration.pieces import Piece
from lakehouse.runs.executing import asset_graph
from lakehouse.runs.follower import Follower
from lakehouse.runs.listener import QUIET, Listener
from lakehouse.runs.reports import Report, RunReport, TableOutcome
from lakehouse.runs.running import close_abandoned
from lakehouse.texts import program

_TYPES = {
    Of.STEP_START,
    Of.ASSET_MATERIALIZATION,
    Of.ASSET_CHECK_EVALUATION,
    Of.STEP_UP_FOR_RETRY,
    Of.STEP_SUCCESS,
    Of.STEP_FAILURE,
    Of.STEP_SKIPPED,
    Of.RUN_FAILURE,
}
_REPLACED_BY = "dagster/auto_retry_run_id"  # of a run that crashed: Dagster has started this one in its place


class Watch:
    """What has become of a backfill, told from the events of its runs: by table and day, as of the last look.

    The daemon takes note of materialized days every few seconds, and of reasons never.
    """

    def __init__(self, instance: DagsterInstance, backfill_id: str, listener: Listener = QUIET) -> None:
        self._instance = instance
        self._listener = listener
        self._followers: dict[str, Follower] = {}
        self._cursors: dict[str, str | None] = {}
        self._over: set[str] = set()
        self._starts_again = False
        self._replaced: set[str] = set()
        self.backfill = _found(instance, backfill_id)
        self.target = target_of(self.backfill, asset_graph())
        self.report = Report({name: TableOutcome(name) for name in self.target})
        self.running: dict[str, set[date]] = {}
        """By table, the days of runs that are on and that have not materialized them yet."""

    def look(self) -> None:
        """Take note of what has happened since the last look."""
        close_abandoned(self._instance, self._listener.say)  # of killed processes: the daemon would wait for them
        self.backfill = _found(self._instance, self.backfill.backfill_id)
        self.running = {}
        runs = runs_of(self._instance, self.backfill.backfill_id)
        # A run that crashed is over for Dagster's storage, but the daemon is about to make another one in its place.
        self._starts_again = any(run.is_complete_and_waiting_to_retry for run in runs)
        self._replaced = {run.run_id for run in runs if _REPLACED_BY in run.tags}
        for run in runs:
            if run.run_id in self._over:
                continue
            follower = self._followers.get(run.run_id) or self._begin(run)
            follower.run.status = run.status.value
            self._feed(run, follower)
            if run.is_finished:
                self._end(run, follower)
            elif run.status.value != "QUEUED":
                for name in follower.run.piece.tables:
                    self.running.setdefault(name, set()).update(set(follower.run.piece.days) - self._told(name))

    @property
    def waiting(self) -> dict[str, set[date]]:
        """By table, the days that no run has begun with."""
        return {name: days - self._told(name) - self.running.get(name, set()) for name, days in self.target.items()}

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen: the daemon may take a few seconds more to say so."""
        if len(self._over) < len(self._followers) or self._starts_again:
            return False
        # The daemon closes a backfill late: where every day is told of and no run is left, it is over.
        return is_over(self.backfill) or (bool(self._over) and not any(self.waiting.values()))

    def close(self) -> None:
        """Name the days that no run was made for, once it is over; forget runs that crashed and were started again."""
        self.report.runs = [run for run in self.report.runs if run.run_id not in self._replaced]
        for name, days in self.waiting.items():
            for day in days:
                self.report.tables[name].skipped[day] = self._why_never(name, day)

    def _begin(self, run: DagsterRun) -> Follower:
        days = days_of_run(run.tags) or sorted(set().union(*self.target.values()))
        names = tuple(name for name in tables_of(run) if name in self.report.tables)
        made = RunReport(run.run_id, Piece(names, days[0], days[-1]))
        follower = Follower(made, self.report.tables, tables(), self._listener.step)
        self._followers[run.run_id] = follower
        self.report.runs.append(made)
        return follower

    def _feed(self, run: DagsterRun, follower: Follower) -> None:
        more = True
        while more:
            found = self._instance.get_records_for_run(
                run.run_id, cursor=self._cursors.get(run.run_id), of_type=_TYPES, limit=1000
            )
            for record in found.records:
                if (event := record.event_log_entry.dagster_event) is not None:
                    follower.see(event)
            self._cursors[run.run_id] = found.cursor
            more = found.has_more

    def _end(self, run: DagsterRun, follower: Follower) -> None:
        record = self._instance.get_run_record_by_id(run.run_id)
        if record is not None and record.start_time and record.end_time:
            follower.run.seconds = record.end_time - record.start_time
        follower.finish(self._instance)
        self._over.add(run.run_id)

    def _told(self, name: str) -> set[date]:
        report = self.report.tables[name]
        return {*report.published, *report.unchanged, *report.failed, *report.skipped}

    def _why_never(self, name: str, day: date) -> str:
        for each in tables()[name].upstream.values():
            upstream = self.report.tables.get(each.table)
            if upstream is not None and not {*upstream.failed, *upstream.skipped}.isdisjoint(input_days(each, day)):
                return f"waits for {each.table}"
        return f"no run was started for it; the backfill is {state_of(self.backfill)}"


def _found(instance: DagsterInstance, backfill_id: str) -> PartitionBackfill:
    backfill = backfill_of(instance, backfill_id)
    if backfill is None:
        raise DaemonError(
            f"There is no backfill {backfill_id} under this root: `{program()} backfills list` names all."
        )
    return backfill
