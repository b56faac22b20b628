"""The tag by which a run asks for slices: `lakehouse/slices: 8`, set by `lakehouse backfill --slices` or in the UI."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakehouse.build.slices import Slicing
from lakehouse.errors import LakehouseError

SLICES_TAG = "lakehouse/slices"
MOST_SLICES = 1000  # each is a pass over the input


class SlicesTagError(LakehouseError):
    """A run asks for a number of slices that is none."""


def tags_for(slices: int) -> dict[str, str]:
    """The tag of a run that asks for so many slices; none where it builds tables whole."""
    return {SLICES_TAG: str(slices)} if slices > 1 else {}


def slicing_of(tags: Mapping[str, str], tell: Callable[[str], None]) -> Slicing | None:
    """What a run's tags ask for.

    Args:
        tags: of the run.
        tell: who is told of each slice.

    Raises:
        SlicesTagError: where the tag is no number from 1 to `MOST_SLICES`.
    """
    text = tags.get(SLICES_TAG, "1")
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_SLICES):
        raise SlicesTagError(
            f"The run's tag {SLICES_TAG} is {text!r}: expected a number of slices such as 8, at most "
            f"{MOST_SLICES}. Launch it again with one."
        )
    return Slicing(int(text), tell) if int(text) > 1 else None
