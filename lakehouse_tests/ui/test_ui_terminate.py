"""A person's *Terminate*: it holds, everybody can see it, and it ends with a new file or a launch."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse.catalog import tables
from lakehouse.orchestration.instance import days_of_run
from lakehouse.orchestration.run_tags import AUTOMATIC
from lakehouse.sample.events import land_events
from lakehouse.sample.retail import land_sample_online_retail
from lakehouse.settings import LAYERS
from lakehouse_tests.ui.conftest import DAY, DAYS, LAST, SPAN, Backfill
from lakehouse_tests.ui.pages import SIZE, open_lineage, open_plots, picture, plotted, switch, terminate
from lakehouse_tests.ui.server import Server, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
from playwright.sync_api import expect

pytestmark = [pytest.mark.ui, pytest.mark.spark, pytest.mark.slow]

SOON = 300  # seconds; a sensor looks every 20 s, a run starts in 10 s on an idle laptop
POOL = 'mutation($limit: Int!) {setConcurrencyLimit(concurrencyKey: "silver_orders", limit: $limit)}'
RUNS = """query($tag: String!) {runsOrError(filter: {tags: [{key: $tag, value: "true"}]}, limit: 20) {... on Runs {
    results {runId status assetSelection {path} tags {key value}}}}}"""
ORDERS, EVENTS = "silver.orders", "bronze.events"


@contextmanager
def closed_pool(server: Server) -> Iterator[None]:
    """No step of silver.orders begins meanwhile."""
    server.ask(POOL, {"limit": 0})
    try:
        yield
    finally:
        server.ask(POOL, {"limit": 1})


def runs_of_the_sensor(server: Server) -> list[dict[str, Any]]:
    """Those over the last days, which nobody has built; newest first."""
    found = server.ask(RUNS, {"tag": AUTOMATIC})["runsOrError"]["results"]
    for each in found:
        each["tables"] = {".".join(key["path"]) for key in each["assetSelection"] or ()}
        each["days"] = list(map(str, days_of_run({tag["key"]: tag["value"] for tag in each["tags"]})))
    return [each for each in found if set(each["days"]) & set(LAST)]


def begun(server: Server, number: int) -> dict[str, Any]:
    """The run with which the sensor has started so many, once it is on."""

    def on() -> dict[str, Any] | None:
        runs = runs_of_the_sensor(server)
        return runs[0] if len(runs) == number and runs[0]["status"] == "STARTED" else None

    return wait_for(on, f"the sensor has started run {number}", SOON)


def started_again(server: Server, known: set[str]) -> list[dict[str, Any]]:
    """Runs of the sensor over what was ended; a table further down whose input has changed meanwhile is due again."""
    others = [each for each in runs_of_the_sensor(server) if each["runId"] not in known]
    return [each for each in others if {EVENTS, ORDERS} & each["tables"]]


def ended_runs(server: Server) -> set[str]:
    """Of which runs alerts have told that somebody ended them."""
    file = server.root / "logs" / "alerts.jsonl"
    told = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return {each["run_id"] for each in told if each["check"] == "run" and "Somebody ended run" in each["text"]}


def test_what_somebody_ends_in_bronze_or_silver_is_not_started_again(
    page: Page, server: Server, fixed: tuple[Backfill, Backfill]
) -> None:
    """The sensor says for which days it waits, so do alerts and `lakehouse status`; a launch ends the waiting."""
    day = LAST[-1]
    # What the days before still need would be in the sensor's runs too, and hold the pool that is closed below.
    server.command("backfill", "--stale", "--from", DAY, "--to", SPAN[-1])
    switch(page, "landed")
    with server.engine_held():
        first = begun(server, 1)
        terminate(page, first["runId"])
        assert server.finished_run(first["runId"]) == "CANCELED"
    expect(page.get_by_text("Canceled", exact=True).first).to_be_visible()
    page.goto("about:blank")  # an open page of a run asks and draws without end, while all that follows takes minutes
    assert day not in server.days_by_state(EVENTS).get("MATERIALIZED", [])

    # One of the days gets new files: this one is due again, and only this one. Its run waits in silver for the pool.
    with closed_pool(server):
        land_sample_online_retail(server.root, date.fromisoformat(day), 1, rows=130, seed=8)
        land_events(server.root, date.fromisoformat(day), 1, rows=90, seed=8)
        second = begun(server, 2)
        assert second["days"] == [day]
        wait_for(
            lambda: day in server.days_by_state("silver.transactions").get("MATERIALIZED", []), "silver is built", SOON
        )
        terminate(page, second["runId"])
        assert server.finished_run(second["runId"]) == "CANCELED"
    page.goto("about:blank")

    def says() -> str:
        return str(server.ticks("landed")[0]["skipReason"] or "")

    waits = wait_for(lambda: says() if ORDERS in says() else None, "the sensor says what waits", SOON)
    assert re.search(rf"Somebody ended the run of .*{EVENTS} {LAST[0]} … {LAST[1]}.*{ORDERS} {day}", waits)
    both = {first["runId"], second["runId"]}
    assert not started_again(server, both)
    wait_for(lambda: ended_runs(server) >= both, "alerts tell of both", SOON)
    states = {each["table"]: each for each in server.look("status")}
    assert states[EVENTS]["ended_days"] == LAST[:2]
    assert day in states[ORDERS]["ended_days"]

    # As the alert says: who wants the days after all launches them, and nothing waits for a person any more.
    server.command("backfill", "--failed-only")
    for each in server.look("status"):
        assert (each["table"], each["ended_days"], each["failed_days"]) == (each["table"], [], [])
    wait_for(lambda: "Somebody ended" not in says(), "the sensor waits for nobody", SOON)


def test_pictures_of_what_is_built(page: Page, server: Server, fixed: tuple[Backfill, Backfill]) -> None:
    """The graph is green, and a table has its curves, once every day of every table is there."""
    missing = {table for table in tables() if len(server.days_by_state(table).get("MATERIALIZED", [])) < DAYS}
    if missing:  # this test is run alone
        server.command("backfill", "--stale")
    page.set_viewport_size({"width": SIZE[0], "height": SIZE[1]})
    open_lineage(page, unfolded=[*LAYERS, "quarantine"])
    expect(page.get_by_text("Loading…")).to_have_count(0)
    picture(page, "lineage")
    open_lineage(page, 'not group:"quarantine"', LAYERS)
    expect(page.locator("svg foreignObject.group")).to_have_count(len(LAYERS))
    expect(page.get_by_text("Loading…")).to_have_count(0)
    picture(page, "assets")
    open_plots(page, "silver.transactions")
    for part in ("Description", "Columns"):  # folded, so that the curves are on the first screen
        page.get_by_text(part, exact=True).first.click()
    points = plotted(page)["dagster/partition_row_count"]
    assert len([each for each in points.values() if each]) == DAYS
    picture(page, "table")
