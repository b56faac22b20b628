"""Hostile files through the real bronze and silver tables: every line is published or quarantined with a reason.

All lines of a run go through one build each of bronze and silver, among sound lines that must come out unharmed.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lakehouse.build.build import build
from lakehouse.build.result import PUBLISHED
from lakehouse.read.lake import Lake
from lakehouse.sources.probe import MOST_LINES
from lakehouse.transforms.addresses import without_addresses
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import having, rows_of
from lakehouse_tests.fixtures.shop.bronze.events import events
from lakehouse_tests.fixtures.shop.bronze.online_retail import COLUMNS as RETAIL
from lakehouse_tests.fixtures.shop.bronze.online_retail import online_retail
from lakehouse_tests.fixtures.shop.silver.transactions import transactions
from lakehouse_tests.fixtures.tally import tally
from lakehouse_tests.sources import hostile

pytestmark = [pytest.mark.crash, pytest.mark.slow]
DAY = date(2026, 3, 2)
LINES = 600
MOST_COMPARED = 10_000  # bytes
SAID = "{lines} lines in {files} files: {published} published, {quarantined} quarantined with a reason, {lost} lost"
ANY = {"max_quarantined": 1.0, "max_null_rate": {}, "volume": None, "anomalies": None}


class Landed(NamedTuple):
    """What was put into the landing zone: lines by file and line number, and the amounts of the sound ones by id."""

    lines: dict[tuple[str, int], bytes]
    sound: dict[str, Decimal]
    days: list[date]


def shop(lake: LakeFactory) -> Lake:
    """The real tables, with bounds that let any share of bad rows pass."""
    return lake(*[having(each, **ANY) for each in (events, online_retail, transactions)])


def land(root: Path, chance: random.Random, number: int) -> Landed:
    """Odd names, odd lines, and a sound line after every few."""
    lines: dict[tuple[str, int], bytes] = {}
    sound: dict[str, Decimal] = {}

    def put(path: Path, content: list[bytes], first: int = 1) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        data = b"\n".join(content) + b"\n"
        path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
        name = path.relative_to(root).as_posix()
        lines.update({(name, n): line for n, line in enumerate(content, 1) if n >= first})

    def among(content: list[bytes], day: date) -> list[bytes]:
        mixed = []
        for line in content:
            mixed.append(line)
            if chance.random() < 0.2:
                key = f"sound-{len(sound)}"
                sound[key] = Decimal(len(sound) + 1) / 100
                mixed.append(hostile.sound_line(key, day, len(sound)))
        return mixed

    folder = root / "landing" / "events" / DAY.isoformat()
    made = [hostile.json_object(chance, DAY) for _ in range(number)]
    made += [hostile.mutated(chance, chance.choice(made)) for _ in range(number)]
    chance.shuffle(made)
    for n, name in enumerate(hostile.NAMES):
        put(folder / f"{name}.jsonl{'.gz' * (n % 2)}", among(made[n :: len(hostile.NAMES)], DAY))
    put(folder / "odd.jsonl", among(hostile.odd_json_lines(), DAY))
    put(folder / "huge.jsonl.gz", among(hostile.huge_json_lines(), DAY))
    put(folder / "windows.jsonl", [line + b"\r" for line in among(made[:20], DAY)])
    days = [DAY + timedelta(days=n) for n in range(3)]
    for day in days:
        rows = [hostile.csv_line(chance, day) for _ in range(number // 3)]
        path = root / "landing" / "online_retail" / f"{day}.csv.gz"
        put(path, [",".join(RETAIL).encode(), *rows, *[hostile.mutated(chance, row) for row in rows]], first=2)
    return Landed(lines, sound, days)


def expected_fields(line: bytes) -> dict[str, Any] | None:
    """What Python's parser makes of a line, None where it refuses it.

    Raises:
        RecursionError: where it is nested too deeply for that parser.
    """

    def refuse(text: str) -> Any:
        raise ValueError(text)

    text = line.decode(errors="replace").removesuffix("\r").lstrip("\ufeff")
    try:
        found = json.loads(
            text, parse_constant=refuse, parse_int=Number, parse_float=Number, object_pairs_hook=Pairs
        )  # fmt: skip
    except ValueError:
        return None
    # A field that is named twice is refused on the line itself; what is nested is kept as it is.
    return dict(found) if isinstance(found, Pairs) and len(dict(found)) == len(found) else None


class Pairs(list[tuple[str, Any]]):
    """An object as it was written."""


TOKEN = re.compile(r"[0-9a-f]{8}:[0-9a-f]{64}")


class Number(str):
    """A number as it was written."""

    __slots__ = ()


def differences(landed: Landed, published: dict[Any, Any], refused: dict[Any, Any]) -> list[Any]:
    """Lines of which the reader makes something else than Python's parser does."""
    found: list[Any] = []
    for place, line in landed.lines.items():
        if not place[0].startswith("landing/events") or len(line) > MOST_COMPARED:
            continue
        try:
            wanted = expected_fields(line)
        except RecursionError:
            continue
        if (wanted is None) != (place in refused):
            found.append((line[:200], refused.get(place, {}).get("_error")))
        for name in set(wanted or ()) & set(events.columns):
            value = (wanted or {})[name]
            if not isinstance(value, str) or not value.isascii():
                continue
            kept = published[place][name]
            personal = without_addresses(value) != value
            if not (TOKEN.fullmatch(kept) if personal else kept == value):
                found.append((name, value[:100], published[place][name][:100]))
    return found


