"""Quarantines in Dagster: assets that builds observe, and jobs that decide about rows as the commands do."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetKey, DagsterInstance, OpDefinition
from dagster._core.errors import DagsterExecutionInterruptedError

from lakehouse.build.result import DayResult
from lakehouse.catalog import tables
from lakehouse.checks.metrics import DayMetrics
from lakehouse.contracts import Table
from lakehouse.definitions import defs
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.target import Commit
from lakehouse.orchestration import quarantine as module
from lakehouse.orchestration.metadata import legible, rule_results
from lakehouse.orchestration.quarantine import observed, quarantine_discard, quarantine_key, quarantine_replay
from lakehouse.read.lake import Lake
from lakehouse.read.targets import targets
from lakehouse.records.depth import Depth, depth_of
from lakehouse.records.ledger import entries
from lakehouse.records.quarantined import quarantined_rows
from lakehouse.settings import Settings
from lakehouse_tests.fixtures.making import stage_rows
from lakehouse_tests.orchestration.running import GOOD, SAME, Foretold, result

pytestmark = pytest.mark.slow

TABLE = "silver.transactions"
DAYS = [date(2026, 3, 2) + timedelta(days=n) for n in range(2)]
KEY = AssetKey(["silver", "transactions_quarantine"])
SECRET = "someone@example.org"


@pytest.fixture
def aside(settings: Settings) -> Table:
    """Three rows in quarantine, two of one day, with personal data in the columns that hold it."""
    table = tables()[TABLE]
    _, side = targets(Lake(settings, tables(), lambda: None), table)  # type: ignore[arg-type,return-value]
    assert side is not None
    rows = [
        {
            "event_id": f"e{n}",
            "event_date": day,
            "user_id": SECRET,
            "_raw": SECRET,
            "currency": f"X{n}",
            "_failed_rules": rules,
        }
        for n, (day, rules) in enumerate(
            [
                (DAYS[0], ["currency_known"]),
                (DAYS[0], ["currency_known", "amount_present"]),
                (DAYS[1], ["amount_present"]),
            ]
        )
    ]
    files = stage_rows(side, rows, "quarantined")
    facts = {"lakehouse.run_id": "r", "lakehouse.code_version": "c"}
    replace_days(side, ensure_table(side), files, DAYS, Commit({}, facts))
    return table


def decide(job: Any, op: str, instance: DagsterInstance, **config: Any) -> Any:
    """Launch a job with the form filled in."""
    filled = {"ops": {op: {"config": {"table": TABLE, "who": "ana", **config}}}}
    return job.execute_in_process(instance=instance, run_config=filled, raise_on_error=False)


def told(instance: DagsterInstance) -> Mapping[str, Any]:
    """What the newest observation of the quarantine says."""
    record = instance.fetch_observations(KEY, limit=1).records[0]
    assert record.asset_observation is not None
    return {name: value.value for name, value in record.asset_observation.metadata.items()}


def test_every_table_with_rules_has_its_quarantine_in_the_graph() -> None:
    graph = defs.resolve_asset_graph()
    keys = {quarantine_key(table) for table in tables().values() if table.rules}
    assert keys == graph.get_all_asset_keys() - graph.materializable_asset_keys
    assert {graph.get(key).group_name for key in keys} == {"quarantine"}
    selected = defs.resolve_job_def("lakehouse").asset_layer.selected_asset_keys
    assert not keys & selected


def test_what_is_observed_holds_counts_by_rule_and_no_personal_data(aside: Table) -> None:
    """Without it, Dagster's event log would keep an address for ever."""
    found = observed(aside, Depth(datetime.now(UTC), rows=3, by_rule=Counter(currency_known=2)))
    metadata = {name: value.value for name, value in found.metadata.items()}
    assert metadata["rows"] == 3
    assert metadata["rows/currency_known"] == 2
    assert legible({f"rows/{rule.name}": 0 for rule in aside.rules}).keys() <= metadata.keys()
    assert metadata["rows/event_id_present"] == 0
    assert SECRET not in str(found)
    sample = [dict(record.data) for record in found.metadata["sample"].records]  # type: ignore[attr-defined]
    assert [row["_failed_rules"] for row in sample] == [
        "currency_known",
        "currency_known, amount_present",
        "amount_present",
    ]
    assert {row["currency"] for row in sample} == {"X0", "X1", "X2"}


