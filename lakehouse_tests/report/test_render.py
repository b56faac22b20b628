"""The page shows the figures that it was given, to everybody, and lets nothing in or out."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from datetime import date, timedelta
from itertools import pairwise

import pytest
import vl_convert

from lakehouse.checks.anomalies import Band
from lakehouse.report.buckets import MOST_POINTS, Step, grids, put_together, step_of_plot
from lakehouse.report.figures import Cell, ColumnOrigin, LakeReport, Point, State, Verdict, Waiting
from lakehouse.report.plots import HEIGHT, WIDTH, Wanted, plots
from lakehouse.report.render import render
from lakehouse_tests.report.made import AT, FIRST, days, lake_of, made_table, rows_on, states
from lakehouse_tests.report.reading import Element, read

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{7*7}}"


def page_of(*tables: object) -> Element:
    return read(render(lake_of(*tables)))  # type: ignore[arg-type]


def test_every_number_behind_the_plots_is_the_source() -> None:
    """Without it, a plot could be of another column, or of rounded figures."""
    page = page_of(made_table())
    table = page.one("div", aria_label="Numbers behind the plots of gold.sales").one("table")
    heading, *rows = table.rows()
    assert heading == ["Day", "revenue/GBP", "Rows", "usual rows", "Seconds to build"]
    assert [row[0] for row in rows] == [str(day) for day in reversed(days(7))]
    for day, revenue, number, usual, seconds in rows:
        expected = rows_on(date.fromisoformat(day))
        assert (revenue, number, usual) == (f"{expected:,}.25", f"{expected:,}", "900 to 1,006")
        assert seconds == "0.50 s"
    assert "7,021" in page.one("section", aria_labelledby="tables").text


def test_a_plot_says_in_words_what_it_shows() -> None:
    """Without it, who cannot see the plot learns nothing from it."""
    page = page_of(made_table())
    (rows,) = [e for e in page.all("div") if e.attributes.get("aria-label", "").startswith("Rows")]
    assert rows.attributes["role"] == "img"
    assert rows.attributes["aria-label"] == (
        "Rows, from 2026-03-02 to 2026-03-08. Newest: 1,006, usual 900 to 1,006. Lowest: 1,000 on 2026-03-02. "
        "Highest: 1,006 on 2026-03-08. Outside of what was usual: 1 of 7."
    )
    (drawn,) = rows.all("svg")
    assert drawn.attributes["aria-hidden"] == "true"
    (value,) = [e for e in drawn.all("path") if e.attributes.get("stroke") == "var(--value)"]
    assert len(re.findall(r"[ML]", value.attributes["d"])) == 7
    odd = [e for e in drawn.all("path") if "var(--odd)" in (e.attributes.get("fill"), e.attributes.get("stroke"))]
    assert len(odd) == 1


def test_the_calendar_has_a_letter_for_every_state() -> None:
    """Without it, colour would be the only sign; and a published day needs no words."""
    given = {f"d{4 + n}": state for n, state in enumerate(State)}
    page = page_of(made_table(days=states(**given)))
    grid = page.one("div", aria_labelledby="calendar-1").one("table")
    cells = [cell for row in grid.all("tr") for cell in row.all("td") if cell.attributes.get("class")]
    assert [cell.text for cell in cells] == [state.value for state in State]
    assert len({cell.attributes["class"] for cell in cells}) == len({cell.text for cell in cells}) == len(State)
    named = [cell.attributes.get("aria-label", "") for cell in cells]
    assert named[0] == "2026-03-04 failed: because of d4"
    assert [bool(text) for text in named] == [state is not State.PUBLISHED for state in State]
    trouble = page.one("section", aria_labelledby="needs").one("table").rows()[1:]
    assert [row[2].split()[-1] for row in trouble] == ["failed", "ended", "waiting", "built", "stale", "late"]


def test_days_that_fail_alike_are_told_once() -> None:
    """Without it, a month that waits for one file is thirty lines."""
    alike = {day: Cell(State.FAILED, "the disk is full") for day in days(5)}
    told = page_of(made_table(days=alike)).one("section", aria_labelledby="needs").one("table").rows()[1:]
    assert told == [["gold.sales", "2026-03-02 to 2026-03-06", "F failed", "the disk is full"]]


def test_a_table_with_many_troubles_hides_none_of_the_others() -> None:
    """Without it, late days of the first table would fill the list, and a failed day of the last be left out."""
    every_other = {day: Cell(State.LATE if n % 2 else State.PUBLISHED) for n, day in enumerate(days(40))}
    late, failed = made_table("bronze.sales", days=every_other), made_table(days=states(d5=State.FAILED))
    needs = page_of(late, failed).one("section", aria_labelledby="needs")
    told = [row[:2] for row in needs.one("table").rows()[1:]]
    assert told[0] == ["gold.sales", "2026-03-05"], "the worst first"
    newest = [str(day) for day in reversed(days(40)) if every_other[day].sign is State.LATE]
    assert told[1:] == [["bronze.sales", day] for day in newest[: len(told) - 1]]
    (more,) = needs.all("p")
    assert (
        more.text.replace(" ;", ";")
        == f"… and {len(newest) - len(told) + 1} more of bronze.sales; the calendar has them all."
    )


def test_an_axis_names_no_day_twice() -> None:
    """Without it, a plot of three days has a label for each quarter of a day, and each day four times."""
    lengths = [1, 2, 3, 5, 9, 17, 40, 400]
    wanted = [Wanted([Point(day, 1.0 + n) for n, day in enumerate(days(number))], "rows") for number in lengths]
    for number, svg in zip(lengths, plots(wanted, Step.DAY), strict=True):
        labels = re.findall(r">(\d+ [A-Z][a-z]{2} \d\d)<", svg)
        assert min(number, 4) <= len(set(labels)) == len(labels), (number, labels)


def test_lines_lie_where_the_axes_say() -> None:
    """Vega draws the axes, and the lines are drawn here: each where Vega would have drawn it, at a tenth of a pixel."""
    chance = random.Random(4)
    for number in (2, 3, 7, 40):
        for least in (0.0, -0.5):
            size = 10 ** chance.uniform(-4, 8)
            points = [Point(day, chance.uniform(least, 1) * size) for day in days(number)]
            rows = [{"x": n, "y": point.value} for n, point in enumerate(points)]
            x, y = {"scale": "x", "field": "x"}, {"scale": "y", "field": "y"}
            spec = {
                "width": WIDTH, "height": HEIGHT, "padding": 0, "data": [{"name": "rows", "values": rows}],
                "scales": [
                    {"name": "x", "domain": {"data": "rows", "field": "x"}, "range": "width", "zero": False},
                    {"name": "y", "domain": {"data": "rows", "field": "y"}, "range": "height", "nice": True, "zero": True},
                ],
                "marks": [{"type": "line", "from": {"data": "rows"}, "encode": {"update": {"x": x, "y": y, "stroke": {"value": "red"}}}}],
            }  # fmt: skip
            (theirs,) = re.findall(r'd="(M[^"]+L[^"]+)" stroke="red"', vl_convert.vega_to_svg(spec))
            (svg,) = plots([Wanted(points, "")], Step.DAY)
            (ours,) = re.findall(r'd="(M[^"]+)" stroke="var\(--value\)"', svg)
            there, here = ([float(each) for each in re.findall(r"-?[\d.]+", path)] for path in (theirs, ours))
            assert here == pytest.approx(there, abs=0.06), (number, least, size)


def test_a_figure_that_is_always_zero_is_a_line_at_the_bottom() -> None:
    (svg,) = plots([Wanted([Point(day, 0.0, Band(0.0, 0.0, 0.0)) for day in days(3)], "rows")], Step.DAY)
    assert re.findall(r'd="(M[^"]+)" stroke="var\(--value\)"', svg) == [
        f"M0,{HEIGHT}L{WIDTH // 2},{HEIGHT}L{WIDTH},{HEIGHT}"
    ]


def test_nothing_that_is_shown_can_become_markup() -> None:
    """Table names, messages, rules, owners and columns are text, whatever is in them."""
    evil = made_table(
        EVIL,
        owner=EVIL,
        about=EVIL,
        grain=EVIL,
        days={day: Cell(State.FAILED, EVIL) for day in days(3)},
        checks={EVIL: (EVIL, {day: Cell(Verdict.FAILED, EVIL) for day in days(3)})},
        quarantine=[Waiting(EVIL, EVIL, 1, AT, {FIRST: 1})],
        columns=[ColumnOrigin(EVIL, EVIL, EVIL, False, [(EVIL, EVIL)])],
        reads=[EVIL],
    )
    evil = replace(evil, figures=[replace(each, name=EVIL, judged=EVIL) for each in evil.figures])
    text = render(lake_of(evil))
    page = read(text)
    assert "<img" not in text
    assert len(list(page.all("script"))) == 1
    assert "{{7*7}}" in page.text
    handlers = [
        name for e in page.all(*{"a", "td", "th", "div", "svg", "section"}) for name in e.attributes if name[:2] == "on"
    ]
    assert not handlers


def test_the_page_loads_nothing() -> None:
    """It is sent by mail and opened offline: no address in it but those of its own parts."""
    text = render(lake_of(made_table("silver.orders", reads=[]), made_table()))
    assert "http" not in text.replace("http-equiv", "")
    assert not re.search(r"url\(|@import|src=", text)
    page = read(text)
    ids = [
        e.attributes["id"]
        for tag in ("h2", "main", "figcaption", "caption")
        for e in page.all(tag)
        if "id" in e.attributes
    ]
    assert len(ids) == len(set(ids))
    targets = {e.attributes["href"] for e in page.all("a")}
    assert {target[0] for target in targets} == {"#"}
    assert {target[1:] for target in targets} <= set(ids)
    assert "default-src 'none'" in page.one("meta", http_equiv="Content-Security-Policy").attributes["content"]


def test_it_can_be_read_by_ear() -> None:
    """Headings in order, one page title, every picture, table and region with a name, every cell under a heading."""
    page = page_of(made_table("silver.orders", reads=[]), made_table())
    levels = [int(e.tag[1]) for e in page.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.one("html").attributes["lang"] == "en"
    assert page.one("title").text
    for each in page.all("svg"):
        assert each.attributes.get("aria-hidden") == "true" or each.attributes.get("aria-label"), each.attributes
    for each in page.all("div"):
        if each.attributes.get("role") in ("img", "region"):
            assert each.attributes.get("aria-label") or each.attributes.get("aria-labelledby"), each.attributes
    for table in page.all("table"):
        for row in table.all("tr"):
            cells = list(row.all("td", "th"))
            assert cells[0].tag == "th" or not cells[0].text, row.text
            assert all(cell.attributes.get("scope") for cell in cells if cell.tag == "th")
    names = {
        e.attributes["id"] for tag in ("h2", "figcaption", "caption") for e in page.all(tag) if "id" in e.attributes
    }
    named_by = {
        e.attributes["aria-labelledby"]
        for e in page.all("section", "figure", "div")
        if "aria-labelledby" in e.attributes
    }
    assert named_by <= names


def test_an_empty_lakehouse_says_how_to_begin() -> None:
    page = read(render(LakeReport(AT, None, None, ())))
    assert "Nothing was built yet" in page.text
    assert [e.text for e in page.all("h1")] == ["Lakehouse report"]


def test_a_lakehouse_with_only_failures_is_shown() -> None:
    """No figure, no plot, no numbers: what failed, and why."""
    bad = {day: Cell(State.FAILED, "no file") for day in days(2)}
    page = page_of(
        made_table(
            days=bad, rows=0, bytes=0, published_at=None, figures=[], cost=[], checks={}, quarantine=[], quarantined=0
        )
    )
    assert "no file" in page.one("section", aria_labelledby="needs").text
    assert not list(page.all("figure"))
    assert "Nothing was published in these days." in page.one("section", aria_labelledby="gold.sales").text


def test_a_table_of_open_days_alone_is_not_said_to_be_unpublished() -> None:
    """Without it, a topic's first day would have rows in one place of the page, and nothing in another."""
    page = page_of(made_table(days={days(1)[0]: Cell(State.OPEN)}, rows=7, figures=[], cost=[]))
    said = page.one("section", aria_labelledby="gold.sales").text
    assert "figures are drawn once a day is over" in said
    assert "Nothing was published" not in said


