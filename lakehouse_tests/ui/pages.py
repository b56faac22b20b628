"""Dagster's pages as people use them: what to click, and what is to be read where."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

JOB_PAGE = "/locations/lakehouse.definitions/jobs/lakehouse"
PICTURES = Path(os.environ.get("LAKEHOUSE_PICTURES") or Path(__file__).parents[2] / "artifacts" / "ui")
"""Where the pictures of the documentation go: `make screenshots` says docs/images."""

# Of a long message in a run's log Dagster shows the first lines, and lays a button over them.
_UNCOVER = """
() => [...document.querySelectorAll('button')].filter(button => button.innerText.includes('View full message'))
    .forEach(button => { button.style.visibility = 'hidden'; })
"""
_GRAPH = """
() => ({
    boxes: [...document.querySelectorAll('svg foreignObject')].map(box => ({
        x: +box.getAttribute('x'), y: +box.getAttribute('y'),
        width: +box.getAttribute('width'), height: +box.getAttribute('height'),
        group: box.classList.contains('group'), text: [...box.children].map(child => child.innerText).join(' ').trim(),
    })),
    edges: [...document.querySelectorAll('svg path[marker-end]')].map(path => path.getAttribute('d')),
})
"""


class Graph(NamedTuple):
    """What the lineage page draws: table → the group whose box it is in, and arrows from table to table."""

    groups: dict[str, str]
    arrows: set[tuple[str, str]]


def asset_page(table: str, view: str = "") -> str:
    """Address of a table's page, on one of its tabs."""
    return f"/assets/{table.replace('.', '/')}" + (f"?view={view}" if view else "")


SIZE = (1440, 1100)
"""Width and height of a picture; a graph is laid out for the size that it is opened in."""


def picture(page: Page, name: str, width: int = SIZE[0], height: int = SIZE[1]) -> Path:
    """Keep the page as it looks now, for the documentation, which shows it under this name; the file."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    before = page.viewport_size
    page.set_viewport_size({"width": width, "height": height})
    page.mouse.move(0, 0)  # no button looks pressed
    expect(page.get_by_text("Loading")).to_have_count(0)  # a busy machine shows boxes before what is in them
    page.wait_for_timeout(1000)  # what moves has come to rest
    page.evaluate(_UNCOVER)
    page.screenshot(path=PICTURES / f"{name}.png")
    if before:
        page.set_viewport_size(before)
    return PICTURES / f"{name}.png"


def launch_configured(page: Page, job: str, config: str) -> str:
    """Launch a job with a run configuration, typed into its form; the id of the run."""
    page.goto(f"/locations/lakehouse.definitions/jobs/{job}/playground")
    page.locator(".CodeMirror").first.click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(config)
    page.get_by_role("button", name="Launch Run").click()
    page.wait_for_url(re.compile("/runs/[0-9a-f-]{36}"))
    (run,) = re.findall("/runs/([0-9a-f-]{36})", page.url)
    leave(page)
    return str(run)


def open_lineage(page: Page, selection: str = "", unfolded: Sequence[str] = ()) -> None:
    """Open the lineage of all tables, or of those that a selection names, with these groups unfolded."""
    groups = ",".join(f"global@global:{each}" for each in unfolded)
    address = "/asset-groups" + (f"~{quote(selection, safe='')}" if selection else "")
    page.goto(address + (f"?expanded={quote(groups, safe='')}" if groups else ""))
    expect(page.locator("svg foreignObject.group").first).to_be_visible()


def drawn_graph(page: Page, names: list[str]) -> Graph:
    """The graph on the open lineage page, whose groups are unfolded; a table is recognised by its box's first line."""
    for name in names:
        expect(
            page.locator("svg foreignObject:not(.group)").filter(has_text=re.compile(rf"^\s*{name}\b"))
        ).to_be_visible()
    drawn = page.evaluate(_GRAPH)
    groups = [box for box in drawn["boxes"] if box["group"]]
    tables = {box["text"].split()[0]: box for box in drawn["boxes"] if not box["group"] and box["text"]}
    arrows: set[tuple[str, str]] = set()
    for path in drawn["edges"]:
        numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", path)]
        arrows.add((_nearest(tables, *numbers[:2]), _nearest(tables, *numbers[-2:])))
    inside = {
        name: next(
            group["text"].split()[0]
            for group in groups
            if group["x"] <= box["x"] <= group["x"] + group["width"]
            and group["y"] <= box["y"] <= group["y"] + group["height"]
        )
        for name, box in tables.items()
    }
    return Graph(inside, arrows)


