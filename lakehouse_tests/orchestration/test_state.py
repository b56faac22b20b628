"""Dagster's state is the lakehouse's, however Dagster was started."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from dagster import DagsterInstance
from dagster._core.errors import DagsterDefinitionChangedDeserializationError
from dagster._core.execution import asset_backfill
from dagster._core.instance.ref import InstanceRef
from dagster._core.storage.event_log.sqlite import consolidated_sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage
from dagster._core.test_utils import create_run_for_test
from dagster._daemon import backfill, controller
from sqlalchemy import text

import lakehouse
from lakehouse.orchestration import state
from lakehouse.orchestration.instance import opened_instance
from lakehouse.orchestration.state import (
    BACKFILLS_EVERY,
    WAITS_FOR_CODE,
    ComputeLogs,
    EventLog,
    prepare_dagster_home,
)
from lakehouse.settings import Settings

REPOSITORY = Path(lakehouse.__file__).parents[1]


def test_the_top_of_the_repository_has_the_instance_that_the_package_ships() -> None:
    """Without it, plain `dagster dev` and `lakehouse dev` would drift apart."""
    for name in ("dagster.yaml", "workspace.yaml"):
        assert (REPOSITORY / "lakehouse" / "orchestration" / name).resolve() == REPOSITORY / name


def test_plain_dagster_uses_the_lakehouses_state(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, `dagster dev` loses its history at the end, and switched-off sensors are on again."""
    thrown_away = tmp_path / "thrown-away"
    thrown_away.mkdir()
    # What `dagster dev` does where DAGSTER_HOME is not set: a temporary home, configured by the folder it is in.
    with DagsterInstance.from_ref(InstanceRef.from_dir(str(thrown_away), config_dir=str(REPOSITORY))) as plain:
        plain.run_storage.set_cursor_values({"seen": "by both"})
        assert plain.schedule_storage is not None
        assert plain.storage_directory() == str(settings.dagster_home / "storage")
        logs = plain.compute_log_manager
        assert isinstance(logs, ComputeLogs)
        assert logs.get_captured_local_path(["run"], "out").startswith(str(settings.dagster_home / "storage"))
    assert os.environ["DAGSTER_EVENT_BATCH_SIZE"] == "200", "a range run's events are written in batches here too"
    assert {"runs.db", "schedules.db", "event_log.db"} <= {path.name for path in settings.dagster_home.iterdir()}
    assert not list(thrown_away.rglob("*.db"))
    monkeypatch.delenv("DAGSTER_HOME")
    with opened_instance(settings) as usual:
        assert usual.run_storage.get_cursor_values({"seen"}) == {"seen": "by both"}


