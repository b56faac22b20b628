"""How `lakehouse dev` ends where one of Dagster's two processes is gone, and these where it is."""

from __future__ import annotations

import inspect
import logging
import runpy
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from dagster._cli.dev import dev_command_impl
from dagster._utils.log import configure_loggers

from lakehouse.orchestration import dev
from lakehouse.settings import Settings


@pytest.mark.parametrize(
    ("which", "code", "told"),
    [
        ("daemon", -9, "The daemon was killed by SIGKILL, and Dagster ends with it. Start it again: lakehouse dev"),
        (
            "webserver",
            1,
            "The web interface ended with code 1, and Dagster ends with it. Start it again: lakehouse dev",
        ),
    ],
)
def test_the_end_of_one_process_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, which: str, code: int, told: str
) -> None:
    """Without it, the last words are a traceback through Dagster's code, and the command ends as if all were well."""
    words = f"dagster-{which} process shut down unexpectedly with return code"
    assert words in inspect.getsource(dev_command_impl), "what Dagster says in this release"

    def dagster() -> None:
        configure_loggers(log_level="WARNING")
        logger = logging.getLogger("dagster")
        logger.error("Not of ours", exc_info=RuntimeError("something else"))
        logger.error("An unexpected exception has occurred", exc_info=RuntimeError(f"{words} {code}"))
        raise SystemExit(0)

    monkeypatch.setattr("dagster._cli.main", dagster)
    monkeypatch.delitem(sys.modules, "lakehouse.orchestration.dev")  # it is run as a program
    logger = logging.getLogger("dagster")
    before = logger.level, list(logger.handlers), list(logger.filters), logger.propagate
    try:
        with pytest.raises(SystemExit) as ended:
            runpy.run_module("lakehouse.orchestration.dev", run_name="__main__")
    finally:
        logger.level, logger.handlers, logger.filters, logger.propagate = before
    said = caplog.text
    assert ended.value.code == 1
    assert told in said
    assert "something else" in said
    assert words not in said


def test_days_that_were_added_are_loaded(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    """Without it, files that are landed beyond the last day of an old lake are never built, and nothing says so."""
    asked: list[str] = []

    def ask(_: str, query: str, variables: dict[str, str] | None = None) -> dict[str, Any]:
        if variables:
            asked.append(variables["name"])
        return {"workspaceOrError": {"locationEntries": [{"name": "here", "locationOrLoadError": None}]}}

    monkeypatch.setattr(dev, "ask", ask)
    monkeypatch.setattr(dev, "get_settings", lambda: settings)
    known = dev.load_new_days("http://here", dev.own_settings())
    assert not asked
    settings.keep(last_day=date(2026, 3, 7))
    known = dev.load_new_days("http://here", known)
    dev.load_new_days("http://here", known)
    assert asked == ["here"], "once"


CHILD = """
import sys, time
from lakehouse.orchestration.state import end_with_dev
end_with_dev()
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    open(sys.argv[1], "w").close()
"""
PARENT = """
import os, subprocess, sys, time
os.environ["_LAKEHOUSE_DEV"] = str(os.getpid())
subprocess.Popen([sys.executable, "-c", *sys.argv[1:]])
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="no other system tells a process of its parent's death")
def test_what_it_started_ends_with_it_though_it_is_killed(tmp_path: Path) -> None:
    """Without it, its daemon goes on beside that of the next `lakehouse dev`, and its web interface keeps the port."""
    ended = tmp_path / "ended"
    command = [sys.executable, "-c", PARENT, CHILD, str(ended)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        parent.kill()
    deadline = time.monotonic() + 20
    while not ended.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
