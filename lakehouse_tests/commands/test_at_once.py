"""Runs at once that are killed and interrupted: nothing hangs, no process is left, and the rest goes on.

Of the landed tables, without any file: their runs need no engine, and take long enough to be caught in the middle.
"""

from __future__ import annotations

import os
import signal
from datetime import date, timedelta
from pathlib import Path

import pytest
from dagster import DagsterRunStatus

from lakehouse.orchestration.instance import opened_instance
from lakehouse.settings import Settings
from lakehouse_tests.commands.conftest import run
from lakehouse_tests.commands.killing import (
    Backfill,
    days_of,
    nothing_is_left,
    open_runs,
    published,
    status,
    texts,
)

pytestmark = pytest.mark.slow
TABLES = ["bronze.events", "bronze.online_retail"]
DAYS = [date(2011, 3, 1) + timedelta(days=n) for n in range(48)]
RANGE = ("--select", 'key:"bronze/*"', "--from", str(DAYS[0]), "--to", str(DAYS[-1]))
AT_ONCE = (*RANGE, "--at-once", "2", "--days-per-run", "12")


@pytest.fixture(autouse=True)
def _no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an instance sets in the environment is taken back."""
    for name in ("DAGSTER_HOME", "DAGSTER_EVENT_BATCH_SIZE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_a_killed_worker_loses_its_run_only(root: Path) -> None:
    """Without it, a run that the system kills for its memory would stop the backfill, or be waited for for ever."""
    with opened_instance(Settings(root=root)) as instance:
        backfill = Backfill(root, *AT_ONCE)
        lost, worker = backfill.stopped_in_a_run(instance)
        os.kill(worker, signal.SIGKILL)
        code, report, said = backfill.end()
        assert code == 3, said
        assert status(instance, lost) == DagsterRunStatus.FAILURE
    nothing_is_left(root)
    (one,) = [each for each in report["runs"] if each["status"] != "SUCCESS"]
    assert (one["run_id"], one["error"]) == (lost.run_id, "its process was killed by SIGKILL")
    assert len(report["runs"]) == 4
    for each in report["tables"]:
        kept = set(each["published"])
        assert set(each["skipped"]) | kept == set(texts(DAYS))
        assert set(each["skipped"]) <= set(days_of(lost))
        assert set(each["skipped"].values()) <= {"its process was killed by SIGKILL"}
    assert any(each["skipped"] for each in report["tables"])
    again = run(root, "backfill", "--failed-only", "--at-once", "2", "--json")
    assert again.code == 0, again.err
    assert {day for days in published(again.json).values() for day in days} <= set(days_of(lost))
    done = run(root, "backfill", *RANGE, "--json")
    assert {each["table"]: each["unchanged"] for each in done.json["tables"]} == {name: texts(DAYS) for name in TABLES}


def test_an_interrupt_ends_every_run_and_the_same_command_goes_on(root: Path) -> None:
    """Without it, Ctrl-C would leave engines at work that nobody sees, or runs that Dagster shows as started for ever."""
    with opened_instance(Settings(root=root)) as instance:
        backfill = Backfill(root, *AT_ONCE)
        caught, worker = backfill.stopped_in_a_run(instance)
        backfill.process.send_signal(signal.SIGINT)
        os.kill(worker, signal.SIGCONT)
        code, report, said = backfill.end()
        assert code == 130, said
        assert status(instance, caught) in (DagsterRunStatus.CANCELED, DagsterRunStatus.SUCCESS)
    assert "Stopping the runs" in said
    assert open_runs(root) == []
    nothing_is_left(root)
    assert len(report["runs"]) < 4, "nothing new is started"
    for each in report["tables"]:
        assert set(each["published"]) | set(each["skipped"]) == set(texts(DAYS))
        assert "its run was not started any more" in each["skipped"].values()
    again = run(root, "backfill", *AT_ONCE, "--json")
    assert again.code == 0, again.err
    for before, after in zip(report["tables"], again.json["tables"], strict=True):
        assert set(before["published"]) <= set(after["unchanged"]), "what is published is not built again"
        assert sorted(after["published"] + after["unchanged"]) == texts(DAYS)


def test_workers_end_with_the_process_that_started_them(root: Path) -> None:
    """Without it, `kill -9` of a backfill would leave its workers, which would go on or wait for ever."""
    with opened_instance(Settings(root=root)) as instance:
        backfill = Backfill(root, *AT_ONCE)
        caught, worker = backfill.stopped_in_a_run(instance)
        backfill.process.kill()
        assert backfill.end()[0] == -signal.SIGKILL
        os.kill(worker, signal.SIGCONT)
        nothing_is_left(root)
        assert status(instance, caught) == DagsterRunStatus.CANCELED
    again = run(root, "backfill", *RANGE, "--json")
    assert again.code == 0, again.err
    assert published(again.json) == {name: texts(DAYS) for name in TABLES}
    assert open_runs(root) == []


def test_a_worker_that_cannot_start_ends_the_backfill(root: Path, tmp_path: Path) -> None:
    """Without it, each of a thousand runs would start, and lose, a worker of its own."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'lakehouse.runs.worker' in ' '.join(sys.orig_argv):\n"
        "    os._exit(7)\n"
    )  # fmt: skip
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    code, report, said = Backfill(root, *RANGE, "--days-per-run", "2", "--at-once", "2", PYTHONPATH=path).end()
    assert code == 3, said
    assert 3 <= len(report["runs"]) <= 4
    assert report["runs"][0]["error"] == "its process ended with code 7"
    assert any("as 3 before it; see" in each["error"] for each in report["runs"])
    assert open_runs(root) == []