def test_dagsters_own_home_wins(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a deployment that sets DAGSTER_HOME would be split in two."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with DagsterInstance.from_ref(InstanceRef.from_dir(str(home), config_dir=str(REPOSITORY))) as given:
        given.run_storage.set_cursor_values({"seen": "here"})
    assert (home / "runs.db").exists()
    assert not settings.dagster_home.exists()


def test_storages_keep_what_they_have_compiled(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, each event and each question of a page would compile its statements anew: half of what it costs."""
    for module in (consolidated_sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage):
        monkeypatch.setattr(module, "create_engine", lambda *_, **__: pytest.fail("another engine"))
    run = create_run_for_test(instance)
    instance.report_engine_event("seen", run)
    assert "seen" in [each.message for each in instance.all_logs(run.run_id)]
    assert instance.get_runs()[0].run_id == run.run_id
    assert instance.all_instigator_state() == []


def test_a_storage_is_opened_once_and_leaves_one_file(instance: DagsterInstance, settings: Settings) -> None:
    """Without it, each event would open and close the file three times: more than half of what Dagster takes."""
    storage = instance.event_log_storage
    assert isinstance(storage, EventLog)
    run, seen = create_run_for_test(instance), set[int]()
    for _ in range(3):
        instance.report_engine_event("seen", run)
        with storage.connect() as connection:
            seen.add(id(connection.connection.dbapi_connection))
            assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal", "else it waits for the disk"
    assert len(seen) == 1
    assert len(instance.all_logs(run.run_id)) == 3
    storage.dispose()
    assert [each.name for each in settings.dagster_home.glob("event_log*")] == ["event_log.db"]


def test_a_process_that_is_killed_or_forked_harms_no_storage(instance: DagsterInstance, settings: Settings) -> None:
    """Without it, what Dagster was told before a kill would be gone, or a child would write over its parent's pages."""
    run = create_run_for_test(instance)
    for told in ("by the parent", "by the child", "by the parent again"):
        if "child" not in told:
            instance.report_engine_event(told, run)
        elif (child := os.fork()) == 0:
            instance.report_engine_event(told, run)
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    with opened_instance(settings) as another:
        seen = [each.message for each in another.all_logs(run.run_id)]
    assert seen == ["by the parent", "by the child", "by the parent again"]
    with sqlite3.connect(settings.dagster_home / "event_log.db") as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_the_daemon_looks_at_backfills_every_few_seconds(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a backfill and each further wave of its runs would wait for half a minute."""
    monkeypatch.setattr(controller, "DEFAULT_DAEMON_INTERVAL_SECONDS", 30)
    with opened_instance(settings) as instance:
        assert instance.event_log_storage is not None
        waited: list[float] = []

        class Ended(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                waited.append(timeout or 0.0)
                return True

        monkeypatch.setattr(backfill, "execute_backfill_iteration", lambda *_, **__: iter(()))
        loop = backfill.execute_backfill_iteration_loop(None, logging.getLogger(), Ended())  # type: ignore[arg-type]
        while not waited:
            next(loop)
    assert 0 < waited[0] <= BACKFILLS_EVERY


def test_it_is_the_lakehouses_daemon_where_its_runs_are_in_another_database(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, with PostgreSQL no backfill is given to the daemon, a bad deploy ends those there are, and it stays.

    What `lakehouse dev` starts would go on, daemon and all, where that is killed.
    """
    ours = prepare_dagster_home(settings) / "dagster.yaml"
    known = yaml.safe_load(ours.read_text())
    for each in ("run_storage", "event_log_storage", "schedule_storage"):
        del known[each]
    # Dagster's own storages, as those for PostgreSQL are: nothing in them knows of a lakehouse.
    known["storage"] = {"sqlite": {"base_dir": str(settings.dagster_home / "database")}}
    ours.write_text(yaml.safe_dump(known))
    monkeypatch.setattr(controller, "DEFAULT_DAEMON_INTERVAL_SECONDS", 30)
    monkeypatch.setenv(WAITS_FOR_CODE, "")
    monkeypatch.delenv(WAITS_FOR_CODE)
    ended: list[None] = []
    monkeypatch.setattr(state, "end_with_dev", lambda: ended.append(None))
    with opened_instance(settings) as instance:
        assert not isinstance(instance.event_log_storage, EventLog)
        told: Any = instance.info_dict()["local_artifact_storage"]
    assert told["config"] == {"base_dir": str(settings.dagster_home)}, "by which commands know whose daemon it is"
    assert controller.DEFAULT_DAEMON_INTERVAL_SECONDS == BACKFILLS_EVERY
    assert os.environ[WAITS_FOR_CODE] == "1"
    assert ended


def test_a_backfill_waits_while_the_code_does_not_load(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, one look at a half-made edit would end a backfill of weeks, a paused one too, with all of its runs."""
    monkeypatch.setenv(WAITS_FOR_CODE, "")
    monkeypatch.delenv(WAITS_FOR_CODE)
    with opened_instance(settings) as instance:
        assert instance.run_storage is not None

    def gone(*_: object) -> None:
        raise DagsterDefinitionChangedDeserializationError("Asset existed at storage-time, but no longer does")

    monkeypatch.setattr(asset_backfill, "_check_asset_backfill_data_validity", gone)
    monkeypatch.setattr(asset_backfill, "_get_unloadable_location_names", lambda *_: ["lakehouse.definitions"])
    look: Any = asset_backfill._check_validity_of_asset_backfill_data_and_should_process_backfill
    assert look(None, "abcdefgh", None, None, None, logging.getLogger()) is False
