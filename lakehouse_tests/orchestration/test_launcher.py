"""Runs that the daemon starts are forked: each by itself, with the code of today, ended and closed like any other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterEventType, DagsterInstance, DagsterRun, DagsterRunStatus
from dagster._core.definitions.reconstruct import ReconstructableJob
from dagster._core.errors import DagsterLaunchFailedError
from dagster._core.launcher import WorkerStatus

from lakehouse.orchestration.instance import is_gone, opened_instance, process_of
from lakehouse.orchestration.launcher import Launcher
from lakehouse.orchestration.starter import LIBRARIES
from lakehouse.settings import Settings

JOB = """
import json, os, random, signal, sys, time
from pathlib import Path
from dagster import OpExecutionContext, in_process_executor, job, op

HERE = Path(__file__).parent

@op
def tell(context: OpExecutionContext) -> None:
    what = (HERE / "what").read_text()
    told = {"parent": os.getppid(), "number": random.random(), "said": "SAID", "signals": [
        str(signal.getsignal(each)) for each in (signal.SIGCHLD, signal.SIGTERM)]}
    (HERE / f"{context.run_id}.json").write_text(json.dumps(told))
    if what == "dies":
        os._exit(3)
    if what == "fails":
        raise ValueError("no")
    while what == "waits":
        time.sleep(0.05)

@job(executor_def=in_process_executor)
def telling():
    tell()
"""
SECONDS = 120
pytestmark = pytest.mark.slow


class Lab:
    """A job in a file, which does what it is told."""

    def __init__(self, instance: DagsterInstance, folder: Path) -> None:
        self.instance, self.folder = instance, folder
        launcher = instance.run_launcher
        assert isinstance(launcher, Launcher)
        self.launcher = launcher
        self.write("one")

    def write(self, said: str) -> None:
        """The file of the job."""
        (self.folder / "telling.py").write_text(JOB.replace("SAID", said))

    def launch(self, what: str) -> str:
        """Start a run."""
        (self.folder / "what").write_text(what)
        job = ReconstructableJob.for_file(str(self.folder / "telling.py"), "telling")
        run = self.instance.create_run_for_job(job.get_definition(), job_code_origin=job.get_python_origin())
        self.instance.launch_run(run.run_id, None)  # type: ignore[arg-type]
        return run.run_id

    def run(self, run_id: str) -> DagsterRun:
        """As it is stored."""
        found = self.instance.get_run_by_id(run_id)
        assert found is not None
        return found

    def told(self, run_id: str) -> dict[str, Any]:
        """What the run's process said of itself."""
        file = self.folder / f"{run_id}.json"
        wait(lambda: file.exists() and file.read_text())
        found: dict[str, Any] = json.loads(file.read_text())
        return found

    def said(self, run_id: str) -> str:
        """With what words the run's failure was recorded."""
        (failure,) = self.instance.all_logs(run_id, of_type=DagsterEventType.RUN_FAILURE)
        assert failure.dagster_event is not None
        return failure.dagster_event.message or ""

    def over(self, run_id: str) -> DagsterRunStatus:
        """How it ended."""
        wait(lambda: self.run(run_id).is_finished)
        return self.run(run_id).status


def wait(until: Callable[[], object]) -> None:
    """Until it is so."""
    deadline = time.monotonic() + SECONDS
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One instance, whose launcher is that of `dagster.yaml`, and so one starter."""
    folder = tmp_path_factory.mktemp("telling")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("DAGSTER_HOME", "DAGSTER_EVENT_BATCH_SIZE"):
            patch.setenv(name, "")
            patch.delenv(name)
        with opened_instance(Settings(root=folder / "root")) as instance:
            yield Lab(instance, folder)


def test_runs_are_forked_by_one_process_and_share_nothing_else(lab: Lab) -> None:
    """Without it, each run would load the libraries, use last week's code, or draw the same random numbers."""
    first = lab.launch("")
    assert lab.over(first) is DagsterRunStatus.SUCCESS
    lab.write("another")
    second = lab.launch("")
    assert lab.over(second) is DagsterRunStatus.SUCCESS
    told = [lab.told(first), lab.told(second)]
    assert [each["said"] for each in told] == ["one", "another"]
    assert told[0]["number"] != told[1]["number"]
    assert told[0]["parent"] != told[1]["parent"], "each has a watcher of its own"
    assert told[0]["signals"][0] == str(signal.getsignal(signal.SIGCHLD)), "what it starts can be waited for"


