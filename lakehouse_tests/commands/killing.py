"""Backfills as processes of their own, that tests interrupt and kill; and what is left of them afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from dagster import DagsterRun

from lakehouse.orchestration.instance import opened_instance
from lakehouse.settings import Settings

Answer = TypeVar("Answer")
PATIENCE = 240.0  # seconds; the machine may be busy


class Backfill:
    """`lakehouse backfill … --json` on a root."""

    def __init__(self, root: Path, *arguments: str, **environment: str) -> None:
        self.root = root
        command = [sys.executable, "-W", "ignore", "-m", "lakehouse.cli", "backfill", *arguments, "--json"]
        env = os.environ | {"LAKEHOUSE_ROOT": str(root)} | environment
        self._log = (root.parent / f"{root.name}.log").open("a+")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, env=env, text=True)

    def end(self) -> tuple[int, Any, str]:
        """Its exit code, what it printed as JSON, and what it said."""
        try:
            out, _ = self.process.communicate(timeout=PATIENCE)
        finally:
            self.process.kill()
        self._log.seek(0)
        with self._log:
            return self.process.returncode, json.loads(out) if out.strip() else None, self._log.read()


def until(found: Callable[[], Answer | None], what: str = "what the test waits for", every: float = 0.1) -> Answer:
    """The first answer that is not nothing; looked for `every` so many seconds."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if answer := found():
            return answer
        time.sleep(every)
    raise AssertionError(f"{what} did not come in {PATIENCE:.0f} s")


def left_behind(root: Path) -> list[str]:
    """Command lines of the processes that were started for a root, engines included, and are still there."""
    mine = f"LAKEHOUSE_ROOT={root}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mine in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return [line for line in found if line]  # a zombie has none


def nothing_is_left(root: Path) -> None:
    """Wait until every process of a root is gone."""
    try:
        until(lambda: not left_behind(root), every=0.5)
    except AssertionError:
        raise AssertionError(f"still there: {left_behind(root)}") from None


def open_runs(root: Path) -> list[DagsterRun]:
    """The runs that are not over."""
    with opened_instance(Settings(root=root)) as instance:
        return [run for run in instance.get_runs() if not run.is_finished]


def published(report: Mapping[str, Any]) -> dict[str, list[str]]:
    """By table, the days that are published, by this command or before."""
    return {each["table"]: sorted(each["published"] + each["unchanged"]) for each in report["tables"]}
