"""Generated web-shop events: the same every time, day by day alone, and believable."""

import csv
import io
import json
import subprocess
import sys
from collections import Counter, defaultdict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakehouse
from lakehouse.errors import GeneratorError
from lakehouse.sample import generator
from lakehouse.sample.faults import Faults
from lakehouse.sample.generator import LOOK_BACK_DAYS, EventDay, generate_events
from lakehouse.sample.retail import generate_online_retail

START = date(2026, 3, 2)
PROJECT = Path(lakehouse.__file__).parents[1]
FIELDS = "event_id schema_version user_id event_type event_time order_id amount currency payment_method email country"
DAYS = st.dates(date(1971, 1, 1), date(2037, 12, 31))


def read(day: EventDay) -> list[dict[str, Any]]:
    """The day's lines, parsed; amounts stay exact."""
    return [json.loads(line, parse_float=Decimal) for line in day.lines]


def forget() -> None:
    """Drop what the generator remembers between calls."""
    generator._layout.cache_clear()
    generator._cancelled_later.cache_clear()
    generator._home.cache_clear()


@pytest.fixture(scope="module")
def fortnight() -> dict[date, list[dict[str, Any]]]:
    """14 arrival days without faults, 2,000 lines each."""
    days = [START + timedelta(days=number) for number in range(14)]
    return {day: read(generate_events(day, 2000, 42)) for day in days}


@settings(max_examples=25, deadline=None)
@given(day=DAYS, rows=st.integers(0, 200), seed=st.integers(), rate=st.sampled_from([0.0, 0.03]))
def test_a_day_does_not_depend_on_what_was_made_before(day: date, rows: int, seed: int, rate: float) -> None:
    """Made alone, after its neighbours or after itself, a day is the same to the byte, and so is its truth."""
    faults = Faults.all(rate)
    forget()
    alone = generate_events(day, rows, seed, faults)
    for other in (timedelta(days=3), timedelta(days=-1)):
        if generator._FIRST_YEAR <= (day + other).year <= generator._LAST_YEAR:
            generate_events(day + other, rows, seed, faults)
    assert generate_events(day, rows, seed, faults) == alone


def test_another_process_makes_the_same_bytes() -> None:
    """Nothing depends on Python's hash seed or on the state of the process."""
    code = (
        "import hashlib; from datetime import date; from lakehouse.sample.generator import *;"
        "lines = generate_events(date(2026, 3, 2), 500, 9, Faults.all()).lines;"
        "print(hashlib.sha256(b'|'.join(lines)).hexdigest())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PROJECT)
    here = sha256(b"|".join(generate_events(START, 500, 9, Faults.all()).lines)).hexdigest()
    assert other.stdout.strip() == here


def test_seeds_and_days_differ() -> None:
    """Two shops, or two days of one, have no line in common."""
    lines = [
        set(generate_events(day, 300, seed).lines) for seed in (1, 2) for day in (START, START + timedelta(days=1))
    ]
    assert len(set.union(*lines)) == sum(map(len, lines)) == 1200


@pytest.mark.parametrize("rows", [-1, -100])
def test_a_negative_number_of_rows_is_refused(rows: int) -> None:
    """By name and with the number that came."""
    with pytest.raises(GeneratorError, match=rf"expected 0 rows or more, got {rows}"):
        generate_events(START, rows, 1)


@pytest.mark.parametrize("day", [date(1970, 12, 31), date(2038, 1, 1)])
def test_a_day_outside_of_the_range_is_refused(day: date) -> None:
    """The 2038 fault must lie in the future of every arrival day."""
    with pytest.raises(GeneratorError, match="expected a day of 1971 to 2037"):
        generate_events(day, 1, 1)


@pytest.mark.slow
def test_event_ids_are_unique(fortnight: dict[date, list[dict[str, Any]]]) -> None:
    """32 hex digits, never twice over days."""
    ids = [event["event_id"] for events in fortnight.values() for event in events]
    assert len(set(ids)) == len(ids) == 28_000
    assert all(len(key) == 32 and int(key, 16) >= 0 for key in ids)


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 300), rate=st.floats(0, 0.08))
def test_an_id_means_one_content(rows: int, rate: float) -> None:
    """Days made with other numbers of rows or other faults share ids only where they share the whole sound line."""
    plain = {json.loads(line)["event_id"]: line for line in generate_events(START, 300, 42).lines}
    day = generate_events(START, rows, 42, Faults(duplicates=rate, malformed=rate))
    for line in day.lines:
        # Sent again after midnight, an event has its old id and another time: that is what is wrong with it.
        if line.endswith(b"}") and json.loads(line)["event_time"] < "2026-03-03":
            assert plain.get(json.loads(line)["event_id"], line) == line


