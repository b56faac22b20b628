"""Plots as SVG, made by Vega-Lite in this process.

Vega-Lite (vl-convert) because the page is to be read without scripts and without the network: plotly and bokeh draw by
scripts of 3–4 MB in the page, matplotlib writes colours that no style sheet changes, pygal knows no bands. Colours are
CSS variables here, so one picture serves light, dark and print. Only numbers and dates go in: no text of a table does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from lakehouse.report.buckets import Step
from lakehouse.report.figures import Point

WIDTH, HEIGHT = 520, 120
_FORMATS = {"share": "%", "bytes": ".2s", "seconds": ",.2~f"}
_HEADROOM = 1.6  # a band is drawn up to this much above the largest value


def plot(points: Sequence[Point], unit: str, step: Step) -> str:
    """An SVG without width, height and name spaces, to be put into a page; decorative, its words stand beside it.

    Args:
        points: in order; the band of what was usual is drawn where they have one.
        unit: as `Series` has it, for the axis.
        step: what a point stands for.
    """
    import vl_convert

    most, least = max(point.value for point in points), min(0.0, *(point.value for point in points))
    top = most * _HEADROOM if most > 0 else 1.0
    rows = [
        {
            "day": f"{point.day}T00:00:00Z",
            "value": point.value,
            "low": max(point.usual.low, least) if point.usual else None,
            "usual": point.usual.usual if point.usual and point.usual.usual <= top else None,
            "high": min(max(point.usual.high, least), top) if point.usual else None,
            "odd": is_odd(point),
        }
        for point in points
    ]
    spec = json.loads(_compiled(_FORMATS.get(unit, "~s"), step is not Step.DAY or len(points) > 1))
    for source in spec["data"]:
        if source["name"] == "days":
            source["values"] = rows
    svg: str = vl_convert.vega_to_svg(spec)
    return re.sub(r' (xmlns(:xlink)?|version|width|height)="[^"]*"', "", svg, count=5).replace(
        "<svg", '<svg aria-hidden="true" focusable="false"', 1
    )


def is_odd(point: Point) -> bool:
    """Whether a figure is outside of what was usual on its day."""
    return point.usual is not None and not point.usual.low <= point.value <= point.usual.high


@lru_cache
def _compiled(form: str, several: bool) -> str:
    """The plot as Vega, without its data."""
    import vl_convert

    day = {
        "field": "day",
        "type": "temporal",
        "scale": {"type": "utc"},
        "axis": {"title": None, "grid": False, "tickCount": 8, "labelFlush": True, "format": "%-d %b %y"},
    }
    axis = {"title": None, "tickCount": 4, "format": form}

    def y(field: str, **more: Any) -> dict[str, Any]:
        return {"field": field, "type": "quantitative", "scale": {"zero": True}, "axis": axis, **more}

    value = {"type": "line", "color": "var(--value)", "strokeWidth": 1.4} if several else {"type": "point"}
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "area", "color": "var(--band)"},
            "encoding": {"x": day, "y": y("low"), "y2": {"field": "high"}},
        },
        {
            "mark": {"type": "line", "color": "var(--usual)", "strokeWidth": 1, "strokeDash": [2, 2]},
            "encoding": {"x": day, "y": y("usual")},
        },
        {"mark": value, "encoding": {"x": day, "y": y("value")}},
        {
            "transform": [{"filter": "datum.odd"}],
            "mark": {"type": "point", "shape": "diamond", "filled": True, "size": 46, "color": "var(--odd)"},
            "encoding": {"x": day, "y": y("value")},
        },
    ]
    text = {"labelColor": "var(--muted)", "labelFont": "inherit", "labelFontSize": 11}
    lines = {"domain": False, "ticks": False, "gridColor": "var(--grid)"}
    spec = {
        "width": WIDTH,
        "height": HEIGHT,
        "padding": 2,
        "background": None,
        "data": {"name": "days"},
        "config": {"view": {"stroke": None}, "axis": {**text, **lines}},
        "layer": layers,
    }
    return json.dumps(vl_convert.vegalite_to_vega(spec))
