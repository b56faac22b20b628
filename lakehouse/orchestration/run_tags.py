"""Over which days a run is and why it is there, as tags that people read in the list of runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import date

DAYS_TAG, WHY_TAG = "days", "why"
AUTOMATIC = "lakehouse/automatic"  # of runs that the sensor of landed files has asked for
LONGEST = 200  # of a tag's text
_WHY: ContextVar[str] = ContextVar(WHY_TAG, default="")


@contextmanager
def because(why: str) -> Iterator[None]:
    """Every run that is recorded meanwhile says so, unless it was told something more exact before."""
    token = _WHY.set(_WHY.get() or why)
    try:
        yield
    finally:
        _WHY.reset(token)


def why_now() -> dict[str, str]:
    """The tag of the runs that are recorded now; none where nobody said why."""
    return {WHY_TAG: _WHY.get()[:LONGEST]} if _WHY.get() else {}


def span_text(first: date, last: date) -> str:
    """`2011-02-09`, or `2011-02-09…02-12`; with both years where they differ."""
    if first == last:
        return str(first)
    return f"{first}…{last}" if first.year != last.year else f"{first}…{last:%m-%d}"


def told_by(tags: Mapping[str, str]) -> str:
    """Why a run is there that Dagster made, by its tags."""
    if backfill := tags.get("dagster/backfill"):
        return f"backfill {backfill}"
    for kind in ("schedule", "sensor"):
        if name := tags.get(f"dagster/{kind}_name"):
            return f"{kind} {name}"
    return "launched in Dagster"
