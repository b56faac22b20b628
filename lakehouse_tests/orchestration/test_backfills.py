"""Backfills as Dagster keeps them, without a daemon: pausing, stopping, telling how far they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetKey, DagsterEvent, DagsterEventType, DagsterInstance, DagsterRun, DagsterRunStatus
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._daemon.types import DaemonHeartbeat
from dagster._utils.tags import TagConcurrencyLimitsCounter

from lakehouse.build.result import BuildResult
from lakehouse.catalog import tables
from lakehouse.commands.build import backfills as commands
from lakehouse.commands.progress import Terminal
from lakehouse.contracts import Table
from lakehouse.definitions import defs
from lakehouse.errors import INTERRUPTED, OK, ContractError
from lakehouse.orchestration import backfills
from lakehouse.orchestration import instance as instance_module
from lakehouse.orchestration.assets import build_asset
from lakehouse.orchestration.backfills import (
    PAUSED_TAG,
    cancel,
    change,
    holds_paused_runs,
    newest_backfills,
    runs_of,
    set_paused,
    state_of,
    still_to_come,
    target_of,
)
from lakehouse.orchestration.instance import DAGSTER_BACKFILL_TAG, STARTED_AGAIN, opened_instance
from lakehouse.orchestration.metadata import asset_key
from lakehouse.records.depth import Depth
from lakehouse.runs import daemon
from lakehouse.runs.executing import asset_graph, create_run, execute
from lakehouse.runs.watch import Watch
from lakehouse.settings import Settings, get_settings
from lakehouse_tests.commands.conftest import run
from lakehouse_tests.fixtures.making import Clock
from lakehouse_tests.orchestration.running import BAD, GOOD, Fates, Foretold, result

DAYS = [date(2011, 3, day) for day in range(1, 5)]
TABLES = ["bronze.events", "silver.transactions"]


@pytest.fixture
def backfill(instance: DagsterInstance) -> str:
    """A backfill of two tables over four days that was asked for, as the web server keeps it."""
    made = PartitionBackfill.from_asset_partitions(
        backfill_id="abcdefgh",
        asset_graph=defs.resolve_asset_graph(),
        partition_names=[str(day) for day in DAYS],
        asset_selection=[asset_key(name) for name in TABLES],
        backfill_timestamp=1_300_000_000.0,
        tags={"who": "somebody"},
        dynamic_partitions_store=instance,
        all_partitions=False,
        title=None,
        description=None,
        run_config=None,
    )
    instance.add_backfill(made)
    return made.backfill_id


def _run(instance: DagsterInstance, backfill_id: str, first: date, last: date) -> DagsterRun:
    run = create_run(instance, TABLES, first, last)
    instance.add_run_tags(run.run_id, {DAGSTER_BACKFILL_TAG: backfill_id})
    return run


def _built(table: Table, fates: Fates) -> BuildResult:
    return replace(result(table, fates), quarantine=Depth(datetime(2011, 3, 6, tzinfo=UTC)) if table.rules else None)


def _kept(instance: DagsterInstance, backfill_id: str) -> PartitionBackfill:
    found = instance.get_backfill(backfill_id)
    assert found is not None
    return found


def _may_start(instance: DagsterInstance, run_id: str) -> bool:
    """What the run queue's own rule says, with the limits of our `dagster.yaml`."""
    queue = instance.get_concurrency_config().run_queue_config
    run = instance.get_run_by_id(run_id)
    assert queue is not None
    assert run is not None
    return not TagConcurrencyLimitsCounter(queue.tag_concurrency_limits, []).is_blocked(run)


def test_a_pause_holds_its_own_queued_runs_and_those_to_come(instance: DagsterInstance, backfill: str) -> None:
    """Without it, the queue would go on starting runs of a paused backfill, or hold back other people's."""
    own = _run(instance, backfill, DAYS[0], DAYS[1]).run_id
    other = _run(instance, "somebody", DAYS[0], DAYS[1]).run_id
    assert holds_paused_runs(instance)
    set_paused(instance, backfill, True, lull=0.0)
    assert (_may_start(instance, own), _may_start(instance, other)) == (False, True)
    assert state_of(_kept(instance, backfill)) == "paused"
    assert _kept(instance, backfill).tags == {"who": "somebody", PAUSED_TAG: "true"}, "the daemon gives these to runs"
    assert _kept(instance, backfill).status == BulkActionStatus.REQUESTED, "the daemon goes on taking note of it"
    set_paused(instance, backfill, False, lull=0.0)
    assert _may_start(instance, own)
    assert (state_of(_kept(instance, backfill)), _kept(instance, backfill).tags) == ("running", {"who": "somebody"})


