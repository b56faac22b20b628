"""The first minutes with a lake that was just built: filled and green, nothing starts by itself, a missing file shows."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse.catalog import tables
from lakehouse.orchestration.run_tags import AUTOMATIC
from lakehouse.sample.events import land_events
from lakehouse.sample.retail import land_sample_online_retail
from lakehouse_tests.ui.pages import asset_page
from lakehouse_tests.ui.server import Server, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
from playwright.sync_api import expect

pytestmark = [pytest.mark.ui, pytest.mark.spark, pytest.mark.slow]

DAYS = 38  # so that the weekday of the day without a file has five before it
FIRST = datetime.now(UTC).date() - timedelta(days=DAYS)
MISSING, LAST = FIRST + timedelta(days=DAYS - 2), FIRST + timedelta(days=DAYS - 1)
RUNS = """query($tag: String!) {runsOrError(filter: {tags: [{key: $tag, value: "true"}]}) {... on Runs {results {runId}}}}"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Iterator[Server]:
    """A web interface with its switches as users have them, started on a lake that one backfill has built.

    The engine is that of the other web interface, which is on all the while.
    """
    root = tmp_path_factory.mktemp("first")
    land_sample_online_retail(root, FIRST, DAYS, rows=6, seed=7)
    land_events(root, FIRST, DAYS, rows=12, seed=7)
    (file,) = (root / "landing" / "events" / str(MISSING)).iterdir()
    file.unlink()
    made = Server(root, str(FIRST), auto_days="31", engine_dir=str(server.root / "engine"))
    made.command("backfill", "--from", str(FIRST), "--to", str(LAST))
    with made:
        yield made


def test_the_lake_is_filled_and_nothing_starts_by_itself(built: Server) -> None:
    """Without it, people would meet empty partitions, red tables, and runs for late rows that nobody asked for."""
    days = {str(FIRST + timedelta(days=n)) for n in range(DAYS)}
    for table in tables():
        assert {state: set(each) for state, each in built.days_by_state(table).items()} == {"MATERIALIZED": days}, table
    ticks = wait_for(lambda: [each for each in built.ticks("landed") if each["status"] != "STARTED"], "it looked", 90)
    assert [each["runIds"] for each in ticks] == [[]] * len(ticks)
    assert built.ask(RUNS, {"tag": AUTOMATIC})["runsOrError"]["results"] == []


def test_a_day_without_a_file_is_a_warning(browser: Browser, built: Server) -> None:
    """Where its weekday has rows; on the table's page it is not one of seven that passed."""
    page = browser.new_page(base_url=built.url, viewport={"width": 1600, "height": 1200}, reduced_motion="reduce")
    try:
        page.goto(asset_page("bronze.events", "checks") + "&checkDetail=volume")
        expect(page.get_by_text("no rows, but 5 of the last 5 same weekdays had some").first).to_be_visible()
        expect(page.get_by_text(str(MISSING)).first).to_be_visible()
    finally:
        page.close()
    (events,) = (each for each in built.look("status") if each["table"] == "bronze.events")
    assert set(events["failing_checks"]) == {"volume"}


def test_the_code_server_is_started_again(built: Server) -> None:
    """Without it, a laptop that is short of memory would have a web interface that looks well and starts nothing."""
    before = built.code_server()
    os.kill(before, signal.SIGKILL)
    killed = time.time()
    wait_for(lambda: built.code_server() not in (0, before), "another one is on", 120)
    wait_for(lambda: any(each["timestamp"] > killed for each in _looks(built)), "the sensor goes on", 120)
    assert "The code server has ended, and is started again: lakehouse.definitions" in built.log_tail(200)


def _looks(server: Server) -> list[dict[str, Any]]:
    """What the sensor has found, where the web interface can tell."""
    try:
        return [each for each in server.ticks("landed") if each["status"] == "SKIPPED"]
    except (AssertionError, KeyError, OSError, TypeError):
        return []
