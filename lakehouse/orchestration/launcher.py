"""How Dagster's daemon starts runs: each is forked from a process that has the libraries loaded (`starter`).

Dagster's own launcher has its code server start a new Python for each run, which loads them for seconds.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self, TextIO

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus
from dagster._core.errors import DagsterLaunchFailedError
from dagster._core.launcher import CheckRunHealthResult, LaunchRunContext, RunLauncher, WorkerStatus
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import ConfigurableClass, ConfigurableClassData, serialize_value

from lakehouse.orchestration import starter
from lakehouse.orchestration.backfills import broken_backfill_of
from lakehouse.orchestration.ended import BY_SOMEBODY
from lakehouse.orchestration.instance import OWNER_TAG, has_process, is_gone, owner_tag, process_of

LOOK_EVERY = 0.05  # seconds
ANSWER_SECONDS = 120.0  # a busy machine loads the libraries for a while
_BEFORE = (DagsterRunStatus.NOT_STARTED, DagsterRunStatus.STARTING)


class Launcher(RunLauncher[DagsterInstance], ConfigurableClass):
    """Starts runs as processes of this machine, ends them, and knows whether they are there."""

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        self._inst_data = inst_data
        self._lock = threading.Lock()
        self._starters: dict[str, _Starter] = {}
        self._launched: set[str] = set()
        super().__init__()  # type: ignore[no-untyped-call]

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        """What `dagster.yaml` says of it."""
        return self._inst_data

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        """Nothing to configure."""
        return {}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]) -> Self:
        """As Dagster makes it."""
        del config_value
        return cls(inst_data)

    def launch_run(self, context: LaunchRunContext) -> None:
        """Start the run's process, and record it as the run's owner.

        Raises:
            DagsterLaunchFailedError: no process could be started.
        """
        run = context.dagster_run
        origin = context.job_code_origin
        if origin is None:
            raise _failed(f"Run {run.run_id} does not say where the code of its job is.")
        order = serialize_value(
            ExecuteRunArgs(origin, run.run_id, self._instance.get_ref(), set_exit_code_on_failure=True)
        )
        process = self._started(origin.repository_origin.executable_path or sys.executable, json.dumps(order))
        self._launched.add(run.run_id)
        self._instance.add_run_tags(run.run_id, {OWNER_TAG: owner_tag(process, run.run_id)})

    def _started(self, python: str, order: str) -> int:
        with self._lock:
            for _ in range(2):  # one that was killed meanwhile is replaced
                each = self._starters.pop(python, None) or _Starter(python)
                if (process := each.start(order)) is not None:
                    self._starters[python] = each
                    return process
                each.end()
        raise _failed(f"The process that starts runs ends at once: {python} -m {starter.__name__}.")

    def terminate(self, run_id: str) -> bool:
        """Interrupt the run's process; False where it is over or on another machine."""
        broken = broken_backfill_of(self._instance, run_id)
        # Looked at last: one that ends while it is looked at would count as stopped, though everything is built.
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return False
        self._instance.report_run_canceling(
            run, f"Backfill {broken} broke, and ends its runs." if broken else BY_SOMEBODY
        )
        if run.status in _BEFORE and not has_process(run):
            # Its process takes seconds to come, for the first run; it then ends before its first step.
            self._instance.report_run_canceled(run)
            return True
        process = process_of(run)
        if process is None or is_gone(run):
            self._instance.report_engine_event("No process of this machine executes the run.", run, cls=type(self))
            return False
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGINT)
            return True
        return False

    @property
    def supports_check_run_worker_health(self) -> bool:
        """It does: Dagster's monitor closes runs whose process is gone."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Whether the run's process is there; one of another machine is taken to be."""
        if is_gone(run):
            return CheckRunHealthResult(WorkerStatus.FAILED, "The run's process is gone.")
        return CheckRunHealthResult(WorkerStatus.RUNNING)

    def join(self, timeout: int = 30) -> None:
        """Wait until what was launched is over; as Dagster's own launcher, for tests."""
        deadline = time.monotonic() + timeout
        while self._launched and time.monotonic() < deadline:
            runs = [self._instance.get_run_by_id(run_id) for run_id in self._launched]
            self._launched = {run.run_id for run in runs if run is not None and not run.is_finished}
            time.sleep(LOOK_EVERY)

    def dispose(self) -> None:
        """Let the starters end; runs go on."""
        with self._lock:
            while self._starters:
                self._starters.popitem()[1].end()


class _Starter:
    """The process that runs are forked from, as its parent sees it."""

    def __init__(self, python: str) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen([python, "-W", "ignore", "-m", starter.__name__], stdin=theirs.fileno())
        ours.settimeout(ANSWER_SECONDS)
        self._socket = ours
        self._answers: TextIO = ours.makefile("r")

    def start(self, order: str) -> int | None:
        """The process of a run; None where this one is gone.

        Raises:
            DagsterLaunchFailedError: it does not answer. Nobody else is asked, for the run may have begun; and it is
                killed, so that neither this order nor the next is carried out later, by it too.
        """
        try:
            self._socket.sendall(f"{order}\n".encode())
            answer = self._answers.readline()
        except TimeoutError as error:
            self._process.kill()
            self.end()
            raise _failed("The process that starts runs did not answer.") from error
        except OSError:
            return None
        return int(answer) if answer else None

    def end(self) -> None:
        """Let it end, which it does at once."""
        self._answers.close()
        self._socket.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)


def _failed(why: str) -> DagsterLaunchFailedError:
    return DagsterLaunchFailedError(why)  # type: ignore[no-untyped-call]
