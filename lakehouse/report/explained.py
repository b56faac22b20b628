"""The way of one row as a page: gold, silver, bronze, file and line, in the style of the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lakehouse.report import words
from lakehouse.report.render import environment
from lakehouse.texts import maker_text

MOST_ROWS = 50  # of one table; `--json` has all


@dataclass(frozen=True)
class Leg:
    """One table on the way: its rows as they may be shown, what published them, and whether they can be made again."""

    id: str
    table: str
    above: str
    version: int
    count: int
    columns: list[str]
    rows: list[list[str]]
    published: list[str]
    verdict: str
    proven: bool
    notes: list[str]


def render_explained(way: Mapping[str, Any]) -> str:
    """The page.

    Args:
        way: the row and what it is made of, as `explain-row --json` tells it: without personal data.
    """
    return environment().get_template("explained.html").render(legs=list(_legs(way, "", "leg")), most=MOST_ROWS)


def _legs(step: Mapping[str, Any], above: str, id_: str) -> Iterator[Leg]:
    shown = step["rows"][:MOST_ROWS]
    columns = [name for name in (shown[0] if shown else ()) if any(row.get(name) is not None for row in shown)]
    places = step["places"]
    rows = [
        [*([places[n]] if places else []), *(_text(row.get(name)) for name in columns)] for n, row in enumerate(shown)
    ]
    published = [
        f"version {each['version']} at {words.moment(each['time'])}"
        + maker_text(each["run_id"], each["code_version"], is_current=each["current_code"])
        for each in step["commits"]
    ]
    again = step["recomputed"]
    verdict = {"equal": "Computed again from these alone: equal.", "differs": "Computed again from these: DIFFERS."}
    yield Leg(
        id_,
        step["table"],
        above,
        step["version"],
        step["count"],
        [*(["file and line"] if places else []), *columns],
        rows,
        published,
        verdict.get(again, "Not computed again: its landed file is gone."),
        again == "equal",
        [
            *step["differences"][:MOST_ROWS],
            *step["notes"],
            *(f"Left out as a repeat: {p}" for p in step["repeats_left_out"]),
        ],
    )
    for number, each in enumerate(step["made_of"]):
        yield from _legs(each, step["table"], f"{id_}-{number}")


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return "" if value is None else str(value)
