"""Generated producers and their clocks."""

from __future__ import annotations

import gzip
import json
from datetime import date
from pathlib import Path

import pytest

from lakehouse.bronze.events import events
from lakehouse.errors import GeneratorError
from lakehouse.sample.clocks import Producer, parse_producers, redated
from lakehouse.sample.events import land_events

DAY = date(2026, 3, 2)
LINE = b'{"event_id":"e","event_time":"2026-03-02T23:50:00.000000Z","amount":1.50}'


@pytest.mark.parametrize(
    ("clock", "written"),
    [
        ("", "2026-03-02T23:50:00.000000Z"),
        ("+20m", "2026-03-03T00:10:00.000000Z"),
        ("-3h", "2026-03-02T20:50:00.000000Z"),
        ("+1d", "2026-03-03T23:50:00.000000Z"),
        ("epoch", "1970-01-01T00:00:00.000000Z"),
        ("2038", "2038-01-19T03:14:08.000000Z"),
        ("seconds", 1772495400),
        ("milliseconds", 1772495400000),
        ("mixed", "1970-01-21T12:21:35.400000Z"),
    ],
)
def test_each_clock(clock: str, written: str | int) -> None:
    """A clock that wrote something else would test nothing of what it is named after."""
    assert json.loads(redated(LINE, clock)) == {"event_id": "e", "event_time": written, "amount": 1.5}


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"\x00\xff", b'{"event_time":"2026-99-99T00:00:00Z"}', b'{"event_time":1}']
)
def test_a_line_without_a_time_stays(line: bytes) -> None:
    """Broken lines are made by faults; a clock must neither fix them nor fail on them."""
    assert redated(line, "+20m") == line


def test_producers_are_read() -> None:
    """Mistakes are told before anything lands."""
    assert parse_producers("web, app=+20m") == (Producer("web"), Producer("app", "+20m"))
    assert parse_producers("") == ()
    for text in ("part", "a/b", "web,web", "web=fast", "=+1d", "web=+20"):
        with pytest.raises(GeneratorError, match="producer"):
            parse_producers(text)


def test_producers_share_a_day_in_files_of_their_own(tmp_path: Path) -> None:
    """Together they hold the day's lines, once each; the contract finds each producer by its file's name."""
    plain = tmp_path / "plain"
    land_events(plain, DAY, 1, 90, seed=3)
    (whole,) = (plain / "landing/events" / str(DAY)).iterdir()
    expected = {json.loads(line)["event_id"] for line in gzip.decompress(whole.read_bytes()).splitlines()}
    land_events(tmp_path, DAY, 1, 90, seed=3)
    who = parse_producers("web,app=+20m,till=epoch")
    landed = land_events(tmp_path, DAY, 1, 90, seed=3, files_per_day=2, producers=who)
    assert {each.outcome for each in landed} == {"new", "removed"}
    files = sorted((tmp_path / "landing/events" / str(DAY)).iterdir())
    assert len(files) == 6
    found: dict[str, list[dict[str, str]]] = {}
    assert events.landing is not None
    for file in files:
        lines = gzip.decompress(file.read_bytes()).splitlines()
        found.setdefault(events.landing.producer_of(file.as_posix()), []).extend(map(json.loads, lines))
    assert found.keys() == {"events/web", "events/app", "events/till"}
    assert sorted(each["event_id"] for lines in found.values() for each in lines) == sorted(expected)
    assert {each["event_time"][:4] for each in found["events/till"]} == {"1970"}
    assert all(each.outcome == "unchanged" for each in land_events(tmp_path, DAY, 1, 90, 3, None, 2, producers=who))


@pytest.mark.parametrize(
    ("path", "producer"),
    [
        ("landing/events/2026-03-02/part-0000.jsonl.gz", "events"),
        ("landing/events/2026-03-02/web-shop-0001.jsonl", "events/web-shop"),
        ("web.jsonl.gz", "events/web"),
        ("web-shop-eu.jsonl", "events/web-shop-eu"),
        ("jane@example.com-0001.jsonl", "events/(other)"),
        ("0171 1234567.jsonl", "events/(other)"),
        ("\udcff-1.jsonl", "events/(other)"),
        ("a" * 200 + ".jsonl", "events/(other)"),
    ],
)
def test_a_files_name_names_its_producer(path: str, producer: str) -> None:
    """Names come from outside and are shown in messages and figures: what is no name is not told."""
    assert events.landing is not None
    assert events.landing.producer_of(path) == producer
