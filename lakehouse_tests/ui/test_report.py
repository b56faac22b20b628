"""The report in a real browser: readable in light, dark and on paper, and alone."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse.report.render import render
from lakehouse_tests.report.made import shop
from lakehouse_tests.ui.pages import picture
from lakehouse_tests.ui.server import REPOSITORY

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.ui
ENOUGH = 4.5  # contrast that the accessibility guidelines (WCAG AA) ask of text
MOST_BYTES = 200_000  # of the picture in the README

# Of every text that is seen: its colour and the nearest background that is not transparent, as sRGB numbers.
COLOURS = """
() => {
    const numbers = text => (text.match(/[\\d.]+/g) || []).map(Number);
    const behind = element => {
        for (let each = element; each; each = each.parentElement) {
            const found = numbers(getComputedStyle(each).backgroundColor);
            if (found.length === 3 || found[3] > 0) return found.slice(0, 3);
        }
        return [255, 255, 255];
    };
    const seen = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const element = node.parentElement, style = getComputedStyle(element);
        if (!node.data.trim() || element.closest('script, style, .vh, .skip') || !element.getClientRects().length) continue;
        const drawn = element.namespaceURI.endsWith('svg');
        const box = drawn && element.closest('.drawing') ? numbers(getComputedStyle(element.closest('svg').querySelector('rect')).fill) : null;
        seen.push([node.data.trim(), numbers(drawn ? style.fill : style.color).slice(0, 3), box || behind(element)]);
    }
    return seen;
}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render(shop()), encoding="utf-8")
    return path


def opened(browser: Browser, file: Path, scheme: Any = "light") -> Page:
    page = browser.new_page(viewport={"width": 1360, "height": 900}, color_scheme=scheme)
    page.goto(file.as_uri())
    return page


def contrast(one: list[float], other: list[float]) -> float:
    """Ratio of the relative luminances of two colours (WCAG)."""

    def luminance(colour: list[float]) -> float:
        linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out(browser: Browser, file: Path, scheme: str) -> None:
    """By the colours that the browser computed, opened lists, plots and pictures included."""
    page = opened(browser, file, scheme)
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    texts = page.evaluate(COLOURS)
    assert {"F", "W", "L", "·", "0", "!"} <= {text for text, *_ in texts}
    faint = {(text, round(contrast(ink, paper), 2)) for text, ink, paper in texts if contrast(ink, paper) < ENOUGH}
    assert not faint
    page.close()


def test_it_asks_nothing_of_anybody_and_says_no_error(browser: Browser, file: Path) -> None:
    page = browser.new_page()
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(file.as_uri())
    page.get_by_role("button", name=re.compile("colours")).click()
    assert asked == [file.as_uri()]
    assert said == []
    page.close()


def test_the_reader_can_choose_dark_or_light(browser: Browser, file: Path) -> None:
    """Whatever the system says; and the choice is kept."""
    page = opened(browser, file)
    paper = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(paper)
    page.get_by_role("button", name="Dark colours").click()
    assert page.evaluate(paper) != before
    page.reload()
    page.get_by_role("button", name="Light colours").click()
    assert page.evaluate(paper) == before
    page.close()


def test_a_screen_reader_finds_its_way(browser: Browser, file: Path) -> None:
    """By landmarks, headings, and names of pictures and cells, as the browser hands them on."""
    page = opened(browser, file)
    for landmark in ("banner", "navigation", "main", "contentinfo"):
        assert page.get_by_role(landmark).count() == 1, landmark
    assert page.get_by_role("img", name=re.compile("GBP, from 2026-03-02")).count() == 1
    assert page.get_by_role("cell", name=re.compile("2026-06-30 failed: row_count")).count() == 2
    page.get_by_role("link", name="gold.revenue").first.click()
    assert page.evaluate("location.hash") == "#gold.revenue"
    assert page.get_by_role("heading", name="gold.revenue").bounding_box()["y"] < 100  # type: ignore[index]
    page.close()


def test_nothing_is_cut_off_on_paper_or_a_narrow_screen(browser: Browser, tmp_path: Path) -> None:
    made = shop()
    longer = [replace(each, name=f"{each.name}_by_country", owner="team:data-platform") for each in made.tables]
    file = tmp_path / "report.html"
    file.write_text(render(replace(made, tables=longer)), encoding="utf-8")
    page = opened(browser, file, "dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.set_viewport_size({"width": 1030, "height": 720})  # A4 across, within its margins
    wide = "[...document.querySelectorAll('table, figure')].filter(e => e.getBoundingClientRect().right > innerWidth + 1).length"
    assert page.evaluate(wide) == 0
    assert page.pdf(prefer_css_page_size=True).startswith(b"%PDF")
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 420, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()


def test_the_picture_of_the_readme(browser: Browser, file: Path) -> None:
    """As it looks now; the README's was made here."""
    page = opened(browser, file)
    made = picture(page, "report", 1280, 980)
    page.close()
    for each in (made, REPOSITORY / "docs" / "images" / "report.png"):
        assert 10_000 < each.stat().st_size < MOST_BYTES
