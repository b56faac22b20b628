"""Several runs at the same time, each in a worker process with an engine of its own, followed by their events."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from rich.console import Console

from lakehouse.commands.console import days_text, quiet_warnings, room_in_log, say
from lakehouse.commands.progress import Bars, NoBars
from lakehouse.commands.reports import Report, RunReport, TableReport
from lakehouse.commands.runs import Follower, close_abandoned
from lakehouse.orchestration.chunks import Chunk, next_of
from lakehouse.settings import Settings

if TYPE_CHECKING:
    from dagster import DagsterInstance, DagsterRun

    from lakehouse.runs.worker import Worker

LOOK_EVERY = 0.2  # seconds
LAST_WAIT = 30.0  # seconds a worker has to end: a little more than it gives its own run
HOPELESS = 3  # workers in a row that ended before their run began: the next ones would too


def run_chunks(
    settings: Settings, chunks: Sequence[Chunk], at_once: int, *, force: bool = False, verbose: bool = False
) -> Report:
    """Execute one Dagster run for each chunk, so many at the same time, with a progress bar.

    A run whose worker is killed is closed as failed, and the others go on. Ctrl-C or SIGTERM interrupts all of them
    and starts no more; once more, it kills them.

    Args:
        settings: where the lakehouse is.
        chunks: what to run, and what waits for what.
        at_once: most runs at the same time.
        force: build days again whose inputs and code have not changed.
        verbose: show the log instead of the progress bar.
    """
    quiet_warnings()
    from lakehouse.catalog import tables
    from lakehouse.orchestration.instance import opened_instance

    names = [name for name in tables() if any(name in chunk.piece.tables for chunk in chunks)]
    report = Report({name: TableReport(name) for name in names}, at_once=at_once)
    totals = {name: sum(len(c.piece.days) for c in chunks if name in c.piece.tables) for name in names}
    shown = sys.stderr.isatty() and not verbose
    bars = Bars(Console(file=sys.stderr), totals) if shown else NoBars()
    began = time.perf_counter()
    with opened_instance(settings) as instance:
        close_abandoned(instance)
        log = None if verbose else room_in_log(settings)
        with bars, _interrupts() as interrupts:
            team = _Team(settings, instance, chunks, report, bars, log, force=force, verbose=verbose)
            try:
                team.work(at_once, interrupts, tell=not shown)
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
    bars: NoBars
    log: Path | None
    force: bool
    verbose: bool
    idle: list[Worker] = field(default_factory=list)
    running: list[_Running] = field(default_factory=list)
    started: set[int] = field(default_factory=set)
    over: set[int] = field(default_factory=set)
    steps: Counter[tuple[str, str]] = field(default_factory=Counter)
    stopped: bool = False
    lost: int = 0  # workers in a row that ended before their run began

    def work(self, at_once: int, interrupts: _Interrupts, *, tell: bool) -> None:
        """Go on until nothing runs and nothing more can be started."""
        deadline = float("inf")
        while True:
            for each in [*self.running]:
                self._look_at(each, tell)
            if interrupts.number and not self.stopped:
                self.stopped = self.report.interrupted = True
                say("Stopping the runs; Ctrl-C once more kills them. What is published stays.")
                for each in self.running:
                    each.worker.dismiss()
                deadline = time.monotonic() + LAST_WAIT
            if interrupts.number > 1 or time.monotonic() > deadline:
                for each in self.running:
                    each.worker.kill()
            goes_on = not self.stopped and self.lost < HOPELESS
            while goes_on and len(self.running) < at_once and self._start_next():
                pass
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

    def _start_next(self) -> bool:
        from lakehouse.catalog import tables
        from lakehouse.runs.executing import create_run
        from lakehouse.runs.worker import Worker

        place = next_of(self.chunks, self.started, self.over)
        if place is None:
            return False
        piece = self.chunks[place].piece
        run = create_run(
            self.instance,
            piece.tables,
            piece.first,
            piece.last,
            force=self.force,
            backfill=True,
            not_published=self.report.not_published(piece, tables()),
            log_level="INFO" if self.verbose else "CRITICAL",
        )
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

    def _look_at(self, each: _Running, tell: bool) -> None:
        """Take in what a run has said since the last look, and whether it is over."""
        ended = each.worker.ended()  # before reading what it has left
        stored = self.instance.get_run_by_id(each.run.run_id)
        finished = stored is None or stored.is_finished
        self._follow(each)
        if not finished and ended is None:
            limit = float(each.run.tags.get("dagster/max_runtime", "inf"))
            if time.perf_counter() - each.began > limit and not each.why:
                each.why = f"ran longer than {limit:.0f} s and was ended"
                each.worker.kill()
            return
        if not finished and stored is not None:
            self._close(each, stored, ended or "")
            self._follow(each)
            stored = self.instance.get_run_by_id(each.run.run_id)
        run = each.follower.run
        run.status = stored.status.value if stored else "UNKNOWN"
        run.seconds = time.perf_counter() - each.began
        each.follower.finish(self.instance)
        self.running.remove(each)
        self.over.add(each.place)
        self.idle += [each.worker] * (ended is None)
        if tell:
            piece = run.piece
            done = f"{len(self.over)} of {len(self.chunks)}"
            days, names = days_text(piece.days), ", ".join(piece.tables)
            say(f"Run {done}: {run.status.lower()} after {run.seconds:.1f} s: {days} of {names}")

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
        from lakehouse.orchestration.instance import close_run

        why = f"its process {each.why or ended}"
        close_run(self.instance, stored, f"The run was not finished: {why}.", canceled=self.stopped)
        if self.stopped:
            return
        each.follower.run.error = why
        begun = stored.status.value != "NOT_STARTED"
        self.lost = 0 if begun else self.lost + 1
        if self.lost >= HOPELESS:
            each.follower.run.error += f", as {HOPELESS} before it; see {self.settings.root / 'logs' / 'engine.log'}"

    def _step(self, table: str, state: str, days: int) -> None:
        """A table's bar ends with its last run only."""
        self.steps[table, state] += 1
        ends = self.steps[table, "end"] + self.steps[table, "failed"]
        last = ends == sum(table in chunk.piece.tables for chunk in self.chunks)
        self.bars.step(table, state if state != "end" or last else "day", days)

    def _note_the_rest(self) -> None:
        """Days of runs that were not started any more."""
        for place, chunk in enumerate(self.chunks):
            for name in chunk.piece.tables if place not in self.started else ():
                self.report.tables[name].skipped |= dict.fromkeys(chunk.piece.days, "its run was not started any more")