@pytest.mark.parametrize(
    ("number", "step"), [(400, Step.DAY), (401, Step.WEEK), (2_800, Step.WEEK), (2_801, Step.MONTH)]
)
def test_plots_have_no_more_points_than_pixels(number: int, step: Step) -> None:
    """Without it, a page over years is as large as its tables have days."""
    last = FIRST + timedelta(days=number - 1)
    assert step_of_plot(FIRST, last) is step
    points = put_together([Point(day, 1.0) for day in days(number)], step)
    assert len(points) <= MOST_POINTS + 1
    for grid in grids({"t": {day: Cell(State.PUBLISHED) for day in days(number)}}, FIRST, last):
        assert len(grid.columns) <= 105
        assert sum(wide for _, wide in grid.above) == len(grid.columns) == len(grid.rows["t"])


def test_a_week_is_the_mean_of_its_days_and_its_worst_state() -> None:
    span = [FIRST + timedelta(days=n) for n in range(14)]
    points = [Point(day, float(n), Band(0.0, n, 2.0 * n)) for n, day in enumerate(span)]
    assert put_together(points, Step.WEEK) == [
        Point(FIRST, 3.0, Band(0.0, 3.0, 6.0)),
        Point(FIRST + timedelta(days=7), 10.0, Band(0.0, 10.0, 20.0)),
    ]
    long = {day: Cell(State.EMPTY if day.weekday() == 6 else State.PUBLISHED) for day in days(100)}
    long[FIRST + timedelta(days=8)] = Cell(State.FAILED, "x")
    *_, weeks = grids({"t": long}, FIRST, FIRST + timedelta(days=99))
    assert weeks.step is Step.WEEK
    assert [square.letter for square in weeks.rows["t"]][:3] == ["·", "F", "·"]
    assert weeks.rows["t"][1].text == "week of 2026-03-09: failed 1, empty 1, published 5"


