"""`lakehouse freshness`: whether each table's days are complete in time, by the time its data speaks of."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import typer

from lakehouse.build.freshness import freshness as judge
from lakehouse.catalog import get_table, lake_without_engine
from lakehouse.checks.freshness import COMPLETE, NOT_COMPLETE, FreshnessState
from lakehouse.commands.command import LookingCommand, examples
from lakehouse.commands.console import AsJson, Selection, console, print_json, say, table
from lakehouse.errors import CHECKS_FAILED
from lakehouse.runs.selection import select_tables
from lakehouse.settings import get_settings
from lakehouse.texts import days_text


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "freshness",
        cls=LookingCommand,
        epilog=examples("lakehouse freshness", "lakehouse freshness --select group:gold --json"),
    )(freshness)


def freshness(selection: Selection = None, *, as_json: AsJson = False) -> None:
    """Judge tables by their data's time: is the newest due day complete, and how many days missed it this month.

    Building an old day again makes nothing fresh. Exit code 1 where a day that is due is not complete, or a table has
    used up its error budget.
    """
    settings, now = get_settings(), datetime.now(UTC)
    lake = lake_without_engine(settings)
    found = [judge(lake, get_table(name), now) for name in select_tables(selection)]
    if as_json:
        print_json([_json(each) for each in found])
    else:
        _print(found)
    raise typer.Exit(0 if all(each.met and each.budget_left >= 0 for each in found) else CHECKS_FAILED)


def _print(found: Sequence[FreshnessState]) -> None:
    columns = ("table", "complete up to", "due", "state", "behind", "missed in 30 days", "budget left")
    rows = [
        (
            each.table,
            each.newest or "no day yet",
            f"{each.due}, {each.standing}" if each.standing not in (COMPLETE, NOT_COMPLETE) else each.due,
            "fresh" if each.met else "NOT FRESH",
            _behind(each.behind),
            f"{len(each.missed)} of {len(each.judged)}",
            f"{each.budget_left:.0%}",
        )
        for each in found
    ]
    console().print(table(columns, rows, right=("behind", "missed in 30 days", "budget left")))
    for each in found:
        if each.missed:
            say(f"{each.table} was not complete in time: {days_text(list(each.missed))}")


def _behind(span: timedelta | None) -> str:
    if span is None:
        return "unknown"
    hours = max(0.0, span / timedelta(hours=1))
    return f"{hours:.0f} h" if hours < 72 else f"{hours / 24:.0f} days"  # noqa: PLR2004 - three days


def _json(each: FreshnessState) -> dict[str, Any]:
    return {
        "table": each.table,
        "fresh": each.met,
        "due": each.due,
        "complete_up_to": each.newest,
        "behind_hours": None if each.behind is None else round(each.behind / timedelta(hours=1), 1),
        "judged_days": len(each.judged),
        "missed_days": list(each.missed),
        "budget_left": round(each.budget_left, 4),
        "days": [
            {"day": day.day, "rows": day.rows, "usual_rows": day.usual, "completeness": day.completeness}
            | {"complete_at": day.complete_at}
            for day in each.days
        ],
    }
