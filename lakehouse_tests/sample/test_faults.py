"""Fault rates as people write them, and what each fault does to a line."""

import json
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.errors import GeneratorError, LakehouseError
from lakehouse.sample.faults import Faults
from lakehouse.sample.generator import EventDay, generate_events

DAY = date(2026, 3, 2)
END_OF_DAY = datetime(2026, 3, 3, tzinfo=UTC)


def parsed(line: bytes) -> Any:
    """The line's JSON value, or None where it has none. Numbers with a point stay exact."""
    try:
        return json.loads(line, parse_float=Decimal)
    except ValueError:
        return None


def only(fault: str, rows: int = 400) -> tuple[EventDay, list[Any], list[Any]]:
    """A day with one fault in a quarter of its lines: the day, its faulty lines, and its other lines, parsed."""
    day = generate_events(DAY, rows, 5, Faults(**{fault: 0.25}))
    clean = set(generate_events(DAY, rows, 5).lines)
    return (
        day,
        [parsed(line) for line in day.lines if line not in clean],
        [parsed(line) for line in day.lines if line in clean],
    )


def test_presets_and_rates_are_read() -> None:
    """A preset may come first; rates after it change it; nothing at all means no faults."""
    assert Faults.parse("") == Faults.parse("none") == Faults()
    assert Faults.parse("default") == Faults.default()
    assert Faults.parse("all") == Faults.all()
    assert Faults.parse("duplicates=0.01,late=0.02") == Faults(duplicates=0.01, late=0.02)
    assert Faults.parse(" default , late = 0 ").late == 0
    assert Faults.parse("default,late=0").duplicates == Faults.default().duplicates


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("dupes=0.1", "duplicates, nulls"),
        ("late", "fault late: expected a rate"),
        ("late=many", "got 'many'"),
        ("late=1.5", "got 1.5"),
        ("late=-0.1", "got -0.1"),
        ("late=nan", "got nan"),
        ("late=0.1,default", "got 'default'"),
        ("late=0.6,nulls=0.6", "at most 1 in all, got 1.2"),
    ],
)
def test_wrong_rates_are_refused_by_name(text: str, told: str) -> None:
    """The message says which fault, what was expected and what came."""
    with pytest.raises(GeneratorError, match=told):
        Faults.parse(text)


def test_a_refusal_is_one_of_the_projects_errors() -> None:
    """So the command line can tell it from a crash, and a caller that knows only Python can too."""
    assert issubclass(GeneratorError, LakehouseError)
    assert issubclass(GeneratorError, ValueError)


@pytest.mark.parametrize(
    "fault", [name for name in Faults.names() if name not in ("duplicates", "positive_cancellations")]
)
def test_the_rate_is_met_exactly(fault: str) -> None:
    """A quarter of 400 lines is 100 lines, all of this kind and none of another, in a day that is no longer for it."""
    day, faulty, _ = only(fault)
    assert len(day.lines) == 400
    assert len(faulty) == 100
    assert day.truth.faults == dict.fromkeys(Faults.names(), 0) | {fault: 100}
    assert sum(day.truth.variants.values()) == 100


def test_nulls_are_null_or_absent() -> None:
    """Exactly one field of each faulty line has no value; losing a user, a payment method or an e-mail is harmless."""
    day, faulty, others = only("nulls")
    fields = list(others[0])
    lost = Counter[str]()
    for event in faulty:
        gone = [name for name in fields if event.get(name) is None]
        name = next(name for name in [*[n for n in gone if n != "user_id"], *gone])
        assert set(gone) <= {name, "user_id"}
        lost[name] += 1
    assert {name: lost[name.removeprefix("nulls.")] for name in day.truth.variants} == day.truth.variants
    harmless = lost["user_id"] + lost["payment_method"] + lost["email"]
    assert len(day.truth.good) == 300 + harmless
    assert any("amount" in e and e["amount"] is None for e in faulty)
    assert any("amount" not in e for e in faulty)


def test_future_events_are_beyond_the_allowed_clock_skew() -> None:
    """From an hour after the day's end to the year 9999, and never good."""
    day, faulty, others = only("future")
    ahead = [datetime.fromisoformat(event["event_time"]) - END_OF_DAY for event in faulty]
    assert min(ahead) >= timedelta(hours=1)
    assert sum(timedelta(hours=1) <= a < timedelta(days=3) for a in ahead) == day.truth.variants["future.hours"] > 0
    assert any(event["event_time"].startswith("2038-01-19T03:14:08") for event in faulty)
    assert any(event["event_time"].startswith("9999-12-31") for event in faulty)
    assert set(day.truth.good) == {event["event_id"] for event in others}