@pytest.mark.slow
def test_twenty_tables_of_two_thousand_days_make_a_small_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: each plot is drawn from weeks, once, and all of them are asked for together."""
    drawn: list[int] = []
    calls: list[int] = []

    def counted(wanted: list[Wanted], step: Step) -> list[str]:
        assert step is Step.WEEK
        drawn.extend(len(each.points) for each in wanted)
        calls.append(len(wanted))
        return ["<svg></svg>"] * len(wanted)

    monkeypatch.setattr("lakehouse.report.render.plots", counted)
    text = render(lake_of(*[made_table(f"gold.t{n}", 2_000) for n in range(20)]))
    assert len(drawn) == 20 * 3
    assert max(drawn) == 286
    assert calls == [60]
    assert len(text) < 3_000_000


def test_each_plot_is_of_its_own_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are drawn in a view for each kind of axis, and taken apart: a table could get the picture of another."""
    calls: list[str] = []
    draw = vl_convert.vega_to_svg
    monkeypatch.setattr("vl_convert.vega_to_svg", lambda spec: calls.append(spec) or draw(spec))
    span = days(5)
    wanted = [
        Wanted([Point(day, 10.0**n * (k + 1)) for k, day in enumerate(span[: 2 + n % 3])], unit)
        for n, unit in enumerate(("rows", "share", "rows", "bytes", "", "seconds"))
    ]
    together = plots(wanted, Step.DAY)
    assert len(calls) == 4
    for each, picture in zip(wanted, together, strict=True):
        assert picture == plots([each], Step.DAY)[0]
        (line,) = [e for e in read(picture).all("path") if e.attributes.get("stroke") == "var(--value)"]
        assert len(re.findall(r"[ML]", line.attributes["d"])) == len(each.points)


def test_the_odd_days_and_what_was_usual_are_where_the_figures_are() -> None:
    """Read off the picture: 120 pixels are the axis, which begins at 0."""
    points = [
        Point(day, value, Band(50.0, 60.0, 80.0)) for day, value in zip(days(3), (60.0, 100.0, 60.0), strict=True)
    ]
    picture = read(plots([Wanted(points, "rows")], Step.DAY)[0])
    colours = {e.attributes.get("stroke") or e.attributes.get("fill"): e.attributes for e in picture.all("path")}
    assert colours["var(--value)"]["d"] == "M0,48L260,0L520,48"
    assert colours["var(--usual)"]["d"] == "M0,48L260,48L520,48"
    assert colours["var(--band)"]["d"] == "M0,60L260,60L520,60L520,24L260,24L0,24Z"
    assert picture.one("svg").attributes["fill"] == "none"  # a line is no area
    assert colours["var(--odd)"]["transform"] == "translate(260,0)"
    texts = [e.text for e in picture.all("text")]
    assert {"0", "100", "2 Mar 26", "4 Mar 26"} <= set(texts)
