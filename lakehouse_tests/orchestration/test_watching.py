"""A run links to the pages of its engine, and its log tells of long queries. No engine needed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Any

import pytest
from dagster import DagsterInstance
from pyspark.sql.connect.shell.progress import StageInfo

from lakehouse.build.result import BuildResult
from lakehouse.contracts import Table
from lakehouse.orchestration import assets, resources
from lakehouse.read.lake import Lake
from lakehouse.runs.executing import create_run, execute
from lakehouse.spark import progress
from lakehouse.spark.progress import QUERIES
from lakehouse_tests.orchestration.running import GOOD, TABLE, Foretold, result

DAY = date(2026, 3, 1)
PAGES = "http://127.0.0.1:4040"


@pytest.mark.parametrize("pages", [PAGES, ""])
def test_a_run_that_uses_the_engine_links_to_its_pages_once(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, pages: str
) -> None:
    """Without it, nobody would find the pages from a run, or each table of it would add an event."""
    monkeypatch.setattr(resources, "start", lambda _: "an engine")
    monkeypatch.setattr(resources, "pages", lambda: pages)

    def on_an_engine(lake: Lake, table: Table, days: Iterable[date], **_: Any) -> BuildResult:
        assert lake.spark == "an engine"
        return result(table, dict.fromkeys(days, GOOD))

    monkeypatch.setattr(assets, "build", on_an_engine)
    run = create_run(instance, [TABLE, "bronze.online_retail"], DAY, DAY)
    for _ in execute(instance, run):
        pass
    told = [entry.dagster_event for entry in instance.all_logs(run.run_id) if entry.dagster_event]
    links = [each.engine_event_data.metadata for each in told if each.event_type_value == "ENGINE_EVENT"]
    assert [each["spark_ui"].value for each in links if "spark_ui" in each] == [pages] * bool(pages)


def test_a_runs_log_tells_of_a_long_query(runs: Foretold, instance: DagsterInstance, monkeypatch: Any) -> None:
    """Without it, a run that takes minutes would look as if it hung."""
    monkeypatch.setattr(progress, "LONG", 0.0)

    def building(table: Table, days: list[date], **_: Any) -> BuildResult:
        QUERIES.handle([StageInfo(3, 8, 2, 0, False)], 2, "a query", False)
        QUERIES.handle(None, 0, "a query", True)
        return result(table, dict.fromkeys(days, GOOD))

    run = runs.run_with(building, [DAY])
    QUERIES.handle([StageInfo(3, 8, 3, 0, False)], 2, "of nobody", False)
    told = [entry.user_message for entry in instance.all_logs(run.run_id) if "query" in entry.user_message]
    assert told == ["A query has run for 0 s: stage 1 of 1, 2 of 8 tasks."]
