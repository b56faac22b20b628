"""A process with an engine of its own that carries out orders and may be killed anywhere: both ends of the line.

One engine is started and warmed, without touching delta-rs, for the tests of every module here that has orders. For each order the process forks: the child carries it out
with the failpoint of the order set, while the parent waits. At a failpoint the engine is idle, so killing the child
there is what killing process and engine would be. An order that is not forked ends only when the process group is
killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lakehouse.spark.session import start
from lakehouse_tests.conftest import ALONE, engine_settings
from lakehouse_tests.fixtures.bridge import remember_names

KILLED = "killed"
MOST_SECONDS = 60.0  # until an order begins to write


class EngineProcess:
    """The process, from outside; started by the first order, and anew by the first one after it was killed."""

    def __init__(self, folder: Path) -> None:
        self.answer, self._stderr = folder / "answer.json", folder / "stderr"
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def send(self, order: dict[str, Any]) -> None:
        """Tell it what to do."""
        if self._process is None:
            with self._stderr.open("a") as errors:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", __name__, str(self._folder)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
                    env=os.environ | ALONE,
                )  # fmt: skip
            self.line()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def line(self) -> str:
        """What it says next."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.complaint()
        return line

    def complaint(self) -> str:
        """The end of what it, or its engine, complained of."""
        return self._stderr.read_text()[-3000:]

    def kill(self) -> None:
        """Kill it and its engine, as a power cut would; without one, nothing."""
        if self._process is not None:
            with self._process:  # which closes the pipes
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process = None


class Laboratory:
    """Orders for one module of these tests, whose `on_order` carries them out in the process."""

    def __init__(self, process: EngineProcess, module: str) -> None:
        self._process, self._module = process, module

    def order(self, root: Path, failpoint: str = "", *, forked: bool = True, **more: Any) -> None:
        """Tell it what to do."""
        where = {"module": self._module, "root": str(root), "answer": str(self._process.answer)}
        self._process.send({**where, "failpoint": failpoint, "forked": forked, **more})

    def run(self, root: Path, failpoint: str = "", **more: Any) -> Any:
        """Have an order carried out; returns its answer, or `KILLED`, which it may be at a failpoint only."""
        self.order(root, failpoint, **more)
        return self.ended(failpoint)

    def ended(self, failpoint: str = "") -> Any:
        """The answer of the order that was given, or `KILLED`, which it may be at a failpoint only."""
        end = json.loads(self._process.line())
        if end == {"signal": signal.SIGKILL, "code": 0}:
            assert failpoint, self._process.complaint()
            return KILLED
        assert end == {"signal": 0, "code": 0}, self._process.complaint()
        return json.loads(self._process.answer.read_text())

    def die(self, root: Path, failpoint: str, **more: Any) -> None:
        """Have an order carried out that is killed at its failpoint."""
        assert self.run(root, failpoint, **more) == KILLED, f"{failpoint} was not passed"

    def kill(self) -> None:
        """Kill the process and its engine; the next order starts another."""
        self._process.kill()

    def kill_as_it_writes(self, folder: Path, known: frozenset[str] = frozenset()) -> None:
        """The same, as soon as a file of rows is below a folder, but for those in folders that are known by name."""
        deadline = time.monotonic() + MOST_SECONDS
        # What is looked at is moved meanwhile: `os.walk` passes over what is gone.
        while not any(
            name.endswith(".parquet")
            for at, _, names in os.walk(folder)
            if not known.intersection(Path(at).relative_to(folder).parts[:1])
            for name in names
        ):
            assert time.monotonic() < deadline, "it never began to write"
            time.sleep(0.002)
        self.kill()


def serve(folder: Path) -> None:
    """The process, from inside: carry out orders until the input ends."""
    remember_names()
    engine = start(engine_settings(folder))
    engine.sparkContext.setLogLevel("OFF")
    engine.range(10).selectExpr("id", "1 AS day").write.mode("overwrite").partitionBy("day").parquet(f"{folder}/warm")
    print("ready", flush=True)  # noqa: T201 - the protocol
    for line in sys.stdin:
        order = json.loads(line)
        on_order = import_module(f"lakehouse_tests.faults.{order['module']}").on_order
        if not order["forked"]:
            on_order(order, engine)
            continue
        child = os.fork()
        if child == 0:
            _child(order, on_order, engine)
        _, status = os.waitpid(child, 0)
        killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        print(json.dumps({"signal": killed_by, "code": status >> 8}), flush=True)  # noqa: T201


def _child(
    order: dict[str, Any], carry_out: Callable[[dict[str, Any], SparkSession], Any], engine: SparkSession
) -> None:
    os.environ["LAKEHOUSE_FAILPOINT"] = order["failpoint"]
    code = 1
    try:
        Path(order["answer"]).write_text(json.dumps(carry_out(order, engine)))
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
