"""Dagster's instance under the root: made once, and never held up by processes that are gone."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
import typer
from dagster import DagsterEvent, DagsterEventType, DagsterInstance, DagsterRun, DagsterRunStatus
from typer.testing import CliRunner

from lakehouse.commands.command import Command
from lakehouse.commands.operate import dev as dev_command
from lakehouse.orchestration import instance as module
from lakehouse.orchestration.ended import ended_days, unfinished_days
from lakehouse.orchestration.instance import (
    OWNER_TAG,
    claim_run,
    close_abandoned_runs,
    opened_instance,
    prepare_dagster_home,
)
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.orchestration.run_tags import because, why_now
from lakehouse.runs.executing import Asked, create_run, execute
from lakehouse.servers.place import is_locked, locked
from lakehouse.servers.ports import free_port
from lakehouse.servers.web import DEV_LOCK, web_port
from lakehouse.settings import Settings
from lakehouse_tests.commands.conftest import Cli

pytestmark = pytest.mark.slow

FIRST, LAST = date(2011, 3, 1), date(2011, 3, 4)
TABLES = ["bronze.events", "silver.transactions"]


@pytest.fixture
def settings(root: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of the test's root; what the instance sets in the environment is taken back."""
    for name in ("DAGSTER_HOME", "DAGSTER_EVENT_BATCH_SIZE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return Settings(root=root)


@pytest.fixture
def instance(settings: Settings) -> Iterator[DagsterInstance]:
    with opened_instance(settings) as opened:
        yield opened


def test_the_home_is_made_once_and_kept_as_it_is(settings: Settings) -> None:
    home = prepare_dagster_home(settings)
    assert os.environ["DAGSTER_HOME"] == str(home) == str(settings.root / "dagster")
    assert os.environ["DAGSTER_EVENT_BATCH_SIZE"] == "200"
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    assert prepare_dagster_home(settings) == home
    assert (home / "dagster.yaml").read_text() == "telemetry: {enabled: false}\n"
    assert [path.name for path in home.iterdir()] == ["dagster.yaml"]


def test_several_processes_may_be_the_first_to_open_it(tmp_path: Path) -> None:
    """Without it, two commands that begin together on a new root would break Dagster's storage for good."""
    roots = [tmp_path / str(number) for number in range(5)]
    anew = multiprocessing.get_context("spawn")
    said = anew.Queue()
    first = anew.Process(target=_open_together, args=(roots, said))
    first.start()
    assert [said.get(timeout=120) for _ in range(3)] == [""] * 3
    first.join()


def _open_together(roots: list[Path], said: Queue[str]) -> None:
    # Three processes that have opened nothing, and the imports of one.
    alike = multiprocessing.get_context("fork")
    barrier = alike.Barrier(3)
    processes = [alike.Process(target=_open_each, args=(roots, barrier, said)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def _open_each(roots: list[Path], barrier: Barrier, said: Queue[str]) -> None:
    try:
        for root in roots:
            barrier.wait(60)
            with opened_instance(Settings(root=root)) as opened:
                assert opened.get_runs() == []
                assert opened.all_asset_keys() == []
                assert opened.all_instigator_state() == []
    except Exception as error:  # noqa: BLE001  # whatever it is, the test tells it
        barrier.abort()
        said.put(repr(error))
    else:
        said.put("")


def test_state_stays_under_the_root(instance: DagsterInstance, root: Path, tmp_path: Path) -> None:
    """Wherever the command is started."""
    create_run(instance, TABLES, FIRST, LAST)
    assert {path.name for path in tmp_path.iterdir()} == {"root"}
    assert (root / "dagster" / "event_log.db").exists()


def test_a_range_is_one_run_that_plans_every_partition(instance: DagsterInstance) -> None:
    run = create_run(instance, TABLES, FIRST, LAST, Asked(force=True))
    assert run.tags["dagster/asset_partition_range_start"] == "2011-03-01"
    assert run.tags["dagster/asset_partition_range_end"] == "2011-03-04"
    assert {key.to_user_string() for key in run.asset_selection or ()} == {"bronze/events", "silver/transactions"}
    assert run.run_config["resources"] == {"lakehouse": {"config": {"force": True}}}
    assert run.remote_job_origin is not None  # else the UI cannot execute it again
    planned = instance.all_logs(run.run_id, of_type=DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
    assert len(planned) == 2 * 4


def test_a_run_of_some_tables_executes_their_own_checks_only(instance: DagsterInstance) -> None:
    """Without it, a backfill of old days would also say whether yesterday is complete, and warn or alert about that."""
    run = create_run(instance, TABLES, FIRST, LAST)
    assert {check.asset_key.to_user_string() for check in run.asset_check_selection or ()} == {
        "bronze/events",
        "silver/transactions",
    }
    assert "volume" in {check.name for check in run.asset_check_selection or ()}
    planned = instance.all_logs(run.run_id, of_type=DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED)
    steps = {entry.step_key for entry in planned}
    assert steps == {"bronze__events", "silver__transactions"}
    plan = instance.get_execution_plan_snapshot(str(run.execution_plan_snapshot_id))
    assert set(plan.step_keys_to_execute) == steps


def test_a_day_is_a_run_of_one_partition(instance: DagsterInstance) -> None:
    run = create_run(instance, TABLES, FIRST, FIRST)
    assert run.tags["dagster/partition"] == "2011-03-01"
    assert "dagster/asset_partition_range_start" not in run.tags


def started(instance: DagsterInstance, process: str) -> DagsterRun:
    """A run in progress that belongs to a process of this machine and holds its table's pool."""
    run = create_run(instance, TABLES, FIRST, LAST)
    host = run.tags[OWNER_TAG].split("/")[0]
    instance.add_run_tags(run.run_id, {OWNER_TAG: f"{host}/{process}/{run.run_id}"})
    instance.handle_run_event(
        run.run_id, DagsterEvent(DagsterEventType.PIPELINE_START.value, run.job_name, message="started")
    )
    storage = instance.event_log_storage
    storage.initialize_concurrency_limit_to_default("bronze_events")
    assert storage.claim_concurrency_slot("bronze_events", run.run_id, "bronze__events").is_claimed
    return run


def slots(instance: DagsterInstance) -> int:
    return len(instance.event_log_storage.get_concurrency_info("bronze_events").claimed_slots)


def status(instance: DagsterInstance, run: DagsterRun) -> DagsterRunStatus:
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    return found.status


def test_a_killed_process_leaves_no_run_and_no_slot(instance: DagsterInstance) -> None:
    """Without this the next run of the table would wait for ever."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    run = started(instance, str(gone.pid))
    assert slots(instance) == 1
    assert close_abandoned_runs(instance) == [run.run_id]
    assert (status(instance, run), slots(instance)) == (DagsterRunStatus.FAILURE, 0)
    assert unfinished_days(instance, TABLES)["bronze.events"] == {FIRST + timedelta(days=n) for n in range(4)}
    assert unfinished_days(instance, TABLES, first=LAST) == {name: {LAST} for name in TABLES}
    assert close_abandoned_runs(instance) == []


def test_a_process_that_is_gone_before_its_run_began_leaves_no_run(instance: DagsterInstance) -> None:
    """Without it, a run whose process could not say how it ended, as Dagster's database was down, starts for minutes."""
    run = started(instance, "999999999")
    instance.handle_run_event(
        run.run_id, DagsterEvent(DagsterEventType.PIPELINE_STARTING.value, run.job_name, message="starting")
    )
    assert status(instance, run) == DagsterRunStatus.STARTING
    assert close_abandoned_runs(instance) == [run.run_id]
    assert (status(instance, run), slots(instance)) == (DagsterRunStatus.FAILURE, 0)


def test_a_run_that_ends_well_while_runs_are_looked_at_stays_so(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a run that has built everything is told as failed, and started again."""
    run = started(instance, "999999999")

    def ends(seen: DagsterRun) -> bool:
        done = DagsterEvent(DagsterEventType.PIPELINE_SUCCESS.value, seen.job_name, message="done")
        instance.handle_run_event(seen.run_id, done)
        return True

    monkeypatch.setattr(module, "is_gone", ends)
    assert close_abandoned_runs(instance) == []
    assert status(instance, run) == DagsterRunStatus.SUCCESS


def test_what_somebody_has_terminated_stays_so_where_its_process_is_gone(instance: DagsterInstance) -> None:
    """Without it, Dagster would start again what a person has stopped: it would be a run that failed."""
    run = started(instance, "999999999")
    instance.report_run_canceling(run)
    assert close_abandoned_runs(instance) == [run.run_id]
    assert (status(instance, run), slots(instance)) == (DagsterRunStatus.CANCELED, 0)
    by_somebody = ended_days(instance, TABLES).by_somebody
    assert by_somebody["bronze.events"] == {FIRST + timedelta(days=n) for n in range(4)}


def test_a_process_that_ended_and_was_not_asked_how_is_gone(instance: DagsterInstance) -> None:
    """Without it, its run would stay open for as long as a parent that takes no notice of it lives."""
    ended = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    run = started(instance, module._identity(ended.pid))
    assert close_abandoned_runs(instance) == []
    ended.kill()
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays listed
    assert close_abandoned_runs(instance) == [run.run_id]
    ended.communicate()


def test_a_running_process_keeps_its_run(instance: DagsterInstance) -> None:
    run = started(instance, module._identity(os.getpid()))
    assert close_abandoned_runs(instance) == []
    assert (status(instance, run), slots(instance)) == (DagsterRunStatus.STARTED, 1)
    assert unfinished_days(instance, TABLES) == {}


def test_a_process_id_that_was_given_again_is_another_process(instance: DagsterInstance) -> None:
    run = started(instance, f"{os.getpid()}.1")  # this very id, but of a process that began long ago
    assert close_abandoned_runs(instance) == [run.run_id]


def test_runs_of_the_ui_are_not_touched(instance: DagsterInstance) -> None:
    """A run that the UI executes again inherits the tags of the first, whose process may be long gone."""
    first = started(instance, "999999999")
    again = create_run(instance, TABLES, FIRST, LAST)
    found = instance.get_run_by_id(first.run_id)
    assert found is not None
    instance.add_run_tags(again.run_id, {OWNER_TAG: found.tags[OWNER_TAG]})
    assert close_abandoned_runs(instance) == [first.run_id]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_ends_the_run(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """Without it, a step that a person has stopped would be tried again, or go on holding its table's pool."""

    def interrupted(_: LakehouseResource) -> None:
        raise error

    monkeypatch.setattr(LakehouseResource, "lake", interrupted)
    run = create_run(instance, TABLES, FIRST, LAST)
    kinds = [event.event_type_value for event in execute(instance, run)]
    assert "STEP_RESTARTED" not in kinds
    assert status(instance, run) == (
        DagsterRunStatus.CANCELED if error is KeyboardInterrupt else DagsterRunStatus.FAILURE
    )
    assert slots(instance) == 0


def test_a_run_says_over_which_days_it_is_and_why(instance: DagsterInstance) -> None:
    """Without it, the list of runs would name none of them but by letters and digits."""
    plain = create_run(instance, TABLES, FIRST, LAST)
    assert (plain.tags["days"], "why" in plain.tags) == ("2011-03-01…03-04", False)
    with because("lakehouse backfill --failed-only"):
        asked = create_run(instance, TABLES, FIRST, FIRST)
    assert (asked.tags["days"], asked.tags["why"]) == ("2011-03-01", "lakehouse backfill --failed-only")
    # What Dagster launched is told when its process takes it over.
    instance.add_run_tags(plain.run_id, {"dagster/backfill": "abcd"})
    claim_run(instance, _stored(instance, plain))
    assert _stored(instance, plain).tags["why"] == "backfill abcd"
    claim_run(instance, _stored(instance, asked))
    assert _stored(instance, asked).tags["why"] == "lakehouse backfill --failed-only"


def test_a_command_tells_its_flags_and_no_values() -> None:
    """Without it, runs of a command would not say which; or the person who is to be forgotten be named in a tag."""
    told: list[str] = []
    app = typer.Typer()

    @app.command("erase", cls=Command)
    def erase(_person: str, *, force: bool = False, verbose: bool = False) -> None:
        told.append(why_now()["why"])

    app.command("other", cls=Command)(lambda: None)
    assert CliRunner().invoke(app, ["erase", "jane@example.com", "--force"]).exit_code == 0
    assert told == ["lakehouse erase --force"]
    assert why_now() == {}


def _stored(instance: DagsterInstance, run: DagsterRun) -> DagsterRun:
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    return found


def test_a_second_dev_on_a_root_is_refused(
    cli: Cli, root: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two daemons would look after the same runs; the first holds its lock for as long as it lives, as Dagster too."""
    began: list[str] = []
    monkeypatch.setattr(dev_command, "_begin_engine", lambda _: None)
    monkeypatch.setattr("lakehouse.report.serve.start", lambda *_: None)
    monkeypatch.setattr(dev_command.signal, "signal", lambda *_: None)
    monkeypatch.setattr(dev_command.os, "execve", lambda program, *_: began.append(program))
    with opened_instance(settings):
        held = locked(settings.dagster_home / DEV_LOCK)
    monkeypatch.chdir(root)  # it changes its folder, which is taken back
    assert held is not None
    said = cli("dev", "--port", str(free_port()))
    assert (said.code, began) == (2, [])
    assert f"`lakehouse dev` is on for {root} already" in said.err
    os.close(held)
    assert web_port(settings) == settings.port, "none is on"
    port = free_port()
    assert cli("dev", "--port", str(port)).code == 0
    assert began
    assert is_locked(settings.dagster_home / DEV_LOCK)
    assert web_port(settings) == port, "commands ask the one that is on, whatever its port"