def test_what_fails_and_what_dies_is_told_apart(lab: Lab) -> None:
    """A run that died left no word: Dagster starts such a one again, where its tags say so."""
    failed = lab.launch("fails")
    assert lab.over(failed) is DagsterRunStatus.FAILURE
    died = lab.launch("dies")
    assert lab.over(died) is DagsterRunStatus.FAILURE
    assert lab.said(died) == "The run was not finished: its process ended with code 3."
    assert lab.said(failed).endswith("Steps failed: ['tell'].")


def test_a_run_outlives_the_starter_and_a_kill_closes_it(lab: Lab) -> None:
    """The daemon may be started again at any time; and a run that was killed must not stay started for ever."""
    run_id = lab.launch("waits")
    lab.told(run_id)
    (starter,) = lab.launcher._starters.values()
    starter._process.kill()
    starter._process.wait()
    assert lab.launcher.check_run_worker_health(lab.run(run_id)).status is WorkerStatus.RUNNING
    process = process_of(lab.run(run_id))
    assert process is not None
    os.kill(process, signal.SIGKILL)
    assert lab.over(run_id) is DagsterRunStatus.FAILURE
    assert lab.launcher.check_run_worker_health(lab.run(run_id)).status is WorkerStatus.FAILED
    assert lab.said(run_id) == "The run was not finished: its process was killed by SIGKILL."
    assert lab.over(lab.launch("")) is DagsterRunStatus.SUCCESS, "by a new starter"


def test_a_starter_that_does_not_answer_is_replaced(lab: Lab) -> None:
    """Without it, the next run would be given to it too, and be executed twice once it goes on."""
    before = lab.launch("ends")
    assert lab.over(before) == DagsterRunStatus.SUCCESS
    (silent,) = lab.launcher._starters.values()
    silent._socket.settimeout(0.5)
    os.kill(silent._process.pid, signal.SIGSTOP)
    with pytest.raises(DagsterLaunchFailedError, match="did not answer"):
        lab.launch("ends")
    assert silent._process.poll() is not None
    assert lab.over(lab.launch("ends")) == DagsterRunStatus.SUCCESS
    (other,) = lab.launcher._starters.values()
    assert other is not silent


def test_terminate_interrupts_the_run_alone(lab: Lab) -> None:
    """It would be left as failed, or go on, or take its neighbours with it."""
    ended, other = lab.launch("waits"), lab.launch("waits")
    assert lab.told(ended)
    assert lab.told(other)
    assert lab.launcher.terminate(ended)
    assert lab.over(ended) is DagsterRunStatus.CANCELED
    (asked,) = lab.instance.all_logs(ended, of_type=DagsterEventType.RUN_CANCELING)
    assert asked.dagster_event is not None
    assert asked.dagster_event.message == "Somebody ended this run.", "above what the interrupt tells"
    assert not lab.launcher.terminate(ended)
    assert not lab.run(other).is_finished
    assert lab.launcher.terminate(other)
    assert lab.over(other) is DagsterRunStatus.CANCELED


def test_a_run_that_is_terminated_before_it_has_a_process_never_begins(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, Dagster says that the first run of a `dev` cannot be terminated, and it runs to its end."""
    real, asked = lab.launcher._started, list[bool]()

    def started(python: str, order: str) -> int:
        (run,) = lab.instance.get_runs(limit=1)
        asked.append(lab.launcher.terminate(run.run_id))
        return real(python, order)

    monkeypatch.setattr(lab.launcher, "_started", started)
    run = lab.launch("waits")
    assert asked == [True]
    assert lab.over(run) is DagsterRunStatus.CANCELED
    wait(lambda: is_gone(lab.run(run)))
    assert not (lab.folder / f"{run}.json").exists(), "its process saw that it was over, and did nothing"
    assert lab.run(run).status is DagsterRunStatus.CANCELED


def test_all_libraries_of_a_run_are_loaded_before(tmp_path: Path) -> None:
    """A library that is missing in the list is loaded by every run, and nobody would notice."""
    code = (
        "import importlib, json, sys\n"
        f"for name in {LIBRARIES!r}: importlib.import_module(name)\n"
        "ours = {name for name in sys.modules if name.partition('.')[0] == 'lakehouse'}\n"
        "before = set(sys.modules)\n"
        "import lakehouse.definitions\n"
        "later = {name.partition('.')[0] for name in sys.modules.keys() - before}\n"
        "print(json.dumps([sorted(ours), sorted(later - set(sys.stdlib_module_names))]))\n"
    )
    environment = os.environ | {"LAKEHOUSE_TABLES": "lakehouse", "LAKEHOUSE_ROOT": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    ours, later = json.loads(done.stdout.splitlines()[-1])
    assert ours == []
    assert later == ["lakehouse"]
