"""What the pages say of runs, days and rows, on the lake that the story in `test_ui.py` leaves behind.

Each test can also be run alone; then it waits for the runs that it looks at.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lakehouse.catalog import tables
from lakehouse.contracts import Table
from lakehouse_tests.ui.conftest import BAD, DAY, DAYS, FIRST_DAY, SPAN, Backfill
from lakehouse_tests.ui.pages import (
    JOB_PAGE,
    asset_page,
    ink_of,
    launch,
    launch_configured,
    metadata_of,
    picture,
    shown_metadata,
)
from lakehouse_tests.ui.server import Server, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
from playwright.sync_api import expect

pytestmark = [pytest.mark.ui, pytest.mark.spark, pytest.mark.slow]

ENDED = str(FIRST_DAY + timedelta(days=DAYS - 1))
QUARANTINE = "silver.transactions_quarantine"
FAILED_RUN = """query($id: ID!) {runOrError(runId: $id) {... on Run {
    tags {key value} stepStats {stepKey status}}}}"""


def test_the_table_at_fault_is_red_and_its_day_says_why(page: Page, server: Server, broken: Backfill) -> None:
    """Not the tables that read it; the day that was refused has its file, the reason and the next step on its asset."""
    run = broken.runs[0]["runId"]
    told = server.ask(FAILED_RUN, {"id": run})["runOrError"]
    steps = {each["stepKey"]: each["status"] for each in told["stepStats"]}
    assert [name for name, status in steps.items() if status == "FAILURE"] == ["bronze__events"]
    assert {steps[name] for name in ("bronze__online_retail", "silver__transactions", "gold__daily_revenue")} == {
        "SUCCESS"
    }
    page.goto(f"/runs/{run}?logs=source_readable")
    expect(page.get_by_text("Errored (1)")).to_be_visible()
    expect(page.get_by_text("was not published: not refreshed, bronze.events").first).to_be_visible()
    picture(page, "failed-run")
    page.goto(f"{asset_page('bronze.events', 'partitions')}&partition={BAD}")
    page.get_by_role("button", name=re.compile("View all historical events")).click()
    expect(page.get_by_text("land the file again; the sensor then builds the day").first).to_be_visible()
    expect(page.get_by_text(f"landing/events/{BAD}/part-0000.jsonl.gz").first).to_be_visible()
    picture(page, "refused-day")


def test_a_run_says_over_which_days_it_is_and_why(page: Page, server: Server, broken: Backfill) -> None:
    """In its tags, which the list of runs shows."""
    told = server.ask(FAILED_RUN, {"id": broken.runs[0]["runId"]})["runOrError"]
    tags = {each["key"]: each["value"] for each in told["tags"]}
    assert tags["days"] == f"{SPAN[0]}…{SPAN[-1][5:]}"
    assert broken.id in tags["why"]
    page.goto("/runs")
    expect(page.get_by_text(f"days: {DAY}").first).to_be_visible()  # a backfill hides its runs
    picture(page, "runs")


def test_each_day_of_a_range_is_among_the_events(page: Page, broken: Backfill) -> None:
    """Though many are recorded within a millisecond, of which the page would show the last one alone."""
    page.goto(asset_page("bronze.online_retail", "events"))
    for day in (DAY, *SPAN):
        expect(page.get_by_text(day, exact=True).first).to_be_visible()
    picture(page, "events")


def test_the_report_is_served_and_linked_from_each_table(page: Page, broken: Backfill) -> None:
    """The page is that of this lake, made from the newest commits, and opens at the table."""
    page.goto(asset_page("bronze.events"))
    link = page.get_by_role("link", name=re.compile(r"http://127\.0\.0\.1:\d+/#bronze\.events")).first
    address = link.get_attribute("href")
    assert address is not None
    page.goto(address)
    expect(page.get_by_role("heading", name="bronze.events", exact=True)).to_be_in_viewport()
    for table in tables():
        expect(page.get_by_role("heading", name=table, exact=True)).to_have_count(1)
    expect(page.get_by_role("cell", name=re.compile(f"{SPAN[0]} published")).first).to_be_attached()
    page.evaluate("scrollTo(0, 0)")
    picture(page, "report-served")


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


def test_rows_in_quarantine_are_replayed_by_a_form(page: Page, server: Server, broken: Backfill) -> None:
    """Nothing has changed, so nothing is built, and the asset says so; a table without a quarantine is refused."""
    config = json.dumps({"ops": {"replay_rows": {"config": {"table": "silver.transactions", "who": "ana"}}}})
    assert server.finished_run(launch_configured(page, "quarantine_replay", config)) == "SUCCESS"
    page.goto(asset_page(QUARANTINE))
    expect(shown_metadata(page, "runs")).to_have_text("none: nothing has changed")


@pytest.mark.parametrize("table", [each for each in tables().values() if each.figures], ids=lambda table: table.id)
def test_figures_of_the_business_are_plotted(page: Page, table: Table, broken: Backfill) -> None:
    """Those that the contract names, by data day, beside rows and seconds."""
    page.goto(asset_page(table.id, "events"))
    shown = metadata_of(page)
    figures = [name for name in shown if name.split("/")[0] in table.figures]
    assert {name.split("/")[0] for name in figures} == set(table.figures)
    page.goto(asset_page(table.id))
    page.get_by_role("button", name="Plots").click()
    for name in figures:
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    plot = page.locator("canvas").first
    plot.scroll_into_view_if_needed()
    wait_for(lambda: ink_of(plot) > 1, "the plot is drawn", 30)
    picture(page, f"plots-{table.name}")


def test_columns_say_what_they_are_computed_from_and_the_file_opens(page: Page, broken: Backfill) -> None:
    """By the columns' descriptions, and a link to the table's file in an editor."""
    page.goto(asset_page("gold.daily_revenue"))
    row = page.locator("tr").filter(has=page.get_by_text("gross_revenue", exact=True))
    expect(row).to_contain_text("From silver.transactions.amount, silver.transactions.event_type")
    link = page.get_by_role("link", name="Open gold/daily_revenue.py in editor")
    assert re.search(r"/gold/daily_revenue\.py:\d+$", link.get_attribute("href") or "")
    picture(page, "asset")


def test_what_somebody_terminates_stays_ended(page: Page, server: Server, broken: Backfill) -> None:
    """The sensor would build the days beside it, and leaves this one to people."""
    assert any(_covers(tags, ENDED) for tags in server.would_run("landed")[0]), "it is due"
    page.goto(JOB_PAGE)
    run = launch(page, ENDED)
    page.goto(f"/runs/{run}")
    page.get_by_role("button", name="Terminate").click()
    page.get_by_role("dialog").get_by_role("button", name=re.compile("^Terminate")).click()
    assert server.finished_run(run) == "CANCELED"
    page.goto(f"/runs/{run}")
    expect(page.get_by_text("Canceled", exact=True).first).to_be_visible()
    asked, _ = server.would_run("landed")
    assert asked
    assert not any(_covers(tags, ENDED) for tags in asked)


def _covers(tags: dict[str, str], day: str) -> bool:
    first = tags.get("dagster/partition") or tags["dagster/asset_partition_range_start"]
    return first <= day <= (tags.get("dagster/partition") or tags["dagster/asset_partition_range_end"])
