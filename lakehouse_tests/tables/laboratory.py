"""A process with an engine of its own that carries out orders and may be killed anywhere: both ends of the line.

One engine is started and warmed, without touching delta-rs. For each order the process forks: the child carries it out
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lakehouse.spark.session import start
from lakehouse_tests.conftest import engine_settings

KILLED = "killed"


class Laboratory:
    """The process, from outside: a module of these tests that calls `serve`."""

    def __init__(self, module: str, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self._errors = (folder / "stderr").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"lakehouse_tests.tables.{module}", str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, start_new_session=True,
        )  # fmt: skip
        self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self._complaint()
        return line

    def _complaint(self) -> str:
        return (self.folder / "stderr").read_text()[-3000:]

    def order(self, root: Path, failpoint: str = "", *, forked: bool = True, **more: Any) -> None:
        """Tell it what to do."""
        assert self.process.stdin is not None
        answer = str(self.folder / "answer.json")
        order = {"root": str(root), "failpoint": failpoint, "forked": forked, "answer": answer, **more}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def run(self, root: Path, failpoint: str = "", **more: Any) -> Any:
        """Have an order carried out; returns its answer, or `KILLED`, which it may be at a failpoint only."""
        self.order(root, failpoint, **more)
        end = json.loads(self._line())
        if end == {"signal": signal.SIGKILL, "code": 0}:
            assert failpoint, self._complaint()
            return KILLED
        assert end == {"signal": 0, "code": 0}, self._complaint()
        return json.loads((self.folder / "answer.json").read_text())

    def die(self, root: Path, failpoint: str, **more: Any) -> None:
        """Have an order carried out that is killed at its failpoint."""
        assert self.run(root, failpoint, **more) == KILLED, f"{failpoint} was not passed"

    def kill(self) -> None:
        """Kill it and its engine, as a power cut would."""
        with self.process, self._errors:  # which close the pipes
            os.killpg(self.process.pid, signal.SIGKILL)


@contextmanager
def opened(module: str, folder: Path) -> Iterator[Laboratory]:
    """A laboratory that is killed at the end, where nothing has killed it before."""
    made = Laboratory(module, folder)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.kill()


def serve(carry_out: Callable[[dict[str, Any], SparkSession], Any]) -> None:
    """The process, from inside: carry out orders until the input ends."""
    engine = start(engine_settings(Path(sys.argv[1])))
    engine.sparkContext.setLogLevel("OFF")
    engine.range(10).selectExpr("id", "1 AS day").write.partitionBy("day").parquet(f"{sys.argv[1]}/warm")
    print("ready", flush=True)  # noqa: T201 - the protocol
    for line in sys.stdin:
        order = json.loads(line)
        if not order["forked"]:
            carry_out(order, engine)
            continue
        child = os.fork()
        if child == 0:
            _child(order, carry_out, engine)
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
