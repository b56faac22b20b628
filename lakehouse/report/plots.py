"""Plots as SVG, made by Vega in this process.

Vega (vl-convert) because the page is to be read without scripts and without the network: plotly and bokeh draw by
scripts of 3–4 MB in the page, matplotlib writes colours that no style sheet changes, pygal knows no bands. Colours are
CSS variables here, so one picture serves light, dark and print. Only numbers and dates go in: no text of a table does.

A page has a hundred plots and more. So they are the groups of one view, which Vega sets up once, and which is then
taken apart; and it measures no text where nothing depends on it, since that takes longer than all the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

from lakehouse.report.buckets import Step
from lakehouse.report.figures import Point

WIDTH, HEIGHT = 520, 120
_LEFT, _TOP, _RIGHT, _BOTTOM = 42, 8, 26, 24  # room for labels
_FORMATS = {"share": "%", "bytes": ".2s", "seconds": ",.2~f"}
_HEADROOM = 1.6  # a band is drawn up to this much above the largest value
_OPEN = (
    f'<svg aria-hidden="true" focusable="false" fill="none" '
    f'viewBox="{-_LEFT} {-_TOP} {WIDTH + _LEFT + _RIGHT} {HEIGHT + _TOP + _BOTTOM}">'
)
_DAY = 24 * 60 * 60 * 1000  # milliseconds
_EPOCH = 719_163  # ordinal of 1970-01-01
# A label for each day, and eight at most: with more, an axis of few days would have one for each quarter of a day.
_DAYS_SHOWN = f"clamp(floor((domain('x')[1] - domain('x')[0]) / {_DAY}), 1, 8)"


class Wanted(NamedTuple):
    """A plot to draw.

    Attributes:
        points: in order, one at least; the band of what was usual is drawn where they have one.
        unit: as `Series` has it, for the axis.
    """

    points: Sequence[Point]
    unit: str


def plots(wanted: Sequence[Wanted], step: Step) -> list[str]:
    """An SVG for each plot, to be put into a page; decorative, its words stand beside it.

    Args:
        wanted: what to draw.
        step: what a point stands for.
    """
    import vl_convert

    drawn: dict[int, str] = {}
    kinds: dict[tuple[str, bool], list[int]] = {}
    for number, each in enumerate(wanted):
        line = step is not Step.DAY or len(each.points) > 1
        kinds.setdefault((_FORMATS.get(each.unit, "~s"), line), []).append(number)
    for (form, line), numbers in kinds.items():
        rows = [row for number in numbers for row in _rows(number, wanted[number].points)]
        pictures = _apart(vl_convert.vega_to_svg(json.dumps(_view(form, rows, line=line))))
        drawn |= dict(zip(numbers, pictures, strict=True))
    return [drawn[number] for number in range(len(wanted))]


def is_odd(point: Point) -> bool:
    """Whether a figure is outside of what was usual on its day."""
    return point.usual is not None and not point.usual.low <= point.value <= point.usual.high


def _rows(number: int, points: Sequence[Point]) -> Iterator[dict[str, Any]]:
    most, least = max(point.value for point in points), min(0.0, *(point.value for point in points))
    top = most * _HEADROOM if most > 0 else 1.0
    for point in points:
        row = {"plot": number, "day": (point.day.toordinal() - _EPOCH) * _DAY, "value": point.value}
        if point.usual:
            low, usual, high = point.usual
            row |= {"low": max(low, least), "high": min(max(high, least), top), "odd": is_odd(point)}
            row |= {"usual": usual} if usual <= top else {}
        yield row


def _view(form: str, rows: Sequence[dict[str, Any]], *, line: bool) -> dict[str, Any]:
    """All plots of one kind in Vega's words: a group for each, with scales and axes of its own."""
    x = {"scale": "x", "field": "day"}
    label = {"labelColor": "var(--muted)", "labelFontSize": 11, "labelFont": "sans-serif", "labelLimit": 0}
    plain = {"domain": False, "ticks": False, "aria": False, **label}

    def y(field: str) -> dict[str, str]:
        return {"scale": "y", "field": field}

    def mark(kind: str, *, of: str = "days", **look: Any) -> dict[str, Any]:
        told = {name: value if isinstance(value, dict) else {"value": value} for name, value in look.items()}
        return {"type": kind, "aria": False, "from": {"data": of}, "encode": {"update": {"x": x, **told}}}

    return {
        "$schema": "https://vega.github.io/schema/vega/v6.json",
        "autosize": "none",
        "width": WIDTH,
        "height": HEIGHT,
        "data": [{"name": "all", "values": rows}],
        "marks": [
            {
                "type": "group",
                "name": "plots",
                "aria": False,
                "from": {"facet": {"name": "days", "data": "all", "groupby": "plot"}},
                "encode": {"update": {"width": {"value": WIDTH}, "height": {"value": HEIGHT}}},
                "data": [{"name": "odd", "source": "days", "transform": [{"type": "filter", "expr": "datum.odd"}]}],
                "scales": [
                    {"name": "x", "type": "utc", "domain": {"data": "days", "field": "day"}, "range": [0, WIDTH]},
                    {
                        "name": "y",
                        "domain": {"data": "days", "fields": ["value", "usual", "low", "high"]},
                        "range": [HEIGHT, 0],
                        "zero": True,
                        "nice": True,
                    },
                ],
                "axes": [
                    {"scale": "y", "orient": "left", "grid": True, "gridColor": "var(--grid)", "tickCount": 4,
                     "format": form, **plain},
                    {"scale": "x", "orient": "bottom", "tickCount": {"signal": _DAYS_SHOWN}, "format": "%-d %b %y",
                     "labelOverlap": True, **plain},
                ],
                "marks": [
                    mark("area", y=y("low"), y2=y("high"), fill="var(--band)", defined=_there("low")),
                    mark("line", y=y("usual"), stroke="var(--usual)", strokeWidth=1, strokeDash=[2, 2],
                         defined=_there("usual")),
                    mark("line" if line else "symbol", y=y("value"), stroke="var(--value)", strokeWidth=1.4),
                    mark("symbol", of="odd", y=y("value"), shape="diamond", size=46, fill="var(--odd)", opacity=0.7),
                ],
            }
        ],
    }  # fmt: skip


def _there(field: str) -> dict[str, str]:
    return {"signal": f"isValid(datum.{field})"}


def _apart(svg: str) -> Iterator[str]:
    """The groups of a view, each as a picture of its own, without what nobody needs: it is a third of them."""
    root = ET.fromstring(re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg))  # noqa: S314 - made here, of numbers and dates
    (plots,) = (each for each in root.iter("g") if "plots" in each.get("class", "").split())
    for each in plots:
        for element in each.iter():
            for name in ("class", "pointer-events"):
                element.attrib.pop(name, None)
            for name in ("d", "transform"):
                if name in element.attrib:  # a tenth of a pixel is enough
                    element.set(name, re.sub(r"(\.\d)\d+", r"\1", element.attrib[name]))
        yield f"{_OPEN}{ET.tostring(each, encoding='unicode')}</svg>"
