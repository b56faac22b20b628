"""Plots as SVG, made by Vega in this process.

Vega (vl-convert) because the page is to be read without scripts and without the network: plotly and bokeh draw by
scripts of 3–4 MB in the page, matplotlib writes colours that no style sheet changes, pygal knows no bands. Colours are
CSS variables here, so one picture serves light, dark and print. Only numbers and dates go in: no text of a table does.

A page has a hundred plots and more. So they are the groups of one view, which Vega sets up once, and which is then
taken apart; it measures no text where nothing depends on it, since that takes longer than all the rest; and it draws
the axes alone. The lines are drawn here, since all points would have to be told to Vega, and be read back from it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from datetime import date
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
_DIAMOND = "M0,-4.7L3.2,0L0,4.7L-3.2,0Z"
_CIRCLE = "M4,0A4,4,0,1,1,-4,0A4,4,0,1,1,4,0"
_STEPS = ((10, 50), (5, 10), (2, 2))  # of round numbers, and the square of what each is taken from on
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

    scales = [_scale(each) for each in wanted]
    forms: dict[str, list[int]] = {}
    for number, each in enumerate(wanted):
        forms.setdefault(_FORMATS.get(each.unit, "~s"), []).append(number)
    drawn: dict[int, str] = {}
    for form, numbers in forms.items():
        ends = [row for number in numbers for row in scales[number].ends(number)]
        axes = _apart(vl_convert.vega_to_svg(json.dumps(_view(form, ends))))
        for number, picture in zip(numbers, axes, strict=True):
            drawn[number] = f"{_OPEN}{picture}{_marks(wanted[number].points, scales[number], step)}</svg>"
    return [drawn[number] for number in range(len(wanted))]


def is_odd(point: Point) -> bool:
    """Whether a figure is outside of what was usual on its day."""
    return point.usual is not None and not point.usual.low <= point.value <= point.usual.high


class _Scale(NamedTuple):
    """Days and values as pixels; what is above `top` or below `least` of a band is drawn there."""

    first: int
    last: int
    low: float
    high: float
    least: float
    top: float

    def x(self, day: date) -> str:
        if self.first == self.last:
            return _tenth(WIDTH / 2)
        return _tenth(WIDTH * (day.toordinal() - self.first) / (self.last - self.first))

    def y(self, value: float) -> str:
        return _tenth(HEIGHT * (self.high - value) / (self.high - self.low))

    def ends(self, number: int) -> Iterator[dict[str, Any]]:
        """What Vega has to know for the axes."""
        for day, value in ((self.first, self.low), (self.last, self.high)):
            yield {"plot": number, "day": (day - _EPOCH) * _DAY, "value": value}


def _scale(wanted: Wanted) -> _Scale:
    points = wanted.points
    most, least = max(point.value for point in points), min(0.0, *(point.value for point in points))
    top = most * _HEADROOM if most > 0 else 1.0
    shown = [0.0, most, least]
    for point in points:
        if point.usual:
            low, usual, high = point.usual
            shown += [max(low, least), min(max(high, least), top), usual if usual <= top else least]
    low, high = _nice(min(shown), max(shown))
    return _Scale(points[0].day.toordinal(), points[-1].day.toordinal(), low, high, least, top)


def _nice(low: float, high: float) -> tuple[float, float]:
    """A range that begins and ends at round numbers: as Vega's scales make it."""
    if low == high:
        return low, high + 1.0
    before = 0.0
    for _ in range(10):
        raw = (high - low) / 10
        power = math.floor(math.log10(raw))
        error = raw / 10.0**power
        step = 10.0**power * next((n for n, least in _STEPS if error * error >= least), 1)
        if step == before:
            break
        low, high, before = math.floor(low / step) * step, math.ceil(high / step) * step, step
    return low, high


def _marks(points: Sequence[Point], scale: _Scale, step: Step) -> str:
    """The band, what was usual, the figure itself, and what of it is odd."""
    bands: list[list[tuple[str, str, str]]] = [[]]
    usual: list[list[str]] = [[]]
    values, odd = [], []
    for point in points:
        x, y = scale.x(point.day), scale.y(point.value)
        values.append(f"{x},{y}")
        if not point.usual:
            bands.append([])
            usual.append([])
            continue
        low, centre, high = point.usual
        bands[-1].append((x, scale.y(max(low, scale.least)), scale.y(min(max(high, scale.least), scale.top))))
        if centre <= scale.top:
            usual[-1].append(f"{x},{scale.y(centre)}")
        else:
            usual.append([])
        if is_odd(point):
            odd.append(f'<path transform="translate({x},{y})" d="{_DIAMOND}" fill="var(--odd)" opacity="0.7"/>')
    area = "".join(
        f"M{'L'.join([f'{x},{low}' for x, low, _ in band] + [f'{x},{high}' for x, _, high in reversed(band)])}Z"
        for band in bands
        if band
    )
    middle = "".join(f"M{'L'.join(line)}" for line in usual if len(line) > 1)
    single = step is Step.DAY and len(values) == 1
    return "".join(
        [
            f'<path d="{area}" fill="var(--band)"/>' if area else "",
            f'<path d="{middle}" stroke="var(--usual)" stroke-width="1" stroke-dasharray="2,2"/>' if middle else "",
            f'<path transform="translate({values[0]})" d="{_CIRCLE}" stroke="var(--value)" stroke-width="1.4"/>'
            if single
            else f'<path d="M{"L".join(values)}" stroke="var(--value)" stroke-width="1.4"/>',
            *odd,
        ]
    )


def _tenth(pixels: float) -> str:
    """A tenth of a pixel is enough."""
    return f"{pixels:.1f}".removesuffix(".0")


def _view(form: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The axes of all plots of one kind in Vega's words: a group for each, with scales of its own."""
    label = {"labelColor": "var(--muted)", "labelFontSize": 11, "labelFont": "sans-serif", "labelLimit": 0}
    plain = {"domain": False, "ticks": False, "aria": False, **label}

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
                "scales": [
                    {"name": "x", "type": "utc", "domain": {"data": "days", "field": "day"}, "range": [0, WIDTH]},
                    {"name": "y", "domain": {"data": "days", "field": "value"}, "range": [HEIGHT, 0], "zero": True},
                ],
                "axes": [
                    {"scale": "y", "orient": "left", "grid": True, "gridColor": "var(--grid)", "tickCount": 4,
                     "format": form, **plain},
                    {"scale": "x", "orient": "bottom", "tickCount": {"signal": _DAYS_SHOWN}, "format": "%-d %b %y",
                     "labelOverlap": True, **plain},
                ],
            }
        ],
    }  # fmt: skip


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
        yield ET.tostring(each, encoding="unicode")
