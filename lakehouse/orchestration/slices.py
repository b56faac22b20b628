"""The tag by which a run asks for slices: `lakehouse/slices: 8`, set by `lakehouse backfill --slices` or in the UI."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from lakehouse.build.slices import Slicing
from lakehouse.errors import LakehouseError

SLICES_TAG = "lakehouse/slices"
_OF_NEW_RUNS: ContextVar[int] = ContextVar(SLICES_TAG, default=1)


class SlicesTagError(LakehouseError):
    """A run asks for a number of slices that is none."""


@contextmanager
def new_runs_in_slices(number: int) -> Iterator[None]:
    """Every run that is recorded meanwhile, by whatever way, asks for that many slices."""
    token = _OF_NEW_RUNS.set(number)
    try:
        yield
    finally:
        _OF_NEW_RUNS.reset(token)


def tags_of_new_runs() -> dict[str, str]:
    """The tag of the runs that are recorded now; none where they are not to be sliced."""
    number = _OF_NEW_RUNS.get()
    return {SLICES_TAG: str(number)} if number > 1 else {}


def slicing_of(tags: Mapping[str, str], tell: Callable[[str], None]) -> Slicing | None:
    """What a run's tags ask for.

    Args:
        tags: of the run.
        tell: who is told of each slice.

    Raises:
        SlicesTagError: where the tag is no number from 1 on.
    """
    text = tags.get(SLICES_TAG, "1")
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise SlicesTagError(
            f"The run's tag {SLICES_TAG} is {text!r}: expected a number of slices such as 8. Launch it again with one."
        )
    return Slicing(int(text), tell) if int(text) > 1 else None
