"""Made-up events of a web shop as landed files, with faults and clocks of their producers on request."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path

from lakehouse import store
from lakehouse.errors import GeneratorError
from lakehouse.sample.clocks import Producer, parse_producers, redated
from lakehouse.sample.days import sample_days
from lakehouse.sample.faults import Faults
from lakehouse.sample.generator import generate_events
from lakehouse.sources.landing import Landed, gzipped, put

_PART_FILE = re.compile(r"(.+)-\d{4,}\.jsonl(?:\.gz)?", re.ASCII)


def sample_events(
    root: Path,
    start: date,
    days: int,
    rows: int,
    seed: int,
    *,
    faults: str = "none",
    files: str = "1",
    producers: str = "",
) -> list[Landed]:
    """Land generated events; what varies in them is told by texts, as on the command line.

    Args:
        root: Lakehouse root.
        start: First arrival day.
        days: Number of days, 1 or more.
        rows: Lines a day, over all its files.
        seed: Picks the shop; see `generate_events`.
        faults: A preset, rates, or both: `none`, `default,late=0.1`.
        files: Files a day, of each producer.
        producers: Who shares a day's lines, and how wrong their clocks are: `web,app=+20m`; empty: nobody is named.

    Raises:
        GeneratorError: A number, a day or a text is out of bounds.
    """  # fmt: skip
    who = parse_producers(producers)
    number = int(files) if files.isdecimal() else 0
    return land_events(root, start, days, rows, seed, Faults.parse(faults), number, producers=who)


def land_events(  # noqa: PLR0913 - what generated data can vary in
    root: Path,
    start: date,
    days: int,
    rows: int,
    seed: int,
    faults: Faults | None = None,
    files_per_day: int = 1,
    compress: bool = True,
    *,
    producers: Sequence[Producer] = (),
    earliest: date | None = None,
) -> list[Landed]:
    """Land generated web-shop events, `rows` lines for each of `days` arrival days, by day and file.

    A day's parts from an earlier landing that this one does not have are removed once the new ones are there; files of
    producers that are not named here stay.

    Args:
        root: Lakehouse root.
        start: First arrival day.
        days: Number of days, 1 or more.
        rows: Lines a day, over all its files.
        seed: Picks the shop; see `generate_events`.
        faults: Share of faulty lines, none by default.
        files_per_day: Files that share a day's lines evenly, earlier lines first.
        compress: Write `.jsonl.gz` instead of `.jsonl`.
        producers: Who shares a day's lines, each with files of its own and by its own clock; none: nobody is named.
        earliest: No event is dated before this day.

    Raises:
        GeneratorError: A number or a day is out of bounds.
    """
    if files_per_day < 1:
        raise GeneratorError(f"events: expected 1 file a day or more, got {files_per_day}")
    landed: list[Landed] = []
    for day in sample_days(start, days):
        folder = root / "landing" / "events" / day.isoformat()
        lines = generate_events(day, rows, seed, faults, earliest=earliest).lines
        parts: set[str] = set()
        for prefix, share in _shares(lines, producers):
            ends = [len(share) * part // files_per_day for part in range(files_per_day + 1)]
            for part, (first, last) in enumerate(pairwise(ends)):
                content = b"".join(line + b"\n" for line in share[first:last])
                name = f"{prefix}-{part:04d}.jsonl" + ".gz" * compress
                parts.add(name)
                landed.append(put("events", day, folder / name, gzipped(content) if compress else content))
        landed += _without_others(folder, day, parts, {"part", *(each.name for each in producers)})
    return landed


def _without_others(folder: Path, day: date, parts: Collection[str], ours: Collection[str]) -> Iterator[Landed]:
    """Remove what an earlier landing of the day by the same producers left, and this one does not have."""
    for name in store.names(folder):
        if name not in parts and (found := _PART_FILE.fullmatch(name)) and found[1] in ours:
            store.delete(folder / name)
            yield Landed("events", day, folder / name, 0, "removed")


def _shares(lines: Sequence[bytes], producers: Sequence[Producer]) -> Iterator[tuple[str, Sequence[bytes]]]:
    """The lines of each producer, in turns so that each has some of all hours, dated by its clock."""
    if not producers:
        yield "part", lines
    for number, each in enumerate(producers):
        yield each.name, [redated(line, each.clock) for line in lines[number :: len(producers)]]
