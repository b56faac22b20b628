"""What a person sees and does in the web interface, from the first look to fixing a broken day.

The tests share one server and tell one story in the order of the file. What later ones build on is a fixture, so each
can also be run alone.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from lakehouse.catalog import tables
from lakehouse.checks.audit import check_names
from lakehouse.contracts import Table
from lakehouse.contracts.lineage import sources
from lakehouse.orchestration.declared import MOST_ORIGINS
from lakehouse.read.lake import table_path
from lakehouse.settings import LAYERS
from lakehouse_tests.ui.conftest import BAD, DAY, FIRST_DAY, GOOD, OTHERS, SPAN, Backfill
from lakehouse_tests.ui.pages import (
    asset_page,
    backfilled,
    drawn_graph,
    ink_of,
    launch,
    listed_check,
    metadata_of,
    open_lineage,
    picture,
)
from lakehouse_tests.ui.server import Server, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
from playwright.sync_api import expect

pytestmark = [pytest.mark.ui, pytest.mark.spark, pytest.mark.slow]

REVENUE_AND_ITS_INPUTS = ["bronze.events", "bronze.online_retail", "silver.transactions", "gold.daily_revenue"]


def test_the_lineage_shows_every_table_in_its_layer(page: Page, server: Server) -> None:
    """Six tables, each in the box of its layer, an arrow for every input, and one to each table's quarantine."""
    open_lineage(page, unfolded=[*LAYERS, "quarantine"])
    drawn = drawn_graph(page, [table.name for table in tables().values()])
    layers = {table.name: table.layer for table in tables().values()}
    assert layers.items() <= drawn.groups.items()
    aside = drawn.groups.keys() - layers.keys()  # long names are cut in the middle
    assert len(aside) == sum(1 for table in tables().values() if table.rules)
    assert {drawn.groups[name] for name in aside} == {"quarantine"}
    inputs = {(each.table, table.id) for table in tables().values() for each in table.upstream.values()}
    between = {(source, table) for source, table in drawn.arrows if table not in aside}
    assert between == {(source.split(".")[1], table.split(".")[1]) for source, table in inputs}
    assert len(drawn.arrows - between) == len(aside)


def test_the_catalog_lists_every_table(page: Page, server: Server) -> None:
    """By key, with its group and the first words of its description."""
    page.goto("/assets")
    for table in tables().values():
        expect(page.get_by_role("link", name=f"{table.layer} / {table.name}").first).to_be_visible()
        expect(page.get_by_role("link", name=f"asset_group {table.layer}")).not_to_have_count(0)
        expect(page.get_by_text(table.description.split(".")[0]).first).to_be_visible()


def test_the_schedule_is_there_and_switched_off(page: Page, server: Server) -> None:
    """With LAKEHOUSE_AUTO_DAYS=0 a lakehouse runs nothing by itself; that something fails is told all the same."""
    page.goto("/automation")
    expect(page.get_by_role("link", name="daily")).to_contain_text("Scheduled At 01:15 UTC")
    query = """{repositoriesOrError {... on RepositoryConnection {nodes {
        schedules {name scheduleState {status}} sensors {name sensorState {status}}}}}}"""
    (found,) = server.ask(query)["repositoriesOrError"]["nodes"]
    assert {"name": "daily", "scheduleState": {"status": "STOPPED"}} in found["schedules"]
    assert {"name": "landed", "sensorState": {"status": "STOPPED"}} in found["sensors"]
    assert {"name": "alerts", "sensorState": {"status": "RUNNING"}} in found["sensors"]


def test_one_day_of_one_table_is_materialized_from_its_page(page: Page, server: Server, table_run: str) -> None:
    """The launch dialog, then the run's page and the partition bar."""
    page.goto(f"/runs/{table_run}")
    expect(page.get_by_text("Success", exact=True).first).to_be_visible()
    expect(page.get_by_text(f"partition: {DAY}")).to_be_visible()
    page.goto(asset_page("bronze.events", "partitions"))
    expect(page.get_by_text("Materialized (1)")).to_be_visible()
    assert server.days_by_state("bronze.events") == {"MATERIALIZED": [DAY]}


def test_the_job_builds_one_day_of_every_table(page: Page, server: Server, job_run: str) -> None:
    """One run, six steps, all of them green."""
    page.goto(f"/runs/{job_run}")
    expect(page.get_by_text("Success", exact=True).first).to_be_visible()
    expect(page.get_by_text(f"Succeeded ({len(tables())})")).to_be_visible()
    for table in tables():
        assert server.days_by_state(table) == {"MATERIALIZED": [DAY]}, table


