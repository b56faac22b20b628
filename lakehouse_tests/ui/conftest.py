"""One server, one browser and one page for the tests of the web interface."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Generator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from lakehouse.sample.events import land_events
from lakehouse.sample.retail import land_sample_online_retail
from lakehouse_tests.ui.server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DAYS = 10  # that end yesterday: of days long past, all that is late would be red
FIRST_DAY = datetime.now(UTC).date() - timedelta(days=DAYS)
DAY, *_GOOD = [str(FIRST_DAY + timedelta(days=n)) for n in range(DAYS)]
GOOD, SPAN, LAST = _GOOD[:3], _GOOD[3:6], _GOOD[6:]
BAD, OTHERS = SPAN[1], [SPAN[0], SPAN[2]]
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


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    """The one browser: Playwright can be started once in a process."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=list(QUIET))
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def page(browser: Browser, server: Server) -> Page:
    """The one page that all tests look at; each of them goes where it needs to."""
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
    return opened


class Backfill(NamedTuple):
    """A backfill that is over: its id, status, runs, and by table (targeted, materialized, failed)."""

    id: str
    status: str
    runs: list[dict[str, str]]
    counts: dict[str, tuple[int, int, int]]


def finished(server: Server, backfill_id: str) -> Backfill:
    """The backfill once it is over."""
    found = server.finished_backfill(backfill_id)
    return Backfill(backfill_id, found["status"], found["runs"], found["counts"])


@pytest.fixture(scope="session")
def table_run(page: Page, server: Server) -> str:
    """The run of one day of one table, launched from the table's page."""
    from lakehouse_tests.ui.pages import asset_page, launch

    page.goto(asset_page("bronze.events"))
    run = launch(page, DAY)
    server.finished_run(run)
    return run


@pytest.fixture(scope="session")
def job_run(page: Page, server: Server, table_run: str) -> str:
    """The run of the same day of every table, launched from the job's page."""
    from lakehouse_tests.ui.pages import JOB_PAGE, launch

    page.goto(JOB_PAGE)
    run = launch(page, DAY)
    server.finished_run(run)
    return run


@pytest.fixture(scope="session")
def broken(page: Page, server: Server, job_run: str) -> Backfill:
    """A backfill of a few days, of which one arrived cut short, of the tables that revenue is made of."""
    from lakehouse_tests.ui.pages import launch, open_lineage

    (landed,) = (server.root / "landing/events" / BAD).iterdir()
    landed.write_bytes(landed.read_bytes()[: landed.stat().st_size // 2])
    open_lineage(page, '+key:"gold/daily_revenue"')
    return finished(server, launch(page, f"[{SPAN[0]}...{SPAN[-1]}]"))


@pytest.fixture(scope="session")
def fixed(page: Page, server: Server, broken: Backfill) -> tuple[Backfill, Backfill]:
    """Land the file again, "Re-execute from failure", and meanwhile a backfill of other days of every table: both."""
    from lakehouse_tests.ui.pages import JOB_PAGE, launch, toasted_id

    land(server.root)
    page.goto(f"/runs/b/{broken.id}")
    page.locator("[aria-label=expand_more]").last.click()
    page.get_by_role("menuitem", name="Re-execute from failure").click()
    again = toasted_id(page)
    page.goto(JOB_PAGE)
    others = launch(page, f"[{GOOD[0]}...{GOOD[-1]}]")
    return finished(server, again), finished(server, others)


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
