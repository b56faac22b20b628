"""Events for a topic: those of the exports, whatever happens to them on the way, and the same for the same seed."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse.errors import GeneratorError, SourceError
from lakehouse.sample.disorder import (
    APART,
    Disorder,
    Message,
    Tally,
    disordered,
    message_of,
    parse_duration,
    partition_of,
)
from lakehouse.sample.faults import Faults
from lakehouse.sample.retail import generate_online_retail
from lakehouse.sample.web_events import made_up_lines, retail_event, retail_lines
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.sample import oracle

DAY = date(2026, 3, 2)
SHARES = st.sampled_from([0.0, 0.02, 0.5, 1.0])
DISORDERS = st.builds(
    Disorder,
    lateness=SHARES, late_by=st.sampled_from([timedelta(minutes=1), timedelta(hours=6), timedelta(days=3)]),
    shuffle=st.sampled_from([0, 2, 50]), duplicates=SHARES, malformed=SHARES, skew=SHARES,
)  # fmt: skip


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of three days of exports, one of them not packed, and of what is none."""
    folder = tmp_path_factory.mktemp("exports")
    for number in range(3):
        day = DAY + timedelta(days=number)
        content = generate_online_retail(day, 200, 7).encode()
        if number:
            (folder / f"{day}.csv.gz").write_bytes(gzip.compress(content))
        else:
            (folder / f"{day}.csv").write_bytes(content)
    (folder / "notes.txt").write_text("no export")
    return folder


@lru_cache
def made(rows: int, faults: Faults | None = None) -> list[Message]:
    """Messages of made-up events."""
    return [message_of(line) for line in islice(made_up_lines(DAY, 100, 3, faults), rows)]


def test_an_export_is_the_same_transactions_by_either_way(exports: Path, tmp_path: Path) -> None:
    """Without it, a line that comes by file and by topic would be two transactions, or one of another amount."""
    files = sorted(exports.glob("*.csv*"))
    by_file = [oracle._online_retail_transaction(each.values) for each in oracle.read_online_retail(files[1:])]
    day = tmp_path / str(DAY)
    day.mkdir()
    (day / "part-0000.jsonl").write_bytes(b"\n".join(retail_lines(exports, DAY + timedelta(days=1))))
    rows, malformed = oracle.read_events([day / "part-0000.jsonl"])
    assert not malformed
    by_topic = [oracle._events_transaction(each.values, None) for each in rows]
    told = ("event_id", "order_id", "user_id", "event_type", "event_time", "amount", "currency", "country")
    assert [[getattr(each, name) for name in told] for each in by_topic] == [
        [getattr(each, name) for name in told] for each in by_file
    ]
    assert {each.event_type for each in by_topic} == {"purchase", "cancellation", "adjustment"}