def test_a_materialization_shows_what_was_published(page: Page, server: Server, job_run: str) -> None:
    """The figures are those of the Delta table; the preview has rows, but nothing of a person."""
    name = "silver.transactions"
    lake = DeltaTable(str(table_path(server.root, name)))
    rows = lake.to_pyarrow_table(filters=[("event_date", "=", FIRST_DAY)]).to_pylist()
    aside = DeltaTable(str(table_path(server.root, tables()[name].quarantine_id)))
    tokens = {row["email_token"] for row in rows} - {None}
    assert tokens

    page.goto(asset_page(name, "events"))
    shown = metadata_of(page)
    quarantined = aside.to_pyarrow_table(filters=[("event_date", "=", FIRST_DAY)]).num_rows
    expect(shown["dagster/partition_row_count"]).to_have_text(str(len(rows)))
    expect(shown["quarantined"]).to_have_text(str(quarantined))
    expect(shown["commit_version"]).to_have_text(str(lake.version()))
    expect(shown["checks"]).to_have_text(re.compile(r"^(\d+) of \1 passed$"))
    expect(shown["reads/bronze.events"]).to_have_text("bronze / events")

    link = shown["preview"].get_by_text("Show Markdown")
    if link.count():  # longer ones open in a dialog
        link.click()
    preview = page.get_by_role("dialog").or_(shown["preview"]).last
    expect(preview.get_by_text(rows[0]["source"]).first).to_be_visible()
    assert "order_id" in preview.inner_text()
    assert "email" not in preview.inner_text()
    assert not any(token in page.content() for token in tokens)


def test_checks_are_shown_with_what_they_found(page: Page, server: Server, job_run: str) -> None:
    """Each by name, passed, with figures in words."""
    table = tables()["silver.transactions"]
    page.goto(asset_page(table.id, "checks"))
    for check in check_names(table):
        expect(listed_check(page, check, "Succeeded")).to_be_visible()
    listed_check(page, "row_conservation", "Succeeded").click()
    expect(page.get_by_text(re.compile(r"\d+ in = \d+ published \+ \d+ quarantined \+ \d+ duplicates"))).to_be_visible()


def test_numbers_are_plotted(page: Page, server: Server, job_run: str) -> None:
    """A table that was materialized twice has curves of its rows."""
    page.goto(asset_page("bronze.events"))
    page.get_by_role("button", name="Plots").click()
    page.get_by_role("button", name="Events").click()
    expect(page.get_by_text("dagster/partition_row_count")).to_be_visible()
    plot = page.locator("canvas").first
    plot.scroll_into_view_if_needed()
    wait_for(lambda: ink_of(plot) > 1, "the plot is drawn", 30)


@pytest.mark.parametrize("table", tables().values(), ids=lambda table: table.id)
def test_columns_are_described(page: Page, server: Server, table: Table) -> None:
    """Each column with its type, description and sources, and personal data marked as such; and links that lead on."""
    page.goto(asset_page(table.id))
    columns = page.locator("table").filter(has_text="Column name")
    read = sources(table, {each.table: tables()[each.table] for each in table.upstream.values()})
    for field in table.schema.fields:
        name = re.compile(f"^{field.name}$", re.IGNORECASE)  # the page shows names in small letters
        row = columns.locator("tr").filter(has=page.locator("td:first-child").get_by_text(name))
        expect(row).to_contain_text(field.dataType.simpleString())
        expect(row).to_contain_text(field.metadata["comment"].replace("`", ""))
        for source, column in read[field.name][:MOST_ORIGINS]:
            expect(row).to_contain_text(f"{source}.{column}")
        if field.name in table.pii:
            expect(row).to_contain_text("personal data")
    for each in table.upstream.values():
        expect(page.get_by_role("link", name=each.table.replace(".", " / ")).first).to_be_visible()
    expect(page.get_by_text("Fails if more than 36 hours since last materialization")).to_be_visible()
    code = page.get_by_role("link", name=f"{table.layer}/{table.name}.py").first.get_attribute("href")
    assert code is not None
    file, line = re.findall(r"^vscode://file/(.+):(\d+)$", code)[0]
    assert Path(file).parts[-2:] == (table.layer, f"{table.name}.py")
    assert Path(file).read_text().splitlines()[int(line) - 1] == "@table("