def _nearest(boxes: dict[str, dict[str, float]], x: float, y: float) -> str:
    def gap(name: str) -> float:
        box = boxes[name]
        aside = max(box["x"] - x, x - box["x"] - box["width"], 0)
        above = max(box["y"] - y, y - box["y"] - box["height"], 0)
        return aside + above

    return min(boxes, key=gap)


def launch(page: Page, days: str) -> str:
    """Materialize what the open page shows, for a day or for `[first...last]`; the id of the run or backfill."""
    page.get_by_role("button", name=re.compile("Materialize( all)?…")).first.click()
    dialog = page.get_by_role("dialog").filter(has_text="Partition selection")
    chosen = dialog.get_by_role("textbox").first
    chosen.fill(days)
    chosen.press("Enter")
    one = re.fullmatch(r"[\d-]+", days)
    dialog.get_by_role("button", name="Launch 1 run" if one else "Launch backfill").click()
    return toasted_id(page)


def leave(page: Page) -> None:
    """Look at nothing while runs are on: a page that is open asks the server all the while, and draws what it says."""
    page.goto("about:blank")


def toasted_id(page: Page) -> str:
    """The id that the notice at the foot of the page links to."""
    address = page.get_by_role("link", name="View", exact=True).last.get_attribute("href")
    assert address is not None
    leave(page)
    return address.rstrip("/").rsplit("/", 1)[-1]


def metadata_of(page: Page) -> dict[str, Locator]:
    """By key, the value's cell in the metadata table of the open Events or Partitions tab."""
    rows = page.locator("tr").filter(has=page.locator("td"))
    expect(rows.filter(has_text="dagster/partition_row_count")).to_be_visible()
    return {row.locator("td").first.inner_text().strip(): row.locator("td").nth(1) for row in rows.all()}


def terminate(page: Page, run: str) -> None:
    """End a run as a person does: on its page."""
    page.goto(f"/runs/{run}")
    page.get_by_role("button", name="Terminate").click()
    page.get_by_role("dialog").get_by_role("button", name="Terminate 1 run").click()


def open_plots(page: Page, table: str) -> None:
    """Open the curves of a table's numbers."""
    page.goto(asset_page(table))
    page.get_by_role("button", name="Plots").click()


def switch(page: Page, sensor: str) -> None:
    """Switch a sensor on, or off."""
    page.goto(f"/locations/lakehouse.definitions/sensors/{sensor}")
    page.locator("label").filter(has=page.locator("input[type=checkbox]")).first.click()


def shown_metadata(page: Page, key: str) -> Locator:
    """The value of a key in the metadata of an open Overview tab, which lists key, time and value."""
    named = page.locator("td:first-child").get_by_text(key, exact=True)
    return page.locator("tr").filter(has=named).first.locator("td").last


def listed_check(page: Page, name: str, state: str) -> Locator:
    """A check in the list of the open Checks tab, in a state such as Succeeded."""
    # The name is there twice: as it is, and as it fits.
    return page.locator("div").filter(has_text=re.compile(rf"^({name}\s*)+{state}$")).first


def backfilled(page: Page, name: str) -> Locator:
    """On a backfill's page, the cells of a row: days targeted, in progress, succeeded, failed."""
    # The table of a job's backfill is made of rows and cells, that of an assets' backfill of plain boxes.
    return page.get_by_role("link", name=name).first.locator("xpath=ancestor::*[count(*)=5][1]/*[position()>1]")


_PLOTTED = """
() => [...document.querySelectorAll('canvas')].map(canvas => {
    let node = canvas[Object.keys(canvas).find(key => key.startsWith('__reactFiber'))];
    while (node && !node.memoizedProps?.data?.datasets) node = node.return;
    const {labels, datasets: [line]} = node.memoizedProps.data;
    return [line.label, Object.fromEntries(line.data.map(({x, y}) => [labels[x] ?? x, y]))];
})
"""


def plotted(page: Page) -> dict[str, dict[str, float | None]]:
    """By metadata key, the points of its curve on the open plots: by day, the number."""
    expect(page.locator("canvas").first).to_be_visible()
    return dict(page.evaluate(_PLOTTED))


def ink_of(canvas: Locator) -> int:
    """How many different colours a plot is drawn with; an empty one has a single colour."""
    colours: int = canvas.evaluate(
        """canvas => new Set(new Uint32Array(
            canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size"""
    )
    return colours
