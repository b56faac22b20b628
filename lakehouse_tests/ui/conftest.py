"""One server, one browser and one page for the tests of the web interface."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Generator, Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse.sample.events import land_events
from lakehouse.sample.retail import land_sample_online_retail
from lakehouse_tests.ui.server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Page

FIRST_DAY = date(2011, 1, 3)
DAYS = 10
PATIENCE = 90_000
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC_APPS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
QUIET = (
    "--headless",
    "--no-sandbox",  # refused to root, who runs tests in containers; the pages are our own
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium or Chrome; without one the tests are skipped, and fail in CI."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    found = found or next((path for path in MAC_APPS if Path(path).exists()), None)
    if found is None:
        reason = f"none of {', '.join(NAMES)} is on PATH; install Chromium: make browser"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="module")
def server(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`lakehouse dev` on a root where ten small days of both sources have landed."""
    root = tmp_path_factory.mktemp("ui")
    land(root)
    with Server(root, FIRST_DAY.isoformat()) as running:
        yield running


def land(root: Path) -> None:
    """Land the days, or land again those whose files are not as they were."""
    land_sample_online_retail(root, FIRST_DAY, DAYS, rows=120, seed=7)
    land_events(root, FIRST_DAY, DAYS, rows=80, seed=7)


@pytest.fixture(scope="module")
def page(chromium: str, server: Server) -> Iterator[Page]:
    """The one page that all tests look at; each of them goes where it needs to."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(QUIET))
        opened = browser.new_page(
            base_url=server.url,
            viewport={"width": 1600, "height": 1200},
            timezone_id="UTC",
            locale="en-GB",
            reduced_motion="reduce",  # spinners are drawn by the processor here
        )
        opened.set_default_timeout(PATIENCE)
        # The first visitor of an instance is invited to a newsletter, in front of everything else.
        invitation = opened.get_by_role("dialog").filter(has_text="Join the Dagster community")
        opened.add_locator_handler(invitation, lambda shown: shown.get_by_role("button", name="Skip").click())
        yield opened
        browser.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Keep the picture of the page, and the server's log, where a test failed."""
    report = yield
    values: dict[str, Any] = getattr(item, "funcargs", {})
    if report.failed and "page" in values and "server" in values:
        folder = item.config.rootpath / "artifacts" / "ui"
        folder.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"[^\w.-]", "_", item.name)
        values["page"].screenshot(path=folder / f"{name}.png")
        (folder / f"{name}.log").write_text(values["server"].log_tail(2000))
        report.sections.append(("page and server", f"at {values['page'].url}; see artifacts/ui/{name}.png and .log"))
    return report
