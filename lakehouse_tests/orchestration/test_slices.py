"""A run asks for slices by its tag, whoever records it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus

from lakehouse.orchestration.slices import SLICES_TAG
from lakehouse.runs.executing import Asked, create_run, execute
from lakehouse_tests.orchestration.running import GOOD, TABLE, Foretold, result

DAY = date(2011, 1, 4)


def built(runs: Foretold, days: list[date], tag: str | None) -> tuple[DagsterRun, list[Any]]:
    """A run with a tag, and what its builds were asked for."""
    asked: list[Any] = []

    def build(made: Any, of: list[date], **kwargs: Any) -> Any:
        asked.append(kwargs["slicing"])
        if kwargs["slicing"]:
            kwargs["slicing"].tell("a slice is staged")
        facts = {"slices": 8, "slices_taken": 2, "slowest_slice_seconds": 1.5}
        return replace(result(made, dict.fromkeys(of, GOOD)), facts=facts)

    runs._build = build
    run = create_run(runs.instance, [TABLE], min(days), max(days))
    if tag is not None:
        runs.instance.add_run_tags(run.run_id, {SLICES_TAG: tag})
    stored = runs.instance.get_run_by_id(run.run_id)
    assert stored is not None
    for _ in execute(runs.instance, stored):
        pass
    done = runs.instance.get_run_by_id(run.run_id)
    assert done is not None
    return done, asked


def test_the_tag_reaches_the_build_and_each_slice_is_logged(runs: Foretold, instance: DagsterInstance) -> None:
    """Without it, slices asked for in the UI or by a backfill would be ignored, and hours would pass without a word."""
    run, (slicing,) = built(runs, [DAY], "8")
    assert run.status is DagsterRunStatus.SUCCESS
    assert slicing.number == 8
    assert any(entry.user_message == "a slice is staged" for entry in instance.all_logs(run.run_id))
    (event,) = [e for e in instance.all_logs(run.run_id) if e.dagster_event and e.dagster_event.is_step_materialization]
    assert event.dagster_event is not None
    metadata = event.dagster_event.step_materialization_data.materialization.metadata
    shown = {name: each.value for name, each in metadata.items()}
    assert (shown["slices"], shown["slices_taken"], shown["slowest_slice_seconds"]) == (8, 2, 1.5)


@pytest.mark.parametrize("tag", [None, "1"])
def test_other_runs_are_not_sliced(runs: Foretold, tag: str | None) -> None:
    """Without it, every run would pay for slices."""
    run, asked = built(runs, [DAY], tag)
    assert (run.status, asked) == (DagsterRunStatus.SUCCESS, [None])


@pytest.mark.parametrize("tag", ["eight", "0", "-3", "²", "2.5", "100000"])
def test_a_tag_that_is_no_number_fails_by_name(runs: Foretold, instance: DagsterInstance, tag: str) -> None:
    """Without it, a slip in the launcher would build everything whole, or break without saying why."""
    run, asked = built(runs, [DAY], tag)
    assert (run.status, asked) == (DagsterRunStatus.FAILURE, [])
    (failure,) = [
        e.dagster_event for e in instance.all_logs(run.run_id) if e.dagster_event and e.dagster_event.is_step_failure
    ]
    told = failure.step_failure_data.user_failure_data
    assert told is not None
    assert f"lakehouse/slices is {tag!r}: expected a number of slices such as 8" in str(told.description)


def test_runs_recorded_by_a_command_carry_the_tag(instance: DagsterInstance) -> None:
    """Without it, `backfill --slices` would say that it slices, and build whole; or the next command would slice too."""
    assert create_run(instance, [TABLE], DAY, DAY, Asked(slices=8)).tags[SLICES_TAG] == "8"
    assert SLICES_TAG not in create_run(instance, [TABLE], DAY, DAY).tags
