"""Backfills through a real daemon, beside a live run: N at once, paused over a SIGKILL, resumed, and fixed.

The tests tell one story in the order of the file, on one server.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetMaterialization, DagsterEventType, DagsterInstance, RunsFilter

from lakehouse.build.build import build
from lakehouse.catalog import tables
from lakehouse.orchestration.backfills import runs_of, state_of
from lakehouse.orchestration.instance import opened_instance, table_of
from lakehouse.read.lake import table_path
from lakehouse.sample.events import land_events
from lakehouse.settings import Settings
from lakehouse_tests.commands.conftest import Result, run
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import rows_of
from lakehouse_tests.ui.server import RUN_SECONDS, Server, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FIRST = date(2011, 3, 1)
DAYS = [FIRST + timedelta(days=n) for n in range(6)]
BAD, LIVE = DAYS[3], FIRST + timedelta(days=7)
TABLES = ["bronze.events", "silver.transactions", "silver.orders", "gold.user_features"]
SELECTION = " or ".join(TABLES)
AT_ONCE = 2
LIVE_MEMORY, BACKFILL_MEMORY = "-Xmx1000m", "-Xmx900m"


@dataclass
class Story:
    """The server, and what happened to the one backfill of these tests."""

    server: Server
    instance: DagsterInstance
    backfill_id: str = ""
    live_run: str = ""
    engines: set[str] = field(default_factory=set)

    def cli(self, *arguments: str) -> Result:
        """One command on the server's root."""
        return run(self.server.root, *arguments)

    def show(self) -> dict[str, Any]:
        """What `backfills show` says."""
        found: dict[str, Any] = self.cli("backfills", "show", self.backfill_id, "--json").json
        return found

    def state(self) -> str:
        """How the backfill stands."""
        backfill = self.instance.get_backfill(self.backfill_id)
        assert backfill is not None
        return state_of(backfill)

    def runs(self, *statuses: str) -> list[str]:
        """The backfill's runs of these states."""
        return [each.run_id for each in runs_of(self.instance, self.backfill_id) if each.status.value in statuses]

    def wait(self, what: Any, means: str) -> None:
        """Until it is so, looking at the engines meanwhile."""

        def looked() -> bool:
            for line in self.server.engines():
                self.engines |= {each for each in line.split() if each.startswith("-Xmx")}
            return bool(what())

        wait_for(looked, means, RUN_SECONDS)

    def spans(self, run_ids: list[str]) -> list[tuple[float, float]]:
        """When runs began and ended."""
        records = self.instance.get_run_records(RunsFilter(run_ids=run_ids))
        return [(each.start_time or 0.0, each.end_time or 0.0) for each in records]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Eight small days have landed, one of them cut short; backfills are made of runs of two days."""
    root = tmp_path_factory.mktemp("daemon")
    _land(root)
    (cut,) = (root / "landing/events" / str(BAD)).iterdir()
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    own = {"backfill_days": "2", "spark_memory": LIVE_MEMORY[4:], "backfill_spark_memory": BACKFILL_MEMORY[4:]}
    with Server(root, str(FIRST), **own) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKEHOUSE_PORT", str(server.port))
        patch.setenv("LAKEHOUSE_FIRST_DAY", str(FIRST))
        patch.setenv("LAKEHOUSE_BACKFILL_DAYS", "2")
        for name in ("DAGSTER_HOME", "DAGSTER_EVENT_BATCH_SIZE"):
            patch.setenv(name, os.environ.get(name, ""))
        with opened_instance(Settings(root=root)) as instance:
            yield Story(server, instance)


def _land(root: Path) -> None:
    land_events(root, FIRST, 8, rows=60, seed=5)


def test_two_runs_of_a_backfill_and_a_live_run_are_on_at_once(story: Story) -> None:
    """Without it, days would wait for each other, or a live run for a backfill of weeks."""
    span = ("--from", str(DAYS[0]), "--to", str(DAYS[-1]))
    started = story.cli("backfill", "--daemon", "--no-wait", "--select", SELECTION, *span, "--json")
    assert started.code == 0, started.err
    assert "24 partitions to build, 0 unchanged, in runs of at most 2 days" in started.err
    story.backfill_id = started.json["backfill_id"]
    story.wait(lambda: len(story.runs("STARTED")) == AT_ONCE, "two runs are on")
    assert len(story.runs("QUEUED")) == 1, "six days are three runs"
    story.live_run = _launch_live(story.server)


def test_a_paused_backfill_starts_nothing_even_after_a_kill(story: Story) -> None:
    """Without it, pausing would be forgotten by a restart, or throw away what is being computed."""
    paused = story.cli("backfills", "pause", story.backfill_id, "--json")
    assert paused.code == 0, paused.err
    assert (paused.json["state"], paused.json["runs_queued"]) == ("paused", 1)
    story.wait(lambda: not story.runs("STARTING", "STARTED"), "the runs that are on have ended by themselves")
    story.wait(lambda: story.server.run_status(story.live_run) == "SUCCESS", "the live run has ended")
    held = story.runs("QUEUED")
    killed = time.time()
    story.server.restart_after_kill()
    story.wait(lambda: _queue_looked_at(story.server) > killed, "the new daemon looks at the queue")
    time.sleep(4)  # it does so every second
    assert story.runs("QUEUED")[: len(held)] == held
    assert not story.runs("STARTING", "STARTED")
    shown = story.show()
    assert shown["state"] == "paused"
    assert {len(each["waiting"]) for each in shown["tables"] if each["table"] == "bronze.events"} == {2}


def test_it_goes_on_where_it_stands_and_names_the_bad_day(story: Story) -> None:
    """Without it, a bad day would stop a backfill, or what was built before the pause would be built once more."""
    assert story.cli("backfills", "resume", story.backfill_id).code == 0
    story.wait(lambda: story.state() not in ("running", "paused"), "the backfill is over")
    shown = story.show()
    assert shown["state"] == "failed"
    told = {each["table"]: each for each in shown["tables"]}
    (reason,) = told["bronze.events"]["failed"].items()
    assert reason[0] == str(BAD)
    assert "source_readable" in reason[1]
    late = {str(day) for day in DAYS[3:]}
    assert set(told["gold.user_features"]["skipped"]) == late, "a window waits for each of its days"
    assert not any(each["waiting"] or each["running"] for each in shown["tables"])


def test_only_what_is_missing_is_built_by_a_retry(story: Story) -> None:
    """Without it, fixing one day would mean to run the whole backfill again."""
    _land(story.server.root)
    again = story.cli("backfills", "retry", story.backfill_id, "--json")
    assert again.code == 0, again.err
    built = {each["table"]: each["published"] for each in again.json["tables"]}
    assert built == {name: [str(BAD)] for name in TABLES[:3]} | {TABLES[3]: [str(day) for day in DAYS[3:]]}
    assert story.cli("backfills", "retry", again.json["backfill_id"]).code == 2, "nothing is left"


def test_never_more_than_n_at_once_and_live_runs_do_not_wait(story: Story) -> None:
    """Without it, a limit that is not kept, or that live runs are under too, would not be noticed."""
    spans = story.spans([each.run_id for each in runs_of(story.instance, story.backfill_id)])
    most = max(sum(begin <= moment < end for begin, end in spans) for moment, _ in spans)
    assert most == AT_ONCE
    ((_, ended),) = story.spans([story.live_run])
    assert ended < max(end for _, end in spans)


def test_backfills_have_an_engine_of_their_own(story: Story) -> None:
    """Without it, the settings would be read and given to nobody."""
    assert story.engines == {LIVE_MEMORY, BACKFILL_MEMORY}


def test_the_outcome_is_that_of_one_plain_build_and_nothing_was_built_twice(
    story: Story, lake: LakeFactory, tmp_path: Path
) -> None:
    """Without it, runs that build parts at once, windows and orders over several days, could come out otherwise."""
    built: Counter[tuple[str, str]] = Counter()
    for event in _materializations(story.instance):
        if event.metadata["status"].value == "published" and event.partition:
            built[table_of(event.asset_key), event.partition] += 1
    assert built == {(name, str(day)): 1 for name in TABLES for day in DAYS} | {("bronze.events", str(LIVE)): 1}
    plain = lake(*tables().values(), root=tmp_path / "plain")
    _land(plain.settings.root)
    for name in TABLES:
        build(plain, plain.table(name), DAYS, run_id="plain")
        for store in (name, plain.table(name).quarantine_id):
            assert _content(story.server.root, store) == _content(plain.settings.root, store), store


def test_a_cancelled_backfill_ends_what_waits_and_can_be_taken_up_again(story: Story) -> None:
    """Without it, a mistaken backfill could not be stopped, or what it left undone be asked for only by hand.

    Its days are built already, so without --force nothing would be published. The table's pool is held here, so that
    its run waits: the daemon looks at cancelled backfills every few seconds, and a run that is on could be over.
    """
    span, slots = ("--from", str(DAYS[0]), "--to", str(DAYS[1])), story.instance.event_log_storage
    assert slots.claim_concurrency_slot("silver_orders", "held", "here").is_claimed
    arguments = ("backfill", "--daemon", "--no-wait", "--force", "--select", "silver.orders", *span, "--json")
    story.backfill_id = story.cli(*arguments).json["backfill_id"]
    story.wait(lambda: story.runs("QUEUED"), "a run waits")
    assert story.cli("backfills", "cancel", story.backfill_id, "--json").json["state"] == "stopping"
    story.wait(lambda: story.runs("CANCELED"), "the daemon has ended its run")
    slots.free_concurrency_slots_for_run("held")
    story.wait(lambda: story.state() == "cancelled", "the daemon has ended it")
    assert not story.runs("QUEUED", "STARTING", "STARTED", "CANCELING", "SUCCESS")
    again = story.cli("backfills", "retry", story.backfill_id, "--json")
    assert again.code == 0, again.err
    assert again.json["tables"][0]["published"] == [str(day) for day in DAYS[:2]]
    listed = {each["backfill_id"]: each for each in story.cli("backfills", "list", "--json").json}
    cancelled = listed[story.backfill_id]
    assert cancelled["state"] == "cancelled"
    assert (cancelled["done"], cancelled["not_built"]) == (0, 2), "what was cancelled has not failed"
    assert {each["state"] for each in listed.values()} <= {"failed", "done", "cancelled", "running"}, (
        "the daemon closes the last one later"
    )


def _materializations(instance: DagsterInstance) -> list[AssetMaterialization]:
    found = []
    for run_id in (each.run_id for each in instance.get_runs()):
        for entry in instance.all_logs(run_id, of_type=DagsterEventType.ASSET_MATERIALIZATION):
            assert entry.dagster_event is not None
            found.append(entry.dagster_event.step_materialization_data.materialization)
    return found


def _content(root: Path, name: str) -> list[str]:
    path = table_path(root, name)
    rows = rows_of(path) if path.exists() else []
    kept = [{k: v for k, v in row.items() if k not in ("_ingested_run", "_code_version")} for row in rows]
    return sorted(repr(sorted(row.items())) for row in kept if str(LIVE) not in json.dumps(row, default=str))


def _queue_looked_at(server: Server) -> float:
    query = '{instance {daemonHealth {daemonStatus(daemonType: "QUEUED_RUN_COORDINATOR") {lastHeartbeatTime}}}}'
    return float(server.ask(query)["instance"]["daemonHealth"]["daemonStatus"]["lastHeartbeatTime"] or 0)


def _launch_live(server: Server) -> str:
    mutation = """mutation($what: ExecutionParams!) {launchRun(executionParams: $what) {
        ... on LaunchRunSuccess {run {runId}} ... on Error {message}}}"""
    what = {
        "selector": {
            "repositoryLocationName": "lakehouse.definitions",
            "repositoryName": "__repository__",
            "jobName": "lakehouse",
            "assetSelection": [{"path": ["bronze", "events"]}],
        },
        "executionMetadata": {"tags": [{"key": "dagster/partition", "value": str(LIVE)}]},
    }
    answer = server.ask(mutation, {"what": what})["launchRun"]
    assert "run" in answer, answer
    return str(answer["run"]["runId"])