def test_a_build_observes_its_quarantine_once(
    aside: Table, runs: Foretold, instance: DagsterInstance, settings: Settings
) -> None:
    """One event a run, however many days and rules; none where nothing was built, or nothing has changed."""

    def built(table: Table, days: list[date], **_: Any) -> Any:
        made = result(table, dict.fromkeys(days, fate))
        return replace(made, quarantine=depth_of(quarantined_rows(settings.root, table), datetime.now(UTC)))

    fate = GOOD
    runs.run_with(built, DAYS, TABLE)
    assert len(instance.fetch_observations(KEY, limit=9).records) == 1
    found = told(instance)
    assert (found["rows"], found["rows/currency_known"], found["rows/amount_present"]) == (3, 2, 2)
    fate = SAME
    runs.run_with(built, DAYS, TABLE)
    assert len(instance.fetch_observations(KEY, limit=9).records) == 1
    fate = GOOD
    runs.run_with(built, DAYS[:1], TABLE)
    assert len(instance.fetch_observations(KEY, limit=9).records) == 1, "the same rows are in it"
    decide(quarantine_discard, "discard_rows", instance, days=[str(DAYS[0])], reason="a test shop")
    runs.run_with(built, DAYS[1:], TABLE)
    assert len(instance.fetch_observations(KEY, limit=9).records) == 2, "the decision has shown it"


def test_an_empty_quarantine_costs_no_event(runs: Foretold, instance: DagsterInstance) -> None:
    """Without it, the full history would write one more event for each table and run, which says nothing."""

    def events(depth: Depth | None) -> int:
        def built(table: Table, days: list[date], **_: Any) -> Any:
            return replace(result(table, dict.fromkeys(days, GOOD)), quarantine=depth)

        return len(instance.all_logs(runs.run_with(built, DAYS, TABLE).run_id))

    assert events(Depth(datetime.now(UTC))) == events(None)


def test_a_discard_is_in_the_ledger_and_on_the_asset(
    aside: Table, instance: DagsterInstance, settings: Settings
) -> None:
    """The form does what the command does, with the name of who decided."""
    done = decide(
        quarantine_discard,
        "discard_rows",
        instance,
        rule="currency_known",
        days=[str(DAYS[0])],
        reason=" a  test shop ",
    )
    assert done.success
    (entry,) = entries(settings.root, TABLE)
    assert (entry.who, entry.reason, entry.rows, list(entry.chosen)) == ("ana", "a test shop", 2, [DAYS[0]])
    found = told(instance)
    assert (found["rows"], found["discarded"], found["discarded_now"], found["ledger"]) == (1, 2, 2, entry.id)
    again = decide(quarantine_discard, "discard_rows", instance, rule="currency_known", reason="again")
    assert again.success
    assert told(instance)["discarded_now"] == 0
    back = decide(quarantine_discard, "discard_rows", instance, reason="was wrong", undo=True)
    assert back.success
    assert told(instance)["counted_again"] == 2
    assert all(not each.discarded for each in quarantined_rows(settings.root, aside))


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"reason": "  "}, "needs a reason"),
        ({"reason": "x", "table": "silver.transaction"}, "Did you mean silver.transactions"),
        ({"reason": "x", "rule": "no_such_rule"}, "has no rule 'no_such_rule'"),
        ({"reason": "x", "days": ["2026-13-01"]}, "'2026-13-01' is not a day; expected YYYY-MM-DD"),
        ({"reason": "x", "who": " "}, "Say who decides"),
    ],
)
def test_a_form_that_is_wrong_says_what(aside: Table, instance: DagsterInstance, config: Any, text: str) -> None:
    """Nothing is decided, and who filled it in is told what was expected."""
    done = decide(quarantine_discard, "discard_rows", instance, **config)
    (failed,) = [event for event in done.all_events if event.is_step_failure]
    assert text in str(failed.step_failure_data)
    assert not instance.fetch_observations(KEY, limit=1).records