def test_late_events_are_good_and_mostly_of_the_days_just_before() -> None:
    """1 to 30 days late, about half of them up to three days; the truth knows the day each happened on."""
    day, faulty, _ = only("late")
    days = {event["event_id"]: date.fromisoformat(event["event_time"][:10]) for event in faulty}
    lags = [(DAY - happened).days for happened in days.values()]
    assert (min(lags), max(lags) <= 30, max(lags) > 10) == (1, True, True)
    assert 0.3 < sum(lag <= 3 for lag in lags) / len(lags) < 0.7
    assert {key: happened for key, happened in day.truth.good.items() if happened != DAY} == days
    assert len(day.truth.good) == 400


def test_malformed_lines_are_not_json_objects() -> None:
    """Truncated, binary, another JSON value or empty; none of them holds a line break of its own."""
    day, faulty, _ = only("malformed")
    assert not any(isinstance(value, dict) for value in faulty)
    assert {name.partition(".")[2] for name in day.truth.variants} == {"truncated", "binary", "not_object", "empty"}
    assert day.lines.count(b"") == day.truth.variants["malformed.empty"]
    assert not any(b"\n" in line or b"\r" in line for line in day.lines)
    assert len(day.truth.good) == 300


def test_unknown_fields_stay_beside_the_known_ones() -> None:
    """A scalar or a nested object more; the event itself is good."""
    day, faulty, others = only("unknown_fields")
    added = [set(event) - set(others[0]) for event in faulty]
    assert {name for names in added for name in names} == {"campaign", "device"}
    assert all(isinstance(event["device"]["app"], dict) for event in faulty if "device" in event)
    assert len(day.truth.good) == 400


def test_wrong_types_are_valid_json_of_another_type() -> None:
    """`"12,50"`, an object, epoch seconds and milliseconds, and a user id as a number, which alone does no harm."""
    day, faulty, _ = only("wrong_types")
    seen = Counter[str]()
    for event in faulty:
        if isinstance(event["user_id"], int):
            seen["wrong_types.user_number"] += 1
        elif isinstance(event["event_time"], int):
            unit = 1 if event["event_time"] < 10**11 else 1000
            assert datetime.fromtimestamp(event["event_time"] / unit, UTC).date() == DAY
            seen["wrong_types.time_seconds" if unit == 1 else "wrong_types.time_millis"] += 1
        elif isinstance(event["amount"], dict):
            seen["wrong_types.amount_object"] += 1
        else:
            assert event["amount"][-3] == ","
            seen["wrong_types.amount_comma"] += 1
    assert seen == day.truth.variants
    assert len(day.truth.good) == 300 + seen["wrong_types.user_number"]


@pytest.mark.parametrize(
    ("fault", "field", "bad"),
    [
        ("negative_amounts", "amount", lambda value: value < 0),
        ("huge_amounts", "amount", lambda value: value > 1_000_000),
        ("unknown_currency", "currency", lambda value: value in ("ZZZ", "BTC", "EURO", "")),
        ("unknown_event_type", "event_type", lambda value: value not in ("purchase", "cancellation")),
    ],
)
def test_a_bad_value_breaks_its_rule(fault: str, field: str, bad: Any) -> None:
    """Purchases below zero, amounts out of bounds, currencies and event types nobody knows: none of these is good."""
    day, faulty, others = only(fault)
    assert all(bad(event[field]) for event in faulty)
    assert set(day.truth.good) == {event["event_id"] for event in others}


def test_positive_cancellations_take_what_cancellations_there_are() -> None:
    """A quarter of the lines is more than the day's cancellations, so all of them turn, and no purchase does."""
    day, faulty, _ = only("positive_cancellations", rows=2000)
    events = [parsed(line) for line in day.lines]
    turned = [event for event in events if event["event_type"] == "cancellation"]
    assert turned == faulty
    assert all(event["amount"] > 0 for event in turned)
    assert 0 < day.truth.faults["positive_cancellations"] == len(turned) < 500


@given(rate=st.floats(0, 1 / len(Faults.names())), rows=st.integers(0, 120))
def test_no_mix_of_faults_changes_the_number_of_lines(rate: float, rows: int) -> None:
    """Blank, broken and repeated lines count as any other; faulty and sound lines add up."""
    day = generate_events(DAY, rows, 1, Faults.all(rate))
    assert len(day.lines) == rows
    assert sum(day.truth.faults.values()) <= rows
    assert sum(day.truth.variants.values()) == sum(day.truth.faults.values())


@pytest.mark.parametrize("faults", [Faults(duplicates=1), Faults(malformed=1), Faults(duplicates=0.5, nulls=0.5)])
@pytest.mark.parametrize("rows", [1, 2, 50])
def test_a_day_of_nothing_but_faults_can_be_made(faults: Faults, rows: int) -> None:
    """Even where no sound line is left to repeat."""
    assert len(generate_events(DAY, rows, 1, faults).lines) == rows


def test_small_rates_show_on_some_small_days() -> None:
    """One line in 1,000 on days of 50 lines: not never, and not always."""
    late = [
        generate_events(DAY + timedelta(days=n), 50, 1, Faults(late=0.001)).truth.faults["late"] for n in range(200)
    ]
    assert 1 <= sum(late) <= 25
    assert max(late) == 1