def test_lines_have_the_sources_format(fortnight: dict[date, list[dict[str, Any]]]) -> None:
    """Eleven fields in order; amounts are JSON numbers with two decimals; times are UTC with microseconds."""
    for line in generate_events(START, 500, 42).lines:
        event = json.loads(line, parse_float=str)
        assert list(event) == FIELDS.split()
        assert event["schema_version"] == 1
        assert event["amount"][-3] == "."
        assert len(event["event_time"]) == len("2026-03-02T00:00:00.000000Z")
        assert datetime.fromisoformat(event["event_time"]).tzinfo == UTC
    for day, events in fortnight.items():
        assert {event["event_time"][:10] for event in events} == {day.isoformat()}
        assert [event["event_time"] for event in events] == sorted(event["event_time"] for event in events)
        assert all((event["amount"] > 0) == (event["event_type"] == "purchase") for event in events)


def test_orders_are_believable(fortnight: dict[date, list[dict[str, Any]]]) -> None:
    """One to five lines with one buyer, about a fifth guests, one currency a country, a few customers buying often."""
    orders = defaultdict(list)
    for events in fortnight.values():
        for event in events:
            if event["event_type"] == "purchase":
                orders[event["order_id"]].append(event)
    sizes = Counter(len(lines) for lines in orders.values())
    assert set(sizes) == {1, 2, 3, 4, 5}
    shared = ("user_id", "currency", "payment_method", "email", "country")
    assert all(len({tuple(line[name] for name in shared) for line in lines}) == 1 for lines in orders.values())
    buyers = Counter(lines[0]["user_id"] for lines in orders.values())
    assert 0.17 < buyers.pop(None) / len(orders) < 0.23
    assert len(buyers) > 2000
    assert sum(count for _, count in buyers.most_common(len(buyers) // 10)) > 0.25 * sum(buyers.values())
    homes = {(lines[0]["country"], lines[0]["currency"]) for lines in orders.values()}
    assert len(homes) == len(dict(homes)) > 5
    by_user = {(lines[0]["user_id"], lines[0]["email"], lines[0]["country"]) for lines in orders.values()}
    assert len({user for user, *_ in by_user if user}) == len([user for user, *_ in by_user if user])
    assert all(email.endswith("@example.com") and (user or "guest") in email for user, email, _ in by_user)


def test_a_day_has_its_hours(fortnight: dict[date, list[dict[str, Any]]]) -> None:
    """The evening is busier than the night."""
    hours = Counter(int(event["event_time"][11:13]) for events in fortnight.values() for event in events)
    assert set(hours) == set(range(24))
    assert hours[20] > 5 * hours[3]


def test_cancellations_name_an_order_placed_before(fortnight: dict[date, list[dict[str, Any]]]) -> None:
    """Each takes back, once, the whole amount of an order placed on the same day or one of the ten before."""
    days = sorted(fortnight)
    placed = defaultdict(list)
    cancelled = []
    for day in days:
        for event in fortnight[day]:
            if event["event_type"] == "purchase":
                placed[event["order_id"]].append(event)
            else:
                cancelled.append(event)
    followed = [event for event in cancelled if f"{days[0]:%Y%m%d}" <= event["order_id"][1:9]]
    assert len(followed) > 200
    lags = Counter[int]()
    for event in followed:
        lines = placed[event["order_id"]]
        assert event["amount"] == -sum(line["amount"] for line in lines)
        assert event["event_time"] > max(line["event_time"] for line in lines)
        assert {event[name] for name in ("user_id", "currency")} == {lines[0][name] for name in ("user_id", "currency")}
        lags[(date.fromisoformat(event["event_time"][:10]) - date.fromisoformat(lines[0]["event_time"][:10])).days] += 1
    assert set(lags) == set(range(LOOK_BACK_DAYS + 1))
    assert len({event["order_id"] for event in cancelled}) == len(cancelled)


def test_about_three_orders_in_a_hundred_are_cancelled(fortnight: dict[date, list[dict[str, Any]]]) -> None:
    """Counted for the first four days, whose cancellations have all arrived by the fourteenth."""
    first = {f"W{day:%Y%m%d}" for day in sorted(fortnight)[:4]}
    orders, cancelled = set[str](), set[str]()
    for events in fortnight.values():
        for event in events:
            if event["order_id"][:9] in first:
                (orders if event["event_type"] == "purchase" else cancelled).add(event["order_id"])
    assert cancelled <= orders
    assert 0.027 < len(cancelled) / len(orders) < 0.033


def test_repeats_are_counted_and_equal_their_originals() -> None:
    """Near, far and re-sent repeats are whole lines that were there before; re-sent ones came on an earlier day."""
    faults = Faults(duplicates=0.2, nulls=0.1)
    days = [generate_events(START + timedelta(days=number), 500, 8, faults) for number in range(LOOK_BACK_DAYS + 1)]
    last = days[-1]
    arrived = {line: day for day in reversed(days) for line in day.lines}
    resent = [line for line in last.lines if arrived[line] is not last]
    own = [line for line in last.lines if arrived[line] is last]
    kinds = {name.partition(".")[2]: count for name, count in last.truth.variants.items() if "duplicates" in name}
    assert sum(kinds.values()) == last.truth.faults["duplicates"] == 100
    assert len(resent) == kinds["resent"] > 10
    assert len(own) - len(set(own)) == kinds["near"] + kinds["far"]
    for line in resent:
        event = json.loads(line)
        happened = date.fromisoformat(event["event_time"][:10])
        assert 1 <= (last.day - happened).days <= LOOK_BACK_DAYS
        assert arrived[line].day == happened == last.truth.good[event["event_id"]]


def test_what_is_sent_again_after_midnight_has_its_old_id_and_a_new_day() -> None:
    """Behind its original in the same file; clocks may differ by a quarter of an hour, so it breaks no rule."""
    day = generate_events(START, 1000, 8, Faults(duplicates=0.3))
    seen: dict[str, dict[str, Any]] = {}
    again = []
    for event in read(day):
        first = seen.setdefault(event["event_id"], event)
        if event["event_time"][:10] != START.isoformat() and event["event_time"] != first["event_time"]:
            again.append(event)
            moment = datetime.fromisoformat(event["event_time"])
            assert timedelta(0) <= moment - datetime(2026, 3, 3, tzinfo=UTC) < timedelta(minutes=10)
            assert event | {"event_time": ""} == first | {"event_time": ""}
            assert day.truth.good[event["event_id"]] == START
    assert len(again) == day.truth.variants["duplicates.midnight"] > 50


def test_shared_orders_are_ids_of_the_retail_system() -> None:
    """Orders of both shops with one id, bought on one day."""
    day = generate_events(START, 400, 8, Faults(shared_orders=0.25))
    sold = {line["InvoiceNo"] for line in csv.DictReader(io.StringIO(generate_online_retail(START, 300, 1)))}
    shared = [event for event in read(day) if event["order_id"] in sold]
    assert len(shared) == day.truth.faults["shared_orders"] == 100
    assert {event["event_id"] for event in shared} <= set(day.truth.good)


def test_far_repeats_lie_in_another_half_of_the_day() -> None:
    """So that they land in another file as soon as there are two."""
    lines = generate_events(START, 1000, 8, Faults(duplicates=0.3)).lines
    first, second = set(lines[:500]), set(lines[500:])
    assert len(first & second) > 50
    assert len(first) < 500


def test_the_truth_is_what_a_reader_finds() -> None:
    """With every fault, over days: the first line of each id wins, the row rules decide, and the truth agrees."""
    expected: dict[str, date] = {}
    seen: dict[str, dict[str, Any]] = {}
    for number in range(12):
        day = generate_events(START + timedelta(days=number), 600, 3, Faults.all())
        expected |= day.truth.good
        for line in day.lines:
            try:
                event = json.loads(line, parse_float=Decimal)
            except ValueError:
                continue
            if isinstance(event, dict) and event.get("event_id"):
                seen.setdefault(event["event_id"], event | {"arrived": day.day})
    assert {key: date.fromisoformat(e["event_time"][:10]) for key, e in seen.items() if passes(e)} == expected


def passes(event: dict[str, Any]) -> bool:
    """The row rules, in plain Python."""
    amount, moment = event.get("amount"), event.get("event_time")
    if not isinstance(amount, Decimal) or not isinstance(moment, str):
        return False
    latest = datetime.combine(event["arrived"], datetime.min.time(), UTC) + timedelta(days=1, minutes=15)
    signs = {"purchase": amount > 0, "cancellation": amount < 0}
    known = ("GBP", "EUR", "USD", "PLN", "SEK", "CHF", "DKK", "JPY")
    return (
        datetime.fromisoformat(moment) <= latest
        and signs.get(event.get("event_type", ""), False)
        and event.get("currency") in known
        and abs(amount) <= 1_000_000
    )


def test_days_of_a_few_lines_can_be_made() -> None:
    """Where the cancellations that fall due would leave orders without a line, some never arrive."""
    for rows in range(13):
        for number in range(120):
            assert len(generate_events(START + timedelta(days=number), rows, 6).lines) == rows


@pytest.mark.slow
def test_a_large_day_has_all_its_lines() -> None:
    """100,000 lines with every fault, nothing remembered: about 1.5 s on a quiet machine."""
    forget()
    assert len(generate_events(START, 100_000, 77, Faults.all()).lines) == 100_000


@settings(max_examples=20, deadline=None)
@given(day=DAYS.filter(lambda day: day.year > 1971), seed=st.integers(), lag=st.integers(0, 5))
def test_no_event_is_dated_before_the_shop_opened(day: date, seed: int, lag: int) -> None:
    """Without it, a demo's late and re-sent events would belong to days before its first, which nobody builds."""
    opened = day - timedelta(days=lag)
    faults = Faults(late=0.2, duplicates=0.2)
    made = generate_events(day, 150, seed, faults, earliest=opened)
    dates = [json.loads(line)["event_time"][:10] for line in made.lines]
    assert min(dates) >= str(opened)
    # An event that is sent again after midnight has a second date.
    assert set(made.truth.good.values()) <= {date.fromisoformat(each) for each in dates}
    assert len(made.lines) == 150
