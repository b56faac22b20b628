"""Words for people that many rooms need: numbers with their noun, days as ranges, ages, names that are near."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path

from lakehouse.days import contiguous

CANDIDATE_RUN = "candidate-"
"""How the id of a run begins that builds a candidate."""


def days_text(days: Iterable[date], most: int = 4) -> str:
    """Days as ranges: `2011-01-04 … 2011-01-07, 2011-01-09`."""
    spans = contiguous(days)
    shown = [str(a) if a == b else f"{a} … {b}" for a, b in spans[:most]]
    return ", ".join(shown) + (f", … ({len(spans) - most} more ranges)" if len(spans) > most else "")


def near(name: str, known: Iterable[str], *, most: int = 3, alike: float = 0.5) -> str:
    """A hint at the names most like one that does not exist; empty where none is.

    Args:
        name: what was asked for.
        known: the names that exist.
        most: names in the hint.
        alike: from 0 to 1, how like it a name must be (`difflib`'s cutoff).
    """
    found = difflib.get_close_matches(name, list(known), n=most, cutoff=alike)
    return f" Did you mean {' or '.join(found)}?" if found else ""


def counted(number: int, noun: str) -> str:
    """`1 day`, `2 days`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def age_text(age: timedelta) -> str:
    """An age as people say it: minutes, hours or days; nothing is younger than now, though a clock may be put back."""
    age = max(age, timedelta())
    hours = age // timedelta(hours=1)
    if age < timedelta(hours=2):
        return f"{age // timedelta(minutes=1)} min"
    return f"{hours} h" if age < timedelta(days=3) else f"{age.days} days"


def program() -> str:
    """How the reader of a hint can call this program."""
    if shutil.which("lakehouse"):
        return "lakehouse"
    called = Path(sys.argv[0])
    return os.path.relpath(called) if called.name == "lakehouse" else "python -m lakehouse.cli"


def short_run(run_id: str) -> str:
    """The beginning of a run's id, as far as people need it; the word of a candidate's build is not cut."""
    return run_id[: len(CANDIDATE_RUN) + 8] if run_id.startswith(CANDIDATE_RUN) else run_id[:8]


def maker_text(run_id: str, code_version: str, *, is_current: bool) -> str:
    """Who made rows, behind a sentence about them: a restore has no run, and a day without rows no code.

    Args:
        run_id: that published them; may be empty.
        code_version: that made them; may be empty.
        is_current: whether that is today's code.
    """
    run = f" by run {short_run(run_id)}" if run_id else ""
    age = "" if is_current else ", older than today's"
    return run + (f", code {code_version}{age}" if code_version else "")
