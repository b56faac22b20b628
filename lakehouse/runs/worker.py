"""A process that executes the runs another process hands it, one after the other on one warm engine.

Its orders are run ids, a line each, on standard input. When that closes, because there is nothing more to do, somebody
pressed Ctrl-C or the other process is gone, however it went, the worker interrupts the run it is in and ends: so no
worker is ever left behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import IO

from dagster import DagsterInstance, DagsterRunStatus

from lakehouse.orchestration.instance import claim_run, close_run, opened_instance
from lakehouse.runs.executing import execute
from lakehouse.settings import Settings, get_settings

GRACE = 20.0  # seconds an interrupted run has to end before its process does
NICER = 5  # backfills leave the processor to live runs, whose engines are not started by a worker


class Worker:
    """A worker as the process that started it sees it.

    Args:
        settings: where the lakehouse is.
        output: file that takes what engine and Dagster print; None: standard error.
    """

    def __init__(self, settings: Settings, output: IO[bytes] | None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "lakehouse.runs.worker"],
            stdin=subprocess.PIPE,
            stdout=output or 2,
            stderr=output or 2,
            env=os.environ | {"LAKEHOUSE_ROOT": str(settings.root)},
            # Ctrl-C at the terminal is for the parent alone, which closes the input; twice would be once too often.
            start_new_session=True,
        )

    def ended(self) -> str | None:
        """How it ended, in words; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"

    def give(self, run_id: str) -> None:
        """Hand over a run, once the last one is over. A worker that is gone takes none; `ended` says so."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{run_id}\n".encode())
            self._process.stdin.flush()

    def dismiss(self) -> None:
        """Let it end: at once where it is idle, else after it has interrupted its run."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def wait(self, seconds: float) -> None:
        """Wait for its end, and kill it if that does not come in time."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()

    def kill(self) -> None:
        """End it whatever it does; its engine ends with it."""
        self._process.kill()


class _Orders:
    """Run ids from standard input, read in a thread, since its end has to be noticed in the middle of a run."""

    def __init__(self, source: IO[str], instance: DagsterInstance) -> None:
        self._source, self._instance = source, instance
        self._waiting: SimpleQueue[str] = SimpleQueue()
        self._run_id = ""
        self._busy, self._left = threading.Event(), threading.Event()
        threading.Thread(target=self._listen, name="orders", daemon=True).start()

    def next(self) -> str | None:
        """The next run's id; None where there will be no more."""
        self._busy.clear()
        self._run_id = self._waiting.get()
        self._busy.set()
        return None if self._left.is_set() else self._run_id

    def _listen(self) -> None:
        for line in self._source:
            self._waiting.put(line.strip())
        self._left.set()
        self._waiting.put("")
        if self._busy.is_set():
            with suppress(Exception):  # the process ends whether or not this can be written
                run = self._instance.get_run_by_id(self._run_id)
                if run is not None and not run.is_finished:
                    self._instance.report_run_canceling(run)  # else an interrupt between two steps is a failure
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        threading.Event().wait(GRACE)
        os._exit(1)  # reached only where the process is still there


def main() -> None:
    """Execute runs until the input ends."""
    # Shells start background jobs with SIGINT ignored, and their children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.nice(NICER)
    with opened_instance(get_settings()) as instance:
        orders = _Orders(sys.stdin, instance)
        while run_id := orders.next():
            _execute(instance, run_id)


def _execute(instance: DagsterInstance, run_id: str) -> None:
    run = instance.get_run_by_id(run_id)
    if run is None or run.is_finished:
        return
    claim_run(instance, run)
    run = instance.get_run_by_id(run_id)
    assert run is not None
    for _ in execute(instance, run):
        pass
    stored = instance.get_run_by_id(run_id)
    if stored is not None and not stored.is_finished:
        canceled = stored.status is DagsterRunStatus.CANCELING
        close_run(instance, stored, "Its execution ended without saying how.", canceled=canceled)


if __name__ == "__main__":
    main()
