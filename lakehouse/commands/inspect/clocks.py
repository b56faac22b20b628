"""`lakehouse clocks`: whose clock is wrong, by how much, and how late each producer delivers."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

import typer

from lakehouse.catalog import lake_without_engine
from lakehouse.checks.producers import ProducerDay, producer_days, span
from lakehouse.commands.command import LookingCommand, examples
from lakehouse.commands.console import AsJson, FromDay, ToDay, console, print_json, say, table
from lakehouse.contracts import Clock
from lakehouse.errors import CHECKS_FAILED
from lakehouse.read.lake import Lake
from lakehouse.settings import get_settings

NEWEST = 30  # days


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "clocks", cls=LookingCommand, epilog=examples("lakehouse clocks", "lakehouse clocks --from 2011-03-01 --json")
    )(clocks)


def clocks(first: FromDay = None, last: ToDay = None, *, as_json: AsJson = False) -> None:
    """Say of each producer how many rows are ahead of their arrival and by how much, or impossible in time, or late.

    Read from the figures that commits keep. Days are arrival days, by default the newest 30 of those with figures. Exit
    code 1 where a producer's clock is wrong.
    """
    lake = lake_without_engine(get_settings())
    found: list[dict[str, Any]] = []
    for contract in lake.tables.values():
        if contract.clock is not None:
            kept = _within(producer_days(lake, contract), first, last)
            for producer in sorted({each.producer for each in kept}):
                one = [each for each in kept if each.producer == producer]
                found.append({"table": contract.id, "producer": producer, **_together(contract.clock, one)})
    if as_json:
        print_json(found)
    elif not found:
        say(_nothing(lake, first, last))
    else:
        _print(found)
    raise typer.Exit(CHECKS_FAILED if any(each["wrong_days"] for each in found) else 0)


def _nothing(lake: Lake, first: date | None, last: date | None) -> str:
    """Why no producer is listed, and what to do."""
    if all(each.clock is None for each in lake.tables.values()):
        return (
            'No table compares its event times with the arrival of its rows: write clock=Clock("…") in its file, '
            "with the column of the event time."
        )
    asked = " of these days" if first or last else ""
    return f"No figures of producers{asked} yet: they are kept from the next build of a day on."


def _within(days: list[ProducerDay], first: date | None, last: date | None) -> list[ProducerDay]:
    """The days asked for: by default the newest of those with figures."""
    until = last or max((each.day for each in days), default=None)
    if until is None:
        return []
    since = first or until - timedelta(days=NEWEST - 1)
    return [each for each in days if since <= each.day <= until]


def _together(clock: Clock, days: list[ProducerDay]) -> dict[str, Any]:
    """A producer over some days. Seconds ahead: the median of the days' medians, and the most of any day."""
    impossible = sum((Counter(each.wrong) for each in days), Counter[str]())
    accused = {each.day: text for each in days if (text := each.accused(clock))}
    return {
        "days": len(days),
        "rows": sum(each["rows"] for each in days),
        **_ahead([each for each in days if each["ahead"]]),
        "impossible": dict(impossible),
        "rows_late": sum(each["late"] for each in days),
        "days_late": {name: max(each[f"late_{name}"] for each in days) for name in ("p50", "p95", "most")},
        "wrong_days": list(accused),
        "says": accused[max(accused)] if accused else "",
    }


def _ahead(days: Sequence[ProducerDay]) -> dict[str, Any]:
    return {
        "rows_ahead": sum(each["ahead"] for each in days),
        "seconds_ahead": statistics.median_low([each["ahead_p50"] for each in days]) if days else None,
        "most_seconds_ahead": max((each["ahead_most"] for each in days), default=None),
    }


def _print(found: list[dict[str, Any]]) -> None:
    columns = ("producer", "days", "rows", "ahead", "median", "most", "impossible", "late", "days late, most", "clock")
    rows = [
        (
            each["producer"],
            each["days"],
            each["rows"],
            each["rows_ahead"],
            "" if each["seconds_ahead"] is None else span(each["seconds_ahead"]),
            "" if each["most_seconds_ahead"] is None else span(each["most_seconds_ahead"]),
            ", ".join(f"{kind} {rows:,}" for kind, rows in each["impossible"].items()),
            each["rows_late"],
            each["days_late"]["most"],
            f"WRONG on {len(each['wrong_days'])} of {each['days']} days" if each["wrong_days"] else "right",
        )
        for each in found
    ]
    console().print(table(columns, rows, right=("days", "rows", "ahead", "median", "most", "late", "days late, most")))
    for each in found:
        if each["wrong_days"]:
            say(f"{each['producer']}, {max(each['wrong_days'])}: {each['says']}")