def test_runs_that_are_made_during_the_pause_are_held_too(
    instance: DagsterInstance, backfill: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a daemon that had begun to make runs would make them without the tag, and they would be started."""
    late: list[str] = []

    def daemon_goes_on(_: float) -> None:
        if not late:
            late.append(_run(instance, backfill, DAYS[2], DAYS[3]).run_id)
            # It also writes down what it had read before the pause.
            kept = _kept(instance, backfill)
            instance.update_backfill(kept._replace(tags={"who": "somebody"}))

    monkeypatch.setattr(backfills, "time", Clock(daemon_goes_on))
    set_paused(instance, backfill, True, lull=0.0)
    assert state_of(_kept(instance, backfill)) == "paused"
    assert not _may_start(instance, late[0])


def test_a_change_never_takes_back_what_the_daemon_has_noted(instance: DagsterInstance, backfill: str) -> None:
    """Without it, a pause at the wrong moment would make the daemon forget the runs it has made, and make them again."""
    looks: list[int] = []

    def how(found: PartitionBackfill) -> PartitionBackfill:
        if not looks:
            instance.update_backfill(found.with_failure_count(3))
        looks.append(found.failure_count)
        return found._replace(title="changed")

    assert change(instance, backfill, how)
    assert looks == [0, 3]
    assert (_kept(instance, backfill).title, _kept(instance, backfill).failure_count) == ("changed", 3)
    assert not change(instance, backfill, how), "nothing is left to change"


def test_a_cancelled_backfill_is_the_daemons_to_end(instance: DagsterInstance, backfill: str) -> None:
    """Without it, what is built again from a paused and cancelled backfill would be held for ever."""
    set_paused(instance, backfill, True, lull=0.0)
    assert cancel(instance, backfill)
    kept = _kept(instance, backfill)
    assert (state_of(kept), kept.status, kept.tags) == ("stopping", BulkActionStatus.CANCELING, {"who": "somebody"})
    instance.update_backfill(kept._replace(status=BulkActionStatus.CANCELED))
    assert not cancel(instance, backfill)
    set_paused(instance, backfill, True, lull=0.0)
    assert state_of(_kept(instance, backfill)) == "cancelled"


def test_it_is_cancelled_while_the_code_does_not_load(
    instance: DagsterInstance, backfill: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, somebody who ends a backfill of broken code would read nothing but that the code is broken."""

    def broken() -> AssetGraph:
        raise ContractError("lakehouse/gold/user_features.py:90: invalid syntax.")

    monkeypatch.setattr(commands, "asset_graph", broken)
    refused = run(settings.root, "backfills", "cancel", backfill, "--json")
    assert (refused.code, state_of(_kept(instance, backfill))) == (2, "running")
    said = run(settings.root, "backfills", "cancel", backfill)
    assert (said.code, state_of(_kept(instance, backfill))) == (0, "stopping")
    assert f"Backfill {backfill} is stopping" in said.err


def test_an_older_queue_cannot_hold_runs(settings: Settings) -> None:
    """Without it, under a root with an older `dagster.yaml` a pause would be said and not kept."""
    text = Path(instance_module.__file__).with_name("dagster.yaml").read_text()
    begin, end = text.index("      # `lakehouse backfills pause`"), text.index("  pools:")
    settings.dagster_home.mkdir(parents=True)
    (settings.dagster_home / "dagster.yaml").write_text(text[:begin] + text[end:])
    with opened_instance(settings) as older:
        assert not holds_paused_runs(older)
        older.add_backfill(PartitionBackfill("abcdefgh", BulkActionStatus.REQUESTED, False, {}, 1.3e9))
    said = run(settings.root, "backfills", "pause", "abcdefgh")
    assert said.code == 2
    assert '{key: lakehouse/paused, value: "true", limit: 0}' in said.err


def test_other_automation_leaves_its_days_alone(instance: DagsterInstance, backfill: str) -> None:
    """Without it, the sensor would build what a paused backfill is not to build, beside what it builds anyway."""
    assert still_to_come(instance, asset_graph()) == {name: set(DAYS) for name in TABLES}
    run = _run(instance, backfill, DAYS[0], DAYS[1])
    instance.report_run_failed(run)
    assert still_to_come(instance, asset_graph()) == {name: set(DAYS[2:]) for name in TABLES}
    instance.update_backfill(_kept(instance, backfill)._replace(status=BulkActionStatus.CANCELED))
    assert still_to_come(instance, asset_graph()) == {}


@pytest.mark.slow
def test_it_is_told_by_table_and_day_how_far_it_is(
    instance: DagsterInstance, backfill: str, runs: Foretold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, who watches would know of days only what the daemon has counted, and of failed ones no reason."""
    fates = {DAYS[0]: GOOD, DAYS[1]: BAD}
    monkeypatch.setattr(
        "lakehouse.orchestration.assets.build",
        lambda _, table, days, **__: _built(table, {day: fates[day] for day in days}),
    )
    first = _run(instance, backfill, DAYS[0], DAYS[1])
    second = _run(instance, backfill, DAYS[2], DAYS[3])
    for _ in execute(instance, first):
        pass
    watch = Watch(instance, backfill)
    watch.look()
    events, sales = watch.report.tables["bronze.events"], watch.report.tables["silver.transactions"]
    assert (list(events.published), list(events.failed), list(sales.published)) == ([DAYS[0]], [DAYS[1]], [DAYS[0]])
    assert "row_conservation" in events.failed[DAYS[1]]
    assert sales.skipped == {DAYS[1]: "waits for bronze.events, whose day failed"}
    assert watch.running["bronze.events"] == set(DAYS[2:])
    assert not watch.is_over
    instance.report_run_canceled(second)
    instance.update_backfill(_kept(instance, backfill)._replace(status=BulkActionStatus.CANCELED))
    watch.look()
    assert watch.is_over
    watch.close()
    assert events.skipped == dict.fromkeys(DAYS[2:], "the run ended before")
    assert [run.status for run in watch.report.runs] == ["FAILURE", "CANCELED"]


def test_whoever_stops_following_stops_nothing_else(
    instance: DagsterInstance,
    settings: Settings,
    backfill: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without it, closing a terminal would end a night's backfill."""
    run = _run(instance, backfill, DAYS[0], DAYS[1])

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(daemon, "time", Clock(interrupted))
    report = daemon.follow(settings, backfill, Terminal(settings))
    assert report.exit_code == INTERRUPTED
    assert f"No longer following; backfill {backfill} goes on" in capsys.readouterr().err
    assert state_of(_kept(instance, backfill)) == "running"
    stored = instance.get_run_by_id(run.run_id)
    assert stored is not None
    assert stored.status == DagsterRunStatus.NOT_STARTED


@pytest.mark.slow
def test_a_run_that_crashed_and_was_started_again_is_no_failure(
    instance: DagsterInstance, backfill: str, runs: Foretold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, who follows would be told of a broken backfill a moment before Dagster starts its run again."""
    monkeypatch.setattr(
        "lakehouse.orchestration.assets.build",
        lambda _, table, days, **__: _built(table, dict.fromkeys(days, GOOD)),
    )
    crashed = _run(instance, backfill, DAYS[0], DAYS[3])
    instance.add_run_tags(crashed.run_id, STARTED_AGAIN)
    instance.report_run_failed(crashed)
    watch = Watch(instance, backfill)
    watch.look()
    assert not watch.is_over
    again = _run(instance, backfill, DAYS[0], DAYS[3])
    instance.add_run_tags(crashed.run_id, {"dagster/auto_retry_run_id": again.run_id})
    for _ in execute(instance, again):
        pass
    watch.look()
    assert watch.is_over
    watch.close()
    assert watch.report.exit_code == OK
    assert [run.run_id for run in watch.report.runs] == [again.run_id]


def _of_job(instance: DagsterInstance, backfill_id: str, status: BulkActionStatus) -> PartitionBackfill:
    """A backfill of a job over the first day, as Dagster's page and command leave it."""
    made = PartitionBackfill(
        backfill_id,
        status,
        from_failure=False,
        tags={},
        backfill_timestamp=1_300_000_000.0,
        partition_names=["2011-03-01"],
        asset_selection=[AssetKey(["bronze", "events"])],
    )
    instance.add_backfill(made)
    return made


def test_a_job_backfill_is_one_too(instance: DagsterInstance) -> None:
    """Without it, what was launched from the job's page could be neither seen nor paused."""
    made = _of_job(instance, "ofajobid", BulkActionStatus.REQUESTED)
    assert [each.backfill_id for each in newest_backfills(instance)] == ["ofajobid"]
    assert target_of(made, asset_graph()) == {"bronze.events": {DAYS[0]}}
    run = _run(instance, "ofajobid", DAYS[0], DAYS[0])
    assert [each.run_id for each in runs_of(instance, "ofajobid")] == [run.run_id]
    assert run.status == DagsterRunStatus.NOT_STARTED


@pytest.mark.parametrize("well", [True, False])
def test_one_by_dagsters_own_command_is_over_with_its_runs(
    instance: DagsterInstance, settings: Settings, *, well: bool
) -> None:
    """Without it, `dagster job backfill` is done once its runs are queued: no run was started for days that wait."""
    _of_job(instance, "ofdagste", BulkActionStatus.COMPLETED)
    waits = _run(instance, "ofdagste", DAYS[0], DAYS[0])
    shown = run(settings.root, "backfills", "show", "ofdagste")
    assert ("running" in shown.out, "no run was started" in shown.out + shown.err) == (True, False)
    set_paused(instance, "ofdagste", True, lull=0)
    assert [state_of(each) for each in newest_backfills(instance)] == ["paused"]
    if well:
        instance.report_dagster_event(DagsterEvent(DagsterEventType.RUN_SUCCESS.value, waits.job_name), waits.run_id)
    else:
        instance.report_run_failed(waits)
    assert [state_of(each) for each in newest_backfills(instance)] == ["done" if well else "failed"]


def test_a_backfill_that_no_daemon_looks_after_is_said_to_wait(
    instance: DagsterInstance, settings: Settings, backfill: str
) -> None:
    """Without it, a backfill would be said to run for as long as the daemon is off, and people would wait for it."""
    now, off = datetime.now(UTC).timestamp(), "Dagster's daemon is off"
    for said, silent in ((None, True), (now - 600, True), (now, False)):
        if said is not None:
            instance.add_daemon_heartbeat(DaemonHeartbeat(said, "BACKFILL", "d", []))
        listed = run(settings.root, "backfills", "list")
        assert (backfill in listed.out, off in listed.err) == (True, silent)


def test_what_a_broken_backfill_has_not_built_is_listed(
    instance: DagsterInstance, settings: Settings, backfill: str
) -> None:
    """Without it, a backfill that Dagster gave up over a table that was renamed was listed with nothing left to build."""
    for status, left in ((BulkActionStatus.REQUESTED, 0), (BulkActionStatus.FAILED, len(DAYS) * len(TABLES))):
        instance.update_backfill(_kept(instance, backfill)._replace(status=status))
        (listed,) = run(settings.root, "backfills", "list", "--json").json
        assert (listed["done"], listed["not_built"]) == (0, left)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """What Dagster is asked to start; it says that it has."""
    found: list[Mapping[str, Any]] = []

    def answer(url: str, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        if not variables:
            return {"instance": {"info": None, "daemonHealth": {"daemonStatus": {"healthy": True}}}}
        found.append(variables["what"])
        return {"launchPartitionBackfill": {"backfillId": "bcdefghi"}}

    monkeypatch.setattr(daemon, "ask", answer)
    return found


def test_a_retry_of_a_jobs_backfill_builds_its_rest(
    instance: DagsterInstance, settings: Settings, backfill: str, sent: list[Mapping[str, Any]]
) -> None:
    """Without it, Dagster breaks the retry at its first look, and nothing is built."""
    of_job = _kept(instance, backfill)._replace(
        status=BulkActionStatus.COMPLETED_FAILED,
        partition_names=[str(day) for day in DAYS],
        asset_backfill_data=None,
    )
    instance.update_backfill(of_job)
    instance.report_run_failed(_run(instance, backfill, DAYS[0], DAYS[3]))
    said = run(settings.root, "backfills", "retry", backfill, "--no-wait")
    assert said.code == OK, said.err
    days = {"ranges": [{"start": str(DAYS[0]), "end": str(DAYS[3])}]}
    assert sent[0]["partitionsByAssets"] == [
        {"assetKey": {"path": name.split(".")}, "partitions": days} for name in TABLES
    ]


def test_what_a_deploy_took_away_is_left_out_of_a_retry(
    instance: DagsterInstance,
    settings: Settings,
    backfill: str,
    sent: list[Mapping[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without it, each retry of a backfill that a deploy broke would break at once for the same reason."""
    monkeypatch.setenv("LAKEHOUSE_FIRST_DAY", str(DAYS[2]))
    get_settings.cache_clear()
    graph = AssetGraph.from_assets([build_asset(tables()["bronze.events"])])
    monkeypatch.setattr(commands, "asset_graph", lambda: graph)
    broken = _kept(instance, backfill)._replace(status=BulkActionStatus.FAILED)
    instance.update_backfill(broken._replace(run_config={"a": 1}, tags={"who": "somebody", PAUSED_TAG: "false"}))
    said = run(settings.root, "backfills", "retry", backfill, "--no-wait")
    assert said.code == OK, said.err
    assert "no such table or day any more: bronze.events 2011-03-01 … 2011-03-02; silver.transactions" in said.err
    days = {"ranges": [{"start": str(DAYS[2]), "end": str(DAYS[3])}]}
    assert sent[0]["partitionsByAssets"] == [{"assetKey": {"path": ["bronze", "events"]}, "partitions": days}]
    assert (sent[0]["runConfigData"], sent[0]["tags"]) == ({"a": 1}, [{"key": "who", "value": "somebody"}])
