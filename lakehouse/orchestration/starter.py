"""The process that runs are forked from: it has loaded the libraries, which is most of what the start of a run takes.

It gets an order a line on its standard input, a socket, and answers with the process of the run. Each run is watched by
a process of its own, which closes it where it is killed. Code of the lakehouse is loaded by each run for itself: it is
always that of the files as they are. When the socket closes, since the daemon has ended, it ends; its runs go on.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import signal
import socket
import sys
from typing import NoReturn

# What runs load, directly or by their first use. Any that is missing here is loaded by each run.
LIBRARIES = (
    "dagster", "dagster._cli.api", "dagster._core.definitions.external_asset", "dagster._core.execution.plan.active",
    "dagster._core.execution.plan.instance_concurrency_context", "dagster._core.storage.root",
    "dagster._core.storage.local_compute_log_manager", "dagster._core.storage.runs", "dagster._core.storage.schedules",
    "dagster._core.types.primitive_mapping", "dagster._core.types.transform_typing", "dagster_pyspark", "deltalake",
    "filelock", "google.protobuf", "grpc", "pandera.pyspark", "pyarrow.compute", "pyarrow.parquet", "pydantic_settings",
    "pyspark.sql.connect.session", "structlog", "tenacity", "watchdog.observers.polling",
)  # fmt: skip
_CANNOT_FORK = {"darwin"}  # its system libraries break in a process that was forked


def main() -> None:
    """Serve until the socket closes; in the process of a run, execute the run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the runs
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a watcher ended
    if sys.platform not in _CANNOT_FORK:
        for name in LIBRARIES:
            importlib.import_module(name)
        gc.freeze()  # else the first look for garbage copies what all runs share
    with socket.socket(fileno=os.dup(0)) as orders:
        order = _next(orders)
    if order is not None:
        _execute(order)


def _next(orders: socket.socket) -> str | None:
    """Fork for each order; returns the order in the process of a run, and None at the end."""
    with orders.makefile("r") as lines:
        for order in lines:
            if os.fork():
                continue
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is there for as long as the run is
            _close_input()
            if (process := os.fork()) == 0:
                return order
            orders.sendall(f"{process}\n".encode())
            lines.close()
            orders.close()  # else nobody would notice the end of the starter
            _watch(process, order)
    return None


def _close_input() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _watch(process: int, order: str) -> NoReturn:
    """Wait for the run's process, and close the run where it left it open."""
    code = 1
    try:
        _, status = os.waitpid(process, 0)
        if code := os.waitstatus_to_exitcode(status):  # it did not succeed, and may not have said so
            _close(order, code)
    finally:
        os._exit(code != 0)


def _close(order: str, code: int) -> None:
    from dagster import DagsterInstance, DagsterRunStatus
    from dagster._grpc.types import ExecuteRunArgs
    from dagster._serdes import deserialize_value

    from lakehouse.orchestration.instance import close_run

    asked = deserialize_value(json.loads(order), ExecuteRunArgs)
    assert asked.instance_ref is not None
    with DagsterInstance.from_ref(asked.instance_ref) as instance:
        run = instance.get_run_by_id(asked.run_id)
        if run is None or run.is_finished:
            return
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        canceled = run.status is DagsterRunStatus.CANCELING
        close_run(instance, run, f"The run was not finished: its process {how}.", canceled=canceled)


def _execute(order: str) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    arguments = ["api", "execute_run", json.loads(order)]
    if sys.platform in _CANNOT_FORK:
        os.execv(sys.executable, [sys.executable, "-m", "dagster", *arguments])  # noqa: S606  # no shell
    random.seed()  # else each run draws what the one before drew
    from dagster._cli import cli

    cli(arguments, prog_name="dagster", standalone_mode=False)


if __name__ == "__main__":
    main()