@pytest.mark.parametrize("op", [module.discard_rows, module.replay_rows])
def test_a_form_shows_each_field_that_may_be_left_out(op: OpDefinition) -> None:
    """Without it, Dagster's launchpad leaves `days` out of the form that it fills in, and nobody finds it."""
    form: Any = op.config_schema.config_type
    fields = form.fields
    assert "days" in fields
    assert [name for name, field in fields.items() if not (field.is_required or field.default_provided)] == []


def test_a_replay_is_the_command(aside: Table, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job runs the command by who filled in the form, and what it says is shown on the asset."""
    called: list[Any] = []
    real = module._run

    def run(command: Sequence[str], environment: Mapping[str, str]) -> Any:
        called.append((command[3:], environment["LOGNAME"]))
        return real(command, environment)

    monkeypatch.setattr(module, "_run", run)
    done = decide(quarantine_replay, "replay_rows", instance, rule="event_time_present", days=[str(DAYS[0])])
    assert done.success  # no row broke that rule, so nothing is built: what is built, test_quarantine_decisions shows
    expected = ["quarantine", "replay", TABLE, "--json", "--rule", "event_time_present", "--day", str(DAYS[0])]
    assert called == [(expected, "ana")]
    found = told(instance)
    assert (found["who"], found["runs"], found["rows"]) == ("ana", "none: nothing has changed", 3)


COMMAND = """
import pathlib, sys, time
try:
    pathlib.Path(sys.argv[1]).touch()
    time.sleep(60)
except KeyboardInterrupt:
    pathlib.Path(sys.argv[1]).write_text("has ended its builds")
"""


def test_a_replay_that_is_terminated_ends_its_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is interrupted and comes to its end: killed, it would leave runs open that nobody executes."""
    begun = tmp_path / "begun"

    def interrupted(*_: object) -> None:
        raise DagsterExecutionInterruptedError

    def interrupt() -> None:
        while not begun.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGUSR1)

    monkeypatch.setattr(module, "STOP_SECONDS", 20)
    before = signal.signal(signal.SIGUSR1, interrupted)
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(DagsterExecutionInterruptedError):
            module._run([sys.executable, "-c", COMMAND, str(begun)], os.environ)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert begun.read_text() == "has ended its builds"


def test_a_replay_that_was_killed_says_so(
    aside: Table, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what to do: it had said that it said nothing."""
    monkeypatch.setattr(module, "_run", lambda *_: (-signal.SIGKILL, "", ""))
    done = decide(quarantine_replay, "replay_rows", instance)
    (failed,) = [event for event in done.all_events if event.is_step_failure]
    assert "was killed by SIGKILL. Nothing is lost or doubled: launch the same job again" in str(
        failed.step_failure_data
    )


def test_each_rule_has_a_result_of_its_own() -> None:
    """Also those that found nothing: a rule that is fine today is a point of its plot too."""
    table = tables()[TABLE]
    days = [DayResult("published", DayMetrics(day, failures={"currency_known": 2 + n})) for n, day in enumerate(DAYS)]
    found = rule_results(table, days)
    assert found["failed/currency_known"] == 5
    assert found["failed/event_id_present"] == 0
    shown = {record.data["rule"]: record.data for record in found["rules"].records}
    assert set(shown) == {rule.name for rule in table.rules}
    assert (shown["currency_known"]["result"], shown["currency_known"]["days"]) == ("broken", 2)
    assert shown["event_id_present"]["result"] == "passed"
    assert rule_results(table, [DayResult("unchanged", DayMetrics(DAYS[0]))]) == {}