def test_a_broken_day_fails_alone(page: Page, server: Server, broken: Backfill) -> None:
    """The backfill ends, its other days are materialized, and the broken one is failed in every table that needs it."""
    assert broken.status == "COMPLETED_FAILED"
    assert broken.counts == dict.fromkeys(REVENUE_AND_ITS_INPUTS, (3, 2, 1)) | {"bronze.online_retail": (3, 3, 0)}
    page.goto(f"/runs/b/{broken.id}")
    expect(backfilled(page, "bronze / online_retail")).to_have_text(["3", "0", "3", "0"])
    picture(page, "backfill", height=540)
    for table in ("bronze.events", "silver.transactions", "gold.daily_revenue"):
        expect(backfilled(page, table.replace(".", " / "))).to_have_text(["3", "0", "2", "1"])
        states = server.days_by_state(table)
        assert states == {"MATERIALIZED": [DAY, *OTHERS], "FAILED": [BAD]}, table
    page.goto(f"{asset_page('bronze.events', 'partitions')}&default_range=[{SPAN[0]}...{SPAN[-1]}]&partition={BAD}")
    expect(page.get_by_text("Failed (1)")).to_be_visible()
    expect(page.get_by_text("Materialized (2)")).to_be_visible()
    expect(page.get_by_text("failed, and did not materialize this asset")).to_be_visible()


def test_the_check_that_failed_names_the_day_and_the_file(page: Page, server: Server, broken: Backfill) -> None:
    """So does the run; and the tables whose good days were published have their checks too."""
    page.goto(asset_page("bronze.events", "checks"))
    listed_check(page, "source_readable", "Failed").click()
    found = re.compile(rf"^fails on {BAD}: part-0000\.jsonl\.gz .*land the file again")
    expect(page.get_by_text(found).first).to_be_visible()
    page.goto(asset_page("gold.daily_revenue", "checks"))
    for name in check_names(tables()["gold.daily_revenue"]):
        expect(listed_check(page, name, "Succeeded")).to_be_visible()
    page.goto(f"/runs/{broken.runs[0]['runId']}?logs=source_readable")
    for told in (
        f"bronze.events {BAD} was not published: source_readable",
        f"gold.daily_revenue {BAD} was not published: waits for bronze.events: source_readable",
    ):
        expect(page.get_by_text(told).first).to_be_visible()


def test_it_stays_red_when_another_day_runs(page: Page, server: Server, broken: Backfill) -> None:
    """In the pages, in the terminal and in alerts: a check passes only if no day fails it."""
    page.goto(asset_page("bronze.events"))
    assert server.finished_run(launch(page, DAY)) == "SUCCESS"
    page.goto(asset_page("bronze.events", "checks"))
    listed_check(page, "source_readable", "Failed").click()
    expect(page.get_by_text(re.compile(f"^fails on {BAD}: ")).first).to_be_visible()
    (told,) = server.look("status", "--select", "bronze.events")
    assert f"fails on {BAD}" in told["failing_checks"]["source_readable"]
    assert told["failed_days"] == [BAD]
    failing = [(each["table"], each["check"], each["day"]) for each in server.look("alerts", "list", "--failing")]
    assert ("bronze.events", "source_readable", BAD) in failing


def test_only_the_fixed_day_runs_again_while_a_range_is_built(
    page: Page, server: Server, fixed: tuple[Backfill, Backfill]
) -> None:
    """The file has landed again; "Re-execute from failure" is of one day, and does not wait for other backfills."""
    again, others = fixed
    assert again.status == "COMPLETED_SUCCESS"
    assert again.counts == {n: (1, 1, 0) for n in REVENUE_AND_ITS_INPUTS if n != "bronze.online_retail"}
    assert others.status == "COMPLETED_SUCCESS"
    for table in ("bronze.events", "silver.transactions", "gold.daily_revenue"):
        assert server.days_by_state(table) == {"MATERIALIZED": [DAY, *GOOD, *SPAN]}, table
    page.goto(f"/runs/b/{others.id}")
    expect(backfilled(page, "lakehouse_partition_set")).to_have_text(["3", "0", "3", "0"])
    page.goto(f"{asset_page('gold.daily_revenue', 'partitions')}&default_range=[{DAY}...{SPAN[-1]}]")
    expect(page.get_by_text("Materialized (7)")).to_be_visible()
    expect(page.get_by_text("Missing (0)")).to_be_visible()


def test_freshness_is_evaluated(page: Page, server: Server, job_run: str) -> None:
    """The daemon has judged the policy of a table that was just built."""
    page.goto(asset_page("gold.daily_revenue"))
    expect(page.get_by_text("Passing").first).to_be_visible(timeout=120_000)  # evaluated every 30 s


def test_the_daemon_and_the_pages_complained_of_nothing(server: Server, job_run: str) -> None:
    """Pools, limits and monitoring of dagster.yaml suit this instance; failed days are no errors of the daemon's."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", server.log.read_text(errors="replace"))
    said = [line for line in plain.splitlines() if re.search(r" - (WARNING|ERROR) - ", line)]
    first_start = "No cursor for event type"
    # The page of a table also runs its freshness check, which waits for the table.
    runs = re.compile(r"STEP_FAILURE|RUN_FAILURE|was not published|Dependencies for step data_fresh failed")
    assert [line for line in said if first_start not in line and not runs.search(line)] == []
