"""What the harnesses did, added up over a test run and said in one line each at its end."""

from __future__ import annotations

from collections import Counter

_LINES: dict[str, tuple[str, Counter[str]]] = {}


def tally(name: str, template: str, **counts: int) -> None:
    """Add to a harness's counts. `template` says them, with a `{name}` for each."""
    _, found = _LINES.setdefault(name, (template, Counter()))
    for key, count in counts.items():
        found[key] += count  # a zero is kept: it is what people look for


def counts() -> dict[str, tuple[str, dict[str, int]]]:
    """By harness, its template and counts, as one process of a test run hands them to another."""
    return {name: (template, dict(found)) for name, (template, found) in _LINES.items()}


def lines() -> list[str]:
    """One line a harness that ran."""
    return [f"{name}: {template.format_map(found)}" for name, (template, found) in _LINES.items()]
