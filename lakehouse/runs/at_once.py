"""Several runs at the same time, each in a worker process, followed by their events."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from dagster import DagsterInstance, DagsterRun

from lakehouse.catalog import tables
from lakehouse.orchestration.chunks import Chunk, next_of
from lakehouse.orchestration.instance import close_run, opened_instance
from lakehouse.runs.engine_log import engine_log
from lakehouse.runs.executing import PLAIN, Asked, create_run
from lakehouse.runs.follower import Follower
from lakehouse.runs.listener import QUIET, Listener
from lakehouse.runs.reports import Report, RunReport, TableOutcome
from lakehouse.runs.running import close_abandoned
from lakehouse.runs.worker import Worker
from lakehouse.settings import Settings
from lakehouse.spark.warm import begin, is_wanted
from lakehouse.texts import days_text

LOOK_EVERY = 0.2  # seconds
LAST_WAIT = 30.0  # seconds a worker has to end: a little more than it gives its own run
HOPELESS = 3  # workers in a row that ended before their run began: the next ones would too


def run_chunks(
    settings: Settings, chunks: Sequence[Chunk], at_once: int, *, asked: Asked = PLAIN, listener: Listener = QUIET
) -> Report:
    """Execute one Dagster run for each chunk, so many at the same time, each in a worker process.

    A run whose worker is killed is closed as failed, and the others go on. Ctrl-C or SIGTERM interrupts all of them
    and starts no more; once more, it kills them.

    Args:
        settings: where the lakehouse is.
        chunks: what to run, and what waits for what.
        at_once: most runs at the same time.
        asked: how the runs are to build.
        listener: is told of every step, day and ended run.
    """
    names = [name for name in tables() if any(name in chunk.piece.tables for chunk in chunks)]
    report = Report({name: TableOutcome(name) for name in names}, at_once=at_once)
    days = {name: sum(len(c.piece.days) for c in chunks if name in c.piece.tables) for name in names}
    asked = replace(asked, backfill=True, verbose=listener.verbose)
    began = time.perf_counter()
    if is_wanted(engine := settings.for_backfill()):
        begin(engine)  # here: one that a worker starts would be as nice as the worker, also to live runs
    with opened_instance(settings) as instance:
        close_abandoned(instance, listener.say)
        with listener.elsewhere(days), _interrupts() as interrupts:
            log = None if listener.verbose else engine_log(settings)  # once: it may begin a new file
            team = _Team(settings, instance, chunks, report, listener, asked, log)
            try:
                team.work(at_once, interrupts)
            finally:
                team.end()
    report.elapsed = time.perf_counter() - began
    return report


@dataclass
class _Interrupts:
    """How often a person, or the system, has asked this process to end."""

    number: int = 0


@contextmanager
def _interrupts() -> Iterator[_Interrupts]:
    """Count interrupts instead of being thrown out in the middle of something."""
    counted = _Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield counted
        return

    def count(*_: object) -> None:
        counted.number += 1

    before = {number: signal.signal(number, count) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield counted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class _Running:
    """A run in the hands of a worker."""

    place: int
    run: DagsterRun
    worker: Worker
    follower: Follower
    began: float
    cursor: str | None = None
    why: str = ""  # this process ended the worker, and why


@dataclass
class _Team:
    """The workers, what they do now, and what is over."""

    settings: Settings
    instance: DagsterInstance
    chunks: Sequence[Chunk]
    report: Report
    listener: Listener
    asked: Asked
    log: Path | None  # of the workers' engines; None: the terminal
    idle: list[Worker] = field(default_factory=list)
    running: list[_Running] = field(default_factory=list)
    started: set[int] = field(default_factory=set)
    over: set[int] = field(default_factory=set)
    steps: Counter[tuple[str, str]] = field(default_factory=Counter)
    stopped: bool = False
    lost: int = 0  # workers in a row that ended before their run began

    def work(self, at_once: int, interrupts: _Interrupts) -> None:
        """Go on until nothing runs and nothing more can be started.

        Args:
            at_once: most runs at the same time.
            interrupts: the first one asks the workers to end, the second one, or LAST_WAIT without an answer, kills.
        """
        deadline = float("inf")
        while True:
            for each in [*self.running]:
                self._look_at(each)
            if interrupts.number and not self.stopped:
                deadline = time.monotonic() + LAST_WAIT
                self._stop()
            if interrupts.number > 1 or time.monotonic() > deadline:
                for each in self.running:
                    each.worker.kill()
            self._fill_up(at_once)
            if not self.running:
                break
            time.sleep(LOOK_EVERY)
        self._note_the_rest()

    def end(self) -> None:
        """Leave no worker behind."""
        workers = [*self.idle, *(each.worker for each in self.running)]
        for worker in workers:
            worker.dismiss()
        for worker in workers:
            worker.wait(LAST_WAIT)

    def _stop(self) -> None:
        self.stopped = self.report.interrupted = True
        self.listener.say("Stopping the runs; Ctrl-C once more kills them. What is published stays.")
        for each in self.running:
            each.worker.dismiss()

    def _fill_up(self, at_once: int) -> None:
        goes_on = not self.stopped and self.lost < HOPELESS
        while goes_on and len(self.running) < at_once and self._start_next():
            pass

    def _start_next(self) -> bool:
        place = next_of(self.chunks, self.started, self.over)
        if place is None:
            return False
        piece = self.chunks[place].piece
        run = create_run(
            self.instance,
            piece.tables,
            piece.first,
            piece.last,
            self.asked,
            not_published=self.report.not_published(piece, tables()),
        )
        # A worker keeps its engine, which takes seconds to start; one that has ended while idle is not used again.
        worker = self.idle.pop() if self.idle else None
        if worker is None or worker.ended():
            with self._output() as output:
                worker = Worker(self.settings, output)
        worker.give(run.run_id)
        follower = Follower(RunReport(run.run_id, piece), self.report.tables, tables(), self._step)
        self.report.runs.append(follower.run)
        self.running.append(_Running(place, run, worker, follower, time.perf_counter()))
        self.started.add(place)
        return True

    @contextmanager
    def _output(self) -> Iterator[IO[bytes] | None]:
        if self.log is None:
            yield None
            return
        with self.log.open("ab") as opened:
            yield opened

    def _look_at(self, each: _Running) -> None:
        """Take in what a run has said since the last look, and whether it is over."""
        # First whether the worker has ended, then what it has left: the other way round its last words would be lost.
        ended = each.worker.ended()
        stored = self.instance.get_run_by_id(each.run.run_id)
        finished = stored is None or stored.is_finished
        self._follow(each)
        if not finished and ended is None:
            self._hold_to_its_time(each)
            return
        # It was killed between two events: its run is closed here, and what that says is read like any other event.
        if not finished and stored is not None:
            self._close(each, stored, ended or "")
            self._follow(each)
            stored = self.instance.get_run_by_id(each.run.run_id)
        self._end_of(each, stored, reusable=ended is None)

    def _hold_to_its_time(self, each: _Running) -> None:
        """Dagster's monitor looks only at runs of its own daemon, so this process keeps the limit of its runs."""
        limit = float(each.run.tags.get("dagster/max_runtime", "inf"))  # seconds
        if time.perf_counter() - each.began > limit and not each.why:
            each.why = f"ran longer than {limit:.0f} s and was ended"
            each.worker.kill()

    def _end_of(self, each: _Running, stored: DagsterRun | None, *, reusable: bool) -> None:
        run = each.follower.run
        run.status = stored.status.value if stored else "UNKNOWN"
        run.seconds = time.perf_counter() - each.began
        each.follower.finish(self.instance)
        self.running.remove(each)
        self.over.add(each.place)
        self.idle += [each.worker] if reusable else []
        done = f"{len(self.over)} of {len(self.chunks)}"
        days, names = days_text(run.piece.days), ", ".join(run.piece.tables)
        self.listener.run_over(f"Run {done}: {run.status.lower()} after {run.seconds:.1f} s: {days} of {names}")

    def _follow(self, each: _Running) -> None:
        more = True
        while more:
            found = self.instance.get_records_for_run(each.run.run_id, each.cursor)
            for record in found.records:
                entry = record.event_log_entry
                if entry.dagster_event is not None:
                    each.follower.see(entry.dagster_event, entry.timestamp)
            each.cursor, more = found.cursor, found.has_more

    def _close(self, each: _Running, stored: DagsterRun, ended: str) -> None:
        """The worker is gone, and its run is not over."""
        why = f"its process {each.why or ended}"
        close_run(self.instance, stored, f"The run was not finished: {why}.", canceled=self.stopped)
        if self.stopped:
            return
        each.follower.run.error = why
        # Workers that never begin are no fault of the data: a missing library or a full disk would end every next one.
        begun = stored.status.value != "NOT_STARTED"
        self.lost = 0 if begun else self.lost + 1
        if self.lost >= HOPELESS:
            each.follower.run.error += f", as {HOPELESS} before it; see {self.settings.root / 'logs' / 'engine.log'}"

    def _step(self, table: str, state: str, days: int) -> None:
        """A table's bar ends with its last run only."""
        self.steps[table, state] += 1
        ends = self.steps[table, "end"] + self.steps[table, "failed"]
        last = ends == sum(table in chunk.piece.tables for chunk in self.chunks)
        self.listener.step(table, state if state != "end" or last else "day", days)

    def _note_the_rest(self) -> None:
        """Days of runs that were not started any more."""
        for place, chunk in enumerate(self.chunks):
            for name in chunk.piece.tables if place not in self.started else ():
                self.report.tables[name].skipped |= dict.fromkeys(chunk.piece.days, "its run was not started any more")
