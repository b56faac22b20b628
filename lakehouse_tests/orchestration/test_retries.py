"""What is tried again, and what is not, in real runs."""

from __future__ import annotations

import errno
from datetime import date
from typing import Any

import pytest
from dagster import DagsterInstance

from lakehouse.build.result import BuildResult
from lakehouse.contracts import Table
from lakehouse.errors import SourceError
from lakehouse.orchestration import assets
from lakehouse.orchestration.retries import MAX_RETRIES, wait_before
from lakehouse_tests.orchestration.running import GOOD, Foretold, result

DAY = date(2011, 3, 1)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "wait_before", lambda _: 0.0)


def _failing(times: int, error: BaseException) -> Any:
    left = [times]

    def build(table: Table, days: list[date], **_: Any) -> BuildResult:
        left[0] -= 1
        if left[0] >= 0:
            raise error
        return result(table, dict.fromkeys(days, GOOD))

    return build


def _kinds(instance: DagsterInstance, run_id: str) -> list[str]:
    found = [entry.dagster_event for entry in instance.all_logs(run_id)]
    return [event.event_type_value for event in found if event is not None]


def test_a_step_whose_engine_hiccups_twice_gets_there(runs: Foretold, instance: DagsterInstance) -> None:
    """Without it, the days of a run would wait for a person because of a moment."""
    run = runs.run_with(_failing(MAX_RETRIES, ConnectionResetError("reset")), [DAY])
    assert run.status.value == "SUCCESS"
    assert runs.calls == 1 + MAX_RETRIES
    kinds = _kinds(instance, run.run_id)
    assert kinds.count("STEP_UP_FOR_RETRY") == MAX_RETRIES
    assert kinds.count("ASSET_MATERIALIZATION") == 1


def test_a_hiccup_that_stays_fails_by_its_own_name(runs: Foretold, instance: DagsterInstance) -> None:
    """Without it, the run would say "exceeded max_retries" instead of what is broken."""
    run = runs.run_with(_failing(99, ConnectionResetError("by the store")), [DAY])
    assert run.status.value == "FAILURE"
    assert runs.calls == 1 + MAX_RETRIES
    (event,) = [
        e.dagster_event for e in instance.all_logs(run.run_id) if e.dagster_event and e.dagster_event.is_step_failure
    ]
    assert "ConnectionResetError" in event.step_failure_data.error_display_string
    assert "max_retries" not in event.step_failure_data.error_display_string


@pytest.mark.parametrize(
    "error", [ValueError("a mistake"), SourceError("gone"), OSError(errno.ENOSPC, "full")], ids=repr
)
def test_a_mistake_fails_at_once(runs: Foretold, instance: DagsterInstance, error: Exception) -> None:
    """Without it, whoever writes a table would wait through retries for each typing mistake."""
    run = runs.run_with(_failing(99, error), [DAY])
    assert (run.status.value, runs.calls) == ("FAILURE", 1)
    assert "STEP_UP_FOR_RETRY" not in _kinds(instance, run.run_id)


def test_an_interrupt_is_never_tried_again(runs: Foretold, instance: DagsterInstance) -> None:
    """Without it, "Terminate" in the interface would start the step once more."""
    run = runs.run_with(_failing(99, KeyboardInterrupt()), [DAY])
    assert (run.status.value, runs.calls) == ("CANCELED", 1)
    assert "STEP_UP_FOR_RETRY" not in _kinds(instance, run.run_id)


def test_waits_grow() -> None:
    """Without it, three attempts would fall into the same moment of trouble."""
    assert 4 <= wait_before(1) <= 6
    assert 8 <= wait_before(2) <= 12