def test_lines_come_by_day_whatever_else_is_in_the_folder(exports: Path) -> None:
    days = [json.loads(line)["event_time"][:10] for line in retail_lines(exports)]
    assert Counter(days) == {str(DAY + timedelta(days=number)): 200 for number in range(3)}
    assert days == sorted(days)
    later = next(retail_lines(exports, shift=31))
    first = next(retail_lines(exports))
    assert json.loads(later)["event_time"][:10] == "2026-04-02"
    assert json.loads(later)["event_id"] == json.loads(first)["event_id"]
    with pytest.raises(SourceError, match=r"no file of these days.*2011-01-04\.csv\.gz"):
        next(retail_lines(exports, DAY - timedelta(days=9), DAY - timedelta(days=1)))
    (exports / "2026-04-01.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SourceError, match=r"2026-04-01\.csv has columns"):
        next(retail_lines(exports, date(2026, 4, 1)))


@pytest.mark.parametrize(
    ("changed", "name", "wanted"),
    [
        ({"Quantity": "3", "UnitPrice": "0.335"}, "amount", 1.01),
        ({"Quantity": "-3", "UnitPrice": "0.335"}, "amount", -1.01),
        ({"Quantity": "1.5"}, "amount", None),
        ({"UnitPrice": "NaN"}, "amount", None),
        ({"UnitPrice": ""}, "amount", None),
        ({"CustomerID": ""}, "user_id", None),
        ({"InvoiceNo": "C1"}, "event_type", "cancellation"),
        ({"InvoiceNo": "A1"}, "event_type", "adjustment"),
        ({"InvoiceDate": "yesterday"}, "event_time", "yesterday"),
        ({"Country": 'Côte "d"'}, "country", 'Côte "d"'),
    ],
)
def test_odd_lines_are_events_too(changed: dict[str, str], name: str, wanted: object) -> None:
    row = {
        "InvoiceNo": "1", "StockCode": "2", "Description": "", "Quantity": "1", "InvoiceDate": "2011-01-04 10:00:00",
        "UnitPrice": "2.5", "CustomerID": "17850.0", "Country": "EIRE",
    }  # fmt: skip
    assert json.loads(retail_event(row | changed))[name] == wanted


@settings(max_examples=30)
@given(disorder=DISORDERS, seed=st.integers(0, 5))
def test_every_event_is_sent_and_each_that_is_added_is_counted(disorder: Disorder, seed: int) -> None:
    """Without it, events would be lost before the topic, and a comparison with the tables would prove nothing."""
    events = made(100)
    sent = list(disordered(events, disorder, seed))
    assert sent == list(disordered(events, disorder, seed))
    tally = Tally()
    for each in sent:
        tally.count(each, skewed=False)
    told = tally.sent
    lines = Counter(each.value for each in sent if not each.malformed)
    assert lines.keys() == {each.value for each in events}
    assert told.messages == len(sent) == told.events + told.duplicates + told.malformed
    assert told.events == len(events)
    assert told.duplicates == sum(lines.values()) - len(lines)
    assert not [each for each in sent if each.malformed != message_of(each.value).malformed]
    assert not told.late or disorder.lateness
    for share, number in ((disorder.duplicates, told.duplicates), (disorder.malformed, told.malformed)):
        assert number == 100 if share == 1.0 else number <= 100 * (share > 0)


def test_faults_of_made_up_events_are_counted_as_what_they_are() -> None:
    tally = Tally()
    for each in made(1000, Faults.parse("malformed=0.1,nulls=0.1,duplicates=0.1")):
        tally.count(each, skewed=False)
    assert tally.sent.messages == 1000
    assert tally.sent.malformed == 100
    assert tally.sent.nameless > 0
    assert tally.sent.duplicates > 50


def test_late_ones_come_after_later_events_and_not_later_than_told() -> None:
    events = made(2000)
    by = timedelta(hours=2)
    gap = max(b.moment - a.moment for a, b in pairwise(events))
    newest, late = 0.0, 0
    for each in disordered(events, Disorder(lateness=0.1, late_by=by), 1):
        assert each.late == (each.moment < newest)
        late += each.late
        # It is sent after the first event past its time: so it can be a little more.
        assert newest - each.moment <= by.total_seconds() + gap
        newest = max(newest, each.moment)
    assert 150 < late < 250


@pytest.mark.parametrize("disorder", [Disorder(0.1), Disorder(shuffle=50), Disorder(duplicates=0.5, malformed=0.5)])
def test_what_is_sent_is_not_read_long_before(disorder: Disorder) -> None:
    """Without it, a year of exports would be in memory before the first message is sent."""
    read = 0

    def lines() -> Iterator[bytes]:
        nonlocal read
        for read, line in enumerate(made_up_lines(DAY, 1000, 3)):  # noqa: B007 - told outside
            yield line

    list(islice(disordered(map(message_of, lines()), disorder, 1), 300))
    assert read <= 400 + APART


def test_a_key_has_one_partition_and_a_skew_takes_keys_to_the_first() -> None:
    found: dict[float, Counter[int]] = defaultdict(Counter)
    places: dict[tuple[float, bytes | None], set[int]] = defaultdict(set)
    events = made(3000)
    for skew in (0.0, 0.5, 1.0):
        for each in events:
            partition, skewed = partition_of(each, 4, skew)
            assert not skewed or (skew > 0 and partition == 0)
            found[skew][partition] += 1
            places[skew, each.key].add(partition)
    assert all(len(each) == 1 for each in places.values())
    assert len(found[0.0]) == 4
    assert found[1.0] == {0: 3000}
    assert found[0.0][0] < found[0.5][0] < 3000


def test_bounds_are_told() -> None:
    for wrong in ({"lateness": 1.5}, {"skew": -0.1}, {"shuffle": -1}):
        with pytest.raises(GeneratorError, match=next(iter(wrong))):
            Disorder(**wrong)
    assert parse_duration("6h") == timedelta(hours=6)
    with pytest.raises(GeneratorError, match="90s, 15m, 6h or 3d"):
        parse_duration("6 hours")


def produce(kafka: Kafka, topic: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`lakehouse kafka produce` to the broker of the tests."""
    return subprocess.run(
        [sys.executable, "-m", "lakehouse.cli", "kafka", "produce", "--topic", topic, *arguments],
        env=os.environ | {"LAKEHOUSE_ROOT": str(kafka.root), "LAKEHOUSE_TABLES": "lakehouse"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_the_same_seed_sends_the_same_to_each_partition(kafka: Kafka, exports: Path) -> None:
    """Without it, no two runs of a stream could be compared."""
    wrong = ("--lateness", "0.1", "--shuffle", "20", "--duplicates", "0.1", "--malformed", "0.05", "--skew", "0.3")
    options = ("--source", str(exports), "--to", "2026-03-04", "--partitions", "3", "--seed", "5", *wrong, "--json")
    first, again = "same-seed", "same-seed-again"
    done = [produce(kafka, topic, *options) for topic in (first, again)]
    assert [each.returncode for each in done] == [0, 0], done[0].stderr
    told: list[dict[str, Any]] = [json.loads(each.stdout) for each in done]
    assert {**told[0], "topic": again} == told[1]
    stored = kafka.stored(first)
    assert [(each.partition, each.key, each.value) for each in stored] == [
        (each.partition, each.key, each.value) for each in kafka.stored(again)
    ]
    assert len(stored) == told[0]["messages"]
    names = Counter(event.event for each in stored if not (event := message_of(each.value or b"")).malformed)
    assert (
        len(names)
        == told[0]["events"]
        == len({json.loads(line)["event_id"] for line in retail_lines(exports, None, DAY + timedelta(days=2))})
    )
    assert sum(names.values()) - len(names) == told[0]["duplicates"]
    assert len({each.partition for each in stored}) == 3
    told_wrong = produce(kafka, first, "--speed", "quickly")
    assert (told_wrong.returncode, "such as 1000/s" in told_wrong.stderr) == (2, True)
    told_wrong = produce(kafka, first, "--up-to-now", *options)
    assert (told_wrong.returncode, "moved by --shift" in told_wrong.stderr) == (2, True)


@pytest.mark.slow
def test_made_up_events_can_be_of_the_days_up_to_now(kafka: Kafka) -> None:
    """Sent as if of the whole day that is on, most of them would be ahead of their arrival, and set aside."""
    began = datetime.now(UTC)
    done = produce(kafka, "up-to-now", "--from", "2011-03-01", "--rows", "40", "--count", "120", "--up-to-now")
    assert done.returncode == 0, done.stderr
    events = [json.loads(each.value or b"") for each in kafka.stored("up-to-now")]
    times = sorted(datetime.fromisoformat(each["event_time"]) for each in events)
    assert len(times) == 120
    assert times[-1] < datetime.now(UTC)
    assert began - times[0] < timedelta(days=3)
    assert times[-1] - times[0] > timedelta(days=2)
    plain = [json.loads(line) for line in islice(made_up_lines(date(2011, 3, 1), 40, 7), 120)]
    assert {each["event_id"] for each in events} == {each["event_id"] for each in plain}
