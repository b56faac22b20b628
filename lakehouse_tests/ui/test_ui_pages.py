"""What the pages say of runs, days and rows, on the lake that the story in `test_ui.py` leaves behind.

Each test can also be run alone; then it waits for the runs that it looks at.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from lakehouse.catalog import tables
from lakehouse.read.lake import table_path
from lakehouse_tests.ui.conftest import BAD, DAY, SPAN, Backfill
from lakehouse_tests.ui.pages import (
    asset_page,
    launch_configured,
    open_plots,
    picture,
    plotted,
    shown_metadata,
)
from lakehouse_tests.ui.server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
from playwright.sync_api import expect

pytestmark = [pytest.mark.ui, pytest.mark.spark, pytest.mark.slow]

QUARANTINE = "silver.transactions_quarantine"
FAILED_RUN = """query($id: ID!) {runOrError(runId: $id) {... on Run {
    tags {key value} stepStats {stepKey status}}}}"""


def test_the_table_at_fault_is_red(page: Page, server: Server, broken: Backfill) -> None:
    """Not the tables that read it, which say that they wait for it."""
    run = broken.runs[0]["runId"]
    told = server.ask(FAILED_RUN, {"id": run})["runOrError"]
    steps = {each["stepKey"]: each["status"] for each in told["stepStats"]}
    assert [name for name, status in steps.items() if status == "FAILURE"] == ["bronze__events"]
    assert {steps[name] for name in ("bronze__online_retail", "silver__transactions", "gold__daily_revenue")} == {
        "SUCCESS"
    }
    page.goto(f"/runs/{run}?logs=source_readable")
    expect(page.get_by_text("Errored (1)")).to_be_visible()
    expect(page.get_by_text("was not published: waits for bronze.events").first).to_be_visible()
    picture(page, "failed-run")


def test_a_run_says_over_which_days_it_is_and_why(page: Page, server: Server, broken: Backfill) -> None:
    """In its tags, which the list of runs shows."""
    told = server.ask(FAILED_RUN, {"id": broken.runs[0]["runId"]})["runOrError"]
    tags = {each["key"]: each["value"] for each in told["tags"]}
    assert tags["days"] == f"{SPAN[0]}…{SPAN[-1][5:]}"
    assert broken.id in tags["why"]
    page.goto("/runs")
    expect(page.get_by_text(f"days: {DAY}").first).to_be_visible()  # a backfill hides its runs


def test_each_day_of_a_range_is_among_the_events(page: Page, broken: Backfill) -> None:
    """Though many are recorded within a millisecond, of which the page would show the last one alone."""
    page.goto(asset_page("bronze.online_retail", "events"))
    for day in (DAY, *SPAN):
        expect(page.get_by_text(day, exact=True).first).to_be_visible()


def test_single_days_and_ranges_are_points_of_the_same_curves(page: Page, server: Server, broken: Backfill) -> None:
    """Under the same keys, and where the tables have as many rows."""
    table = tables()["bronze.online_retail"]
    lake = DeltaTable(str(table_path(server.root, table.id)))
    rows = Counter(map(str, lake.to_pyarrow_table(columns=[table.day_column])[table.day_column].to_pylist()))
    open_plots(page, table.id)
    curves = plotted(page)
    seen = curves["dagster/partition_row_count"]
    assert {day: seen[day] for day in (DAY, *SPAN)} == {day: rows[day] for day in (DAY, *SPAN)}
    for key in ("rows_in", "quarantined", "duplicates", "commit_version", "duration_seconds"):
        assert None not in {curves[key].get(day) for day in (DAY, *SPAN)}, key


def test_a_table_leads_to_its_part_of_the_report(page: Page, server: Server, broken: Backfill) -> None:
    """By the link in the metadata of its page."""
    page.goto(asset_page("gold.daily_revenue"))
    address = shown_metadata(page, "report").get_by_role("link").first.get_attribute("href")
    assert address is not None
    page.goto(address)
    expect(page.get_by_role("heading", name="gold.daily_revenue")).to_be_in_viewport()
    expect(page.get_by_text(re.compile(f"{BAD}.*source_readable")).first).to_be_attached()


def test_rows_in_quarantine_are_replayed_by_a_form(page: Page, server: Server, broken: Backfill) -> None:
    """What has become of them is on the quarantine's asset, with the runs that built their day again."""
    aside = DeltaTable(str(table_path(server.root, QUARANTINE))).to_pyarrow_table(columns=["event_date"])
    day, number = Counter(map(str, aside["event_date"].to_pylist())).most_common(1)[0]
    form = {"table": "silver.transactions", "who": "ana", "days": [day], "force": True}
    run = launch_configured(page, "quarantine_replay", json.dumps({"ops": {"replay_rows": {"config": form}}}))
    assert server.finished_run(run) == "SUCCESS"
    page.goto(asset_page(QUARANTINE))
    expect(shown_metadata(page, "replayed/quarantined")).to_have_text(str(number))
    expect(shown_metadata(page, "who")).to_have_text("ana")
    builds = shown_metadata(page, "runs").inner_text().split(", ")
    assert {server.run_status(each) for each in builds} == {"SUCCESS"}


def test_rows_in_quarantine_are_discarded_by_a_form(page: Page, server: Server, broken: Backfill) -> None:
    """With who and why; the outcome is on the quarantine's asset, beside its rows by rule."""
    page.goto(asset_page(QUARANTINE))
    expect(shown_metadata(page, "rows/currency_known")).to_be_visible()
    before = int(shown_metadata(page, "rows").inner_text())
    assert before > 0
    picture(page, "quarantine")
    form = {"table": "silver.transactions", "who": "ana", "reason": "rows of a test shop"}
    config = json.dumps({"ops": {"discard_rows": {"config": form}}})
    run = launch_configured(page, "quarantine_discard", config)
    assert server.finished_run(run) == "SUCCESS"
    page.goto(asset_page(QUARANTINE))
    expect(shown_metadata(page, "discarded_now")).to_have_text(str(before))
    expect(shown_metadata(page, "rows")).to_have_text("0")
    expect(shown_metadata(page, "reason")).to_have_text("rows of a test shop")
    undo = json.dumps({"ops": {"discard_rows": {"config": form | {"undo": True}}}})
    assert server.finished_run(launch_configured(page, "quarantine_discard", undo)) == "SUCCESS"