def test_every_line_is_published_or_quarantined(
    lake: LakeFactory, tmp_path: Path, seed: int, cases: Callable[[int], int]
) -> None:
    """Without it, one line of a broken producer could stop a day, vanish, or take its neighbours with it."""
    made = shop(lake)
    root = made.settings.root
    landed = land(root, random.Random(seed), cases(LINES))
    around = sorted(tmp_path.iterdir())
    for table in made.tables.values():
        result = build(made, table, landed.days, run_id="fuzz")
        assert result.with_status(PUBLISHED) == landed.days, [each.reason for each in result.days.values()]
    found: Counter[tuple[str, int]] = Counter()
    refused = {}
    published = {}
    for table in (events, online_retail):
        for row in rows_of(made.path(table.id)):
            found[row["_source_file"], row["_source_row"]] += 1
            published[row["_source_file"], row["_source_row"]] = row
        for row in rows_of(made.path(table.quarantine_id)):
            found[row["_source_file"], row["_source_row"]] += 1
            refused[row["_source_file"], row["_source_row"]] = row
            assert row["_failed_rules"], row
            assert row["_error"], row
    lost = set(landed.lines) - set(found)
    tally(
        "hostile input", SAID, lines=len(landed.lines), files=len({name for name, _ in landed.lines}),
        published=len(published), quarantined=len(refused), lost=len(lost),
    )  # fmt: skip
    assert not lost
    assert found == dict.fromkeys(landed.lines, 1)

    differing = differences(landed, published, refused)
    assert not differing[:20], len(differing)

    silver = rows_of(made.path(transactions.id))
    sound = {row["event_id"]: row["amount"] for row in silver if row["event_id"].startswith("sound-")}
    assert sound == landed.sound
    for row in rows_of(made.path(transactions.quarantine_id)):
        assert row["_failed_rules"]
    assert sorted(tmp_path.iterdir()) == around, "something was written outside the root"


def test_files_that_must_not_be_read_are_named_and_harm_no_other(lake: LakeFactory, tmp_path: Path) -> None:
    """Without it, a link could bring a file of the machine into the lake, and one odd file end the run of all others."""
    made = lake(having(events, **ANY))
    root = made.settings.root
    days = [DAY + timedelta(days=n) for n in range(6)]
    folders = [root / "landing" / "events" / day.isoformat() for day in days]
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.jsonl").write_bytes(hostile.sound_line("canary-of-the-machine", DAY, 1) + b"\n")
    for folder in (*folders[:4], folders[5]):
        folder.mkdir(parents=True)
        (folder / "a.jsonl").write_bytes(hostile.sound_line(f"sound-{folder.name}", date.fromisoformat(folder.name), 1))
    (folders[1] / "link.jsonl").symlink_to(outside / "secret.jsonl")
    Path(os.fsdecode(bytes(folders[2]) + b"/\xff\xfe.jsonl")).write_bytes(b"{}\n")
    (folders[3] / "bomb.jsonl.gz").write_bytes(gzip.compress(b"\n" * (MOST_LINES + 1)))
    folders[4].symlink_to(outside)
    # These are no files, or lead to one that may be read.
    (folders[5] / "circle.jsonl").symlink_to(folders[5] / "circle.jsonl")
    (folders[5] / "nowhere.jsonl").symlink_to(tmp_path / "nowhere")
    (folders[5] / "folder.jsonl").mkdir()
    os.mkfifo(folders[5] / "pipe.jsonl")
    (folders[5] / "inside.jsonl").symlink_to(folders[0] / "a.jsonl")
    result = build(made, events, days, run_id="files")
    reasons = [result.days[day].reason for day in days]
    for number, words in {
        1: "link.jsonl is reached by a link that leads out of the landing zone",
        2: "\ufffd\ufffd.jsonl has a name that is not UTF-8",
        3: f"bomb.jsonl.gz has {MOST_LINES + 1} lines, at most {MOST_LINES}; split it",
        4: "secret.jsonl is reached by a link that leads out of the landing zone",
    }.items():
        assert words in reasons[number], number
    assert result.with_status(PUBLISHED) == [days[0], days[5]], reasons
    assert sorted(row["event_id"] for row in rows_of(made.path(events.id))) == [f"sound-{days[0]}"] * 2 + [
        f"sound-{days[5]}"
    ]
    stored = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in stored if b"canary-of-the-machine" in path.read_bytes()]
