"""The page: figures to one HTML file that loads nothing, escapes what it is given, and prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lakehouse.report import lineage, words
from lakehouse.report.buckets import Grid, Step, grids, put_together, step_of_plot
from lakehouse.report.figures import MEANING, VERDICTS, LakeReport, Point, Series, State, TableReport
from lakehouse.report.plots import Wanted, plots

MOST_TROUBLES = 6  # of a table, listed: a table with many must not hide those of another


Drawn = tuple[Series, list[Point]]
"""A series, and its points as they are drawn."""


@dataclass(frozen=True)
class Plot:
    """A drawn series: heading, picture, the same in words, and what the band means."""

    title: str
    svg: Markup
    words: str
    judged: str
    newest: str


@dataclass(frozen=True)
class Numbers:
    """The table behind the plots: headings, and by day, week or month the cells as people read them."""

    step: Step
    headings: Sequence[str]
    rows: Sequence[tuple[date, Markup]]


@dataclass(frozen=True)
class Section:
    """What the page shows of a table."""

    table: TableReport
    figures: Sequence[Plot]
    cost: Sequence[Plot]
    numbers: Numbers | None
    checks: Grid | None
    quarantine: Sequence[tuple[str, str, int, str, str]]
    columns: lineage.Drawing | None
    origins: Mapping[str, str]


@dataclass(frozen=True)
class Trouble:
    """A day, or several in a row, of a table in the same state for the same reason; `last` is the newest of them."""

    table: str
    days: str
    last: date
    state: State
    why: str


def render(found: LakeReport) -> str:
    """The page as HTML."""
    first, last = found.first, found.last
    step = step_of_plot(first, last) if first and last else Step.DAY
    drawn = [_drawn(each, step) for each in found.tables]
    pictures = iter(plots([Wanted(points, series.unit) for each in drawn for series, points in each], step))
    calendar = {each.name: each.days for each in found.tables}
    troubles = [_urgent([list(_troubles(each))]) for each in found.tables]
    return (
        environment()
        .get_template("report.html")
        .render(
            report=found,
            calendars=list(grids(calendar, first, last)) if first and last else [],
            graph=lineage.table_graph(found.tables),
            flow="; ".join(f"{each.name} reads {' and '.join(each.reads)}" for each in found.tables if each.reads),
            sections=[
                _section(each, (first, last), step, series, [Markup(next(pictures)) for _ in series])  # noqa: S704 - numbers
                for each, series in zip(found.tables, drawn, strict=True)
            ],
            troubles=_urgent([most[:MOST_TROUBLES] for most in troubles]),
            more={each[0].table: len(each) - MOST_TROUBLES for each in troubles if len(each) > MOST_TROUBLES},
            State=State,
            meanings=MEANING,
            verdicts=VERDICTS,
            words=words,
        )
    )


@lru_cache
def environment() -> Environment:
    """The templates of the pages."""
    made = Environment(
        loader=PackageLoader("lakehouse.report"),
        autoescape=True,  # names, rules and messages are text, whatever is in them
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["timedelta"] = timedelta
    return made


def _drawn(table: TableReport, step: Step) -> list[Drawn]:
    full = {point.day for each in table.figures if each.name == "rows" for point in each.points if point.value}
    drawn = [(each, _shown(each, step, full)) for each in (*table.figures, *table.cost)]
    return [(each, points) for each, points in drawn if points]


def _shown(series: Series, step: Step, full: set[date]) -> list[Point]:
    """The points to draw. A day without rows is in the calendar; here it would only make every line saw-toothed."""
    return put_together([point for point in series.points if point.day in full], step)


def _section(
    table: TableReport,
    between: tuple[date | None, date | None],
    step: Step,
    drawn: Sequence[Drawn],
    pictures: Sequence[Markup],
) -> Section:
    first, last = between
    made = [_plot(series, points, step, svg) for (series, points), svg in zip(drawn, pictures, strict=True)]
    figures = sum(any(series is each for each in table.figures) for series, _ in drawn)
    cells = {name: found for name, (_, found) in table.checks.items()}
    return Section(
        table,
        made[:figures],
        made[figures:],
        _numbers(drawn, step),
        next(grids(cells, first, last), None) if cells and first and last else None,
        [
            (each.rule, each.meaning, each.rows, words.moment(each.since), words.span(list(each.by_day)))
            for each in table.quarantine
        ],
        lineage.column_graph(table.name, table.columns),
        lineage.origins(table.columns),
    )


def _plot(series: Series, points: list[Point], step: Step, svg: Markup) -> Plot:
    newest = f"{words.number(points[-1].value, series.unit)} on {points[-1].day}"
    if step is not Step.DAY:
        newest = f"{words.number(points[-1].value, series.unit)} a day, {step.value} of {points[-1].day}"
    return Plot(words.title(series), svg, words.summary(series, points, step), series.judged, newest)


def _numbers(drawn: Sequence[Drawn], step: Step) -> Numbers | None:
    if not drawn:
        return None
    headings: list[str] = []
    columns: list[dict[date, str]] = []
    for series, points in drawn:
        headings.append(words.title(series))
        columns.append({point.day: words.number(point.value, series.unit) for point in points})
        if series.judged:
            headings.append(f"usual {words.title(series)}" if series.unit != "rows" else "usual rows")
            columns.append({point.day: words.usual(point, series.unit) for point in points})
    days = sorted({day for column in columns for day in column}, reverse=True)
    # 100,000 cells: the template would take seconds to write them one by one, and they are digits alone.
    rows = [(day, Markup("<td>" + "<td>".join(column.get(day, "") for column in columns))) for day in days]  # noqa: S704
    return Numbers(step, headings, rows)


def _urgent(of_tables: Sequence[Sequence[Trouble]]) -> list[Trouble]:
    """Those of all tables, the worst state first, and of one state the newest days; else in the order they come."""
    troubles = [each for table in of_tables for each in table]
    order = {state: number for number, state in enumerate(State)}
    return sorted(troubles, key=lambda each: (order[each.state], -each.last.toordinal()))


def _troubles(table: TableReport) -> Iterator[Trouble]:
    """The days of a table that need somebody; neighbours with the same reason are told once.

    A day often waits for the same day of another table: that is one reason for all of them.
    """
    for state in (State.FAILED, State.ENDED, State.WAITING, State.NOT_BUILT, State.STALE, State.LATE):
        run: list[date] = []
        days = table.in_state(state)
        reasons = {day: table.days[day].why.replace(str(day), "of the same day") for day in days}
        for n, day in enumerate(days):
            run.append(day)
            following = days[n + 1] if n + 1 < len(days) else None
            if following is None or (following - day).days != 1 or reasons[following] != reasons[day]:
                text = str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}"
                why = table.days[day].why if len(run) == 1 else reasons[day]
                yield Trouble(table.name, text, day, state, why or MEANING[state])
                run = []
