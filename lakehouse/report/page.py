"""The report as one piece: figures collected, and the page made of them."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime

from lakehouse.orchestration.outcomes import Outcomes
from lakehouse.read.lake import Lake
from lakehouse.report.collect import collect
from lakehouse.report.render import render


def page(
    lake: Lake,
    names: Sequence[str],
    now: datetime,
    of_runs: Mapping[str, Outcomes] | None,
    between: tuple[date | None, date | None] = (None, None),
) -> str:
    """The page as HTML. The arguments are those of `collect`."""
    with without_collector():
        return render(collect(lake, names, now, of_runs, between))


@contextmanager
def without_collector() -> Iterator[None]:
    """A block without Python's garbage collector.

    A million small values are made, and none refers back to itself: to look for such takes a quarter of the time.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
