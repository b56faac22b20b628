"""Days put together to weeks or months where a picture has no pixel for each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import Enum
from math import fsum

from lakehouse.checks.anomalies import Band
from lakehouse.days import days_between
from lakehouse.report.figures import MEANING, VERDICTS, Cell, Point, State, Verdict

MOST_POINTS = 400  # of a plot, which is about 560 pixels wide
DAYS_IN_GRID = 91  # columns of a grid: 13 weeks
WEEKS_IN_GRID = 104
_ORDER: Mapping[State | Verdict, int] = {
    **{sign: n for n, sign in enumerate(State)},
    **{sign: n for n, sign in enumerate(Verdict)},
}


class Step(Enum):
    """What one point or column stands for."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


def start_of(day: date, step: Step) -> date:
    """The first day of a day's week (Monday) or month."""
    if step is Step.WEEK:
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if step is Step.MONTH else day


def step_of_plot(first: date, last: date) -> Step:
    """The finest step that a plot has pixels for."""
    days = (last - first).days + 1
    return Step.DAY if days <= MOST_POINTS else Step.WEEK if days <= 7 * MOST_POINTS else Step.MONTH


def put_together(points: Sequence[Point], step: Step) -> list[Point]:
    """Means a day over weeks or months, of figures and of what was usual; days themselves as they are.

    Args:
        points: in order of their days.
        step: what a point of the result stands for.
    """
    if step is Step.DAY:
        return list(points)
    buckets: list[tuple[date, list[Point]]] = []
    end = date.min
    for point in points:
        if point.day >= end:
            begin = start_of(point.day, step)
            end = start_of(begin + timedelta(days=7 if step is Step.WEEK else 31), step)
            buckets.append((begin, []))
        buckets[-1][1].append(point)
    return [
        Point(
            day, fsum(each.value for each in inside) / len(inside), _mean([each.usual for each in inside if each.usual])
        )
        for day, inside in buckets
    ]


def _mean(bands: Sequence[Band]) -> Band | None:
    return Band(*(sum(side) / len(bands) for side in zip(*bands, strict=True))) if bands else None


@dataclass(frozen=True)
class Square:
    """One cell of a grid: its letter, the name of its look, and what it says; empty where all is well."""

    letter: str = ""
    look: str = ""
    text: str = ""


@dataclass(frozen=True)
class Grid:
    """Days, weeks or months of several rows: headings above (text, columns), columns, and a row of squares by name."""

    step: Step
    above: Sequence[tuple[str, int]]
    columns: Sequence[date]
    rows: Mapping[str, Sequence[Square]]


def grids(rows: Mapping[str, Mapping[date, Cell]], first: date, last: date) -> Iterator[Grid]:
    """The newest days one by one, and where there are more all of them by week or month.

    Args:
        rows: by name, what is known of each day.
        first: first day.
        last: last day, inclusive.
    """
    yield _grid(rows, days_between(max(first, last - timedelta(days=DAYS_IN_GRID - 1)), last), Step.DAY)
    days = (last - first).days + 1
    if days > DAYS_IN_GRID:
        step = Step.WEEK if days <= 7 * WEEKS_IN_GRID else Step.MONTH
        yield _grid(rows, list(dict.fromkeys(start_of(day, step) for day in days_between(first, last))), step)


def _grid(rows: Mapping[str, Mapping[date, Cell]], columns: Sequence[date], step: Step) -> Grid:
    form = {Step.DAY: "%B %Y", Step.WEEK: "%b %y", Step.MONTH: "%Y"}[step]
    above = Counter(f"{each:{form}}" for each in columns)
    drawn = {}
    for name, cells in rows.items():
        inside: dict[date, list[tuple[date, Cell]]] = {}
        for day, cell in cells.items():
            inside.setdefault(start_of(day, step), []).append((day, cell))
        drawn[name] = [_square(inside.get(column, ()), step) for column in columns]
    return Grid(step, list(above.items()), columns, drawn)


def _square(inside: Sequence[tuple[date, Cell]], step: Step) -> Square:
    if not inside:
        return Square()
    signs = {cell.sign for _, cell in inside}
    if signs == {State.PUBLISHED, State.EMPTY}:  # a week whose Sunday is empty is a week as any other
        signs = {State.PUBLISHED}
    worst = min(signs, key=_ORDER.__getitem__)
    letter, look = worst.value, worst.name.lower().replace("_", "-")
    if worst in (State.PUBLISHED, Verdict.PASSED):
        return Square(letter, look)
    (day, cell), counted = inside[0], Counter(cell.sign for _, cell in inside)
    if step is Step.DAY:
        meaning = MEANING[worst] if isinstance(worst, State) else VERDICTS[worst]
        return Square(letter, look, f"{day} {_word(worst)}: {cell.why or meaning}")
    told = ", ".join(f"{_word(sign)} {counted[sign]}" for sign in sorted(counted, key=_ORDER.__getitem__))
    return Square(letter, look, f"{step.value} of {start_of(day, step)}: {told}")


def _word(sign: State | Verdict) -> str:
    return sign.name.lower().replace("_", " ")
