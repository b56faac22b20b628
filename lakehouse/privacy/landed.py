"""A person taken out of the landing zone, from which everything else can be built again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from lakehouse.contracts import Table
from lakehouse.delta.failpoints import failpoint
from lakehouse.sources.landing import content_of, landing_files, rewrite
from lakehouse.sources.people import Person
from lakehouse.sources.people_in_lines import Lines


@dataclass(frozen=True)
class LandedTraces:
    """What the landing zone holds of a person: files, lines to take out, lines to edit, and days by bronze table."""

    files: int
    lines: int
    edited: int
    days: Mapping[str, set[date]]


def clean_landing(root: Path, tables: Mapping[str, Table], person: Person, *, dry_run: bool = False) -> LandedTraces:
    """Take the person out of every landed file, each in one step; a file that cannot be read is left as it is.

    Args:
        root: of the lakehouse.
        tables: contracts by name.
        person: who.
        dry_run: only count.

    Raises:
        SourceError: a file was landed again meanwhile.
    """
    files = gone = edited = 0
    days: dict[str, set[date]] = {}
    for name, table in tables.items():
        if table.landing is None:
            continue
        lines = Lines(table.landing, table.privacy.person)
        for file in landing_files(root, table.landing):
            # What cannot be unpacked cannot be edited line by line; the scan at the end reads it as bytes and names it.
            content = content_of(file.path)
            if content is None:
                continue
            left, out, changed = lines.without(content, person)
            if not out and not changed:
                continue
            files, gone, edited = files + 1, gone + out, edited + changed
            days.setdefault(name, set()).add(file.arrival_date)
            if not dry_run:
                # Killed before it: the file names the person still. After it: it does not. Either way the next call
                # goes on.
                failpoint(name, "before-landing-rewrite")
                rewrite(file, left)
                failpoint(name, "after-landing-rewrite")
    return LandedTraces(files, gone, edited, days)
