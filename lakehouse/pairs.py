"""Many parts made into one by a function of two, such as AND, without nesting them deep."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def in_pairs(combine: Callable[[T, T], T], parts: Iterable[T], empty: T | None = None) -> T:
    """As `functools.reduce` of an associative function gives it, nested as deep as a tree and not as a chain.

    Spark Connect sends no column that is nested about fifty deep: a chain of fifty conditions is one.

    Args:
        combine: of two neighbours, in order, one.
        parts: at least one, where there is no `empty`.
        empty: what no parts give.

    Raises:
        ValueError: there are no parts, and there is no `empty`.
    """
    left = list(parts)
    if not left:
        if empty is None:
            raise ValueError("There is nothing to combine.")
        return empty
    while len(left) > 1:
        odd = left[-1:] if len(left) % 2 else []
        left = [combine(one, other) for one, other in zip(left[::2], left[1::2], strict=False)] + odd
    return left[0]
