"""silver.sessions: what a visit is, and that a day needs no more than the days beside it."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakehouse.silver.sessions import LONGEST, PAUSE, sessions
from lakehouse.silver.transactions import transactions
from lakehouse_tests.sample.oracle import Transaction
from lakehouse_tests.sample.oracle_activity import Session, silver_sessions
from lakehouse_tests.silver.test_orders import transaction

FIRST = datetime(2011, 1, 5, tzinfo=UTC)
(INPUT,) = sessions.upstream.values()
WHOLE = "all"


@pytest.fixture
def build(spark: SparkSession) -> Any:
    """Sessions of hand-written transactions, in the order of their start."""

    def run(*rows: dict[str, Any]) -> list[dict[str, Any]]:
        made = sessions.transform(spark.createDataFrame(list(rows), transactions.schema))
        return [row.asDict() for row in made.orderBy("user_id", "session_start").collect()]

    return run


def test_a_pause_of_thirty_minutes_is_none(build: Any) -> None:
    """The longest pause joins; a microsecond more begins a new session."""
    made = build(
        transaction("a", "o1", "purchase", "2011-01-05T10:00", "2.50"),
        transaction("b", "o1", "cancellation", "2011-01-05T10:30", "-1.00"),
        transaction("c", "o2", "purchase", "2011-01-05T10:30", "3.00"),
        transaction("d", "o2", "purchase", "2011-01-05T11:00:00.000001", "9.00"),
    )
    first, second = made
    assert first["session_end"] - first["session_start"] == PAUSE
    assert [first[n] for n in ("events", "purchases", "cancellations", "orders")] == [3, 2, 1, 2]
    assert (first["amount"], first["cancelled_amount"]) == (Decimal("5.50"), Decimal("-1.00"))
    assert (second["events"], second["session_start"]) == (1, second["session_end"])
    assert first["session_id"] != second["session_id"]


def test_a_session_over_midnight_belongs_to_the_day_it_began(build: Any) -> None:
    """Cut at midnight, it would be two visits."""
    (made,) = build(
        transaction("a", "o1", "purchase", "2011-01-05T23:45", "1.00"),
        transaction("b", "o1", "purchase", "2011-01-06T00:10", "2.00"),
    )
    assert (made["session_date"], made["events"]) == (date(2011, 1, 5), 2)


def test_guests_have_no_sessions_and_users_have_their_own(build: Any) -> None:
    """All guests together would be one visitor who never leaves."""
    made = build(
        transaction("a", "o1", "purchase", "2011-01-05T10:00", "1.00", user="u1"),
        transaction("b", "o1", "purchase", "2011-01-05T10:01", "1.00", user="u2"),
        transaction("c", "o1", "purchase", "2011-01-05T10:02", "1.00") | {"user_id": None},
    )
    assert [(row["user_id"], row["events"]) for row in made] == [("u1", 1), ("u2", 1)]
    assert len({row["session_id"] for row in made}) == 2


def test_orders_of_two_shops_with_one_id_are_two(build: Any) -> None:
    """Each shop numbers its own orders, and events without one have none."""
    (made,) = build(
        transaction("a", "o1", "purchase", "2011-01-05T10:00", "1.00"),
        transaction("b", "o1", "purchase", "2011-01-05T10:01", "1.00"),
        transaction("c", "o1", "purchase", "2011-01-05T10:02", "1.00", source="online_retail"),
        transaction("d", None, "purchase", "2011-01-05T10:03", "1.00"),
    )
    assert (made["orders"], made["events"]) == (2, 4)


def robot(begins: str, hours: float) -> list[dict[str, Any]]:
    """An event every half hour."""
    start = datetime.fromisoformat(begins).replace(tzinfo=UTC)
    times = [start + timedelta(minutes=n) for n in range(0, int(hours * 60) + 1, 30)]
    return [transaction(str(n), "o1", "purchase", at.isoformat(), "1.00") for n, at in enumerate(times)]


@pytest.mark.parametrize(
    ("begins", "hours", "starts"),
    [
        ("2011-01-05T10:00", 24, ["05 10:00"]),  # open for 24 hours and no longer
        ("2011-01-05T10:00", 24.5, ["05 10:00", "06 10:30"]),
        ("2011-01-05T10:00", 60, ["05 10:00", "06 10:30", "07 00:00"]),
        ("2011-01-05T00:30", 24, ["05 00:30", "06 00:00"]),  # 23.5 hours old at midnight
        ("2011-01-05T00:31", 24, ["05 00:31"]),
        ("2011-01-05T00:00", 50, ["05 00:00", "06 00:00", "07 00:00"]),
    ],
)
def test_a_run_without_a_pause_is_cut(build: Any, begins: str, hours: float, starts: list[str]) -> None:
    """A robot's session would never end, and a day of it hang on the day the robot was switched on."""
    made = build(*robot(begins, hours))
    assert [f"{row['session_start']:%d %H:%M}" for row in made] == starts
    assert max(row["session_end"] - row["session_start"] for row in made) <= LONGEST


# A history: when it begins, and what lies between its events. Long runs come from many events of one pause.
_PAUSES = st.sampled_from([timedelta(0), timedelta(minutes=1), PAUSE, PAUSE + timedelta(microseconds=1)])
_RUNS = st.tuples(st.sampled_from([timedelta(minutes=29), PAUSE]), st.integers(1, 130)).map(
    lambda run: [run[0]] * run[1]
)
_HISTORIES = st.tuples(
    st.sampled_from([0, 29, 30, 31, 600, 1410, 1439]),
    st.lists(st.one_of(_PAUSES.map(lambda one: [one]), st.just([timedelta(hours=5)]), _RUNS), max_size=4),
)
_MOST_DAYS = 5


def events_of(user: str, history: tuple[int, list[list[timedelta]]]) -> list[Transaction]:
    """The events of a history, of both kinds and of a few orders."""
    at = FIRST + timedelta(minutes=history[0])
    found = []
    for n, pause in enumerate([timedelta(0), *(each for part in history[1] for each in part)]):
        at += pause
        kind, amount = ("cancellation", Decimal("-1.50")) if n % 5 == 4 else ("purchase", Decimal("2.25"))
        found.append(Transaction(str(n), "events", f"o{n // 3}", user, kind, at, at.date(), amount, "EUR"))
    return found


def days_of(events: Sequence[Transaction]) -> list[date]:
    return sorted({row.event_date for row in events})


def read_for(events: Sequence[Transaction], day: date) -> list[Transaction]:
    """What a build of one day reads."""
    first, last = day - timedelta(days=INPUT.days_before), day + timedelta(days=INPUT.days_after)
    return [row for row in events if first <= row.event_date <= last]


LONG = (600, [[PAUSE] * 130])


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example([LONG, (30, [[PAUSE] * 100]), (1410, [[PAUSE] * 60]), (0, [[timedelta(minutes=29)] * 120])])
@given(st.lists(_HISTORIES, min_size=1, max_size=12))
def test_any_day_by_itself_gives_what_the_whole_history_gives(spark: SparkSession, drawn: list[Any]) -> None:
    """Without it, a day's sessions would depend on which days were built together, and on runs of long ago."""
    histories = {f"u{n}": events_of(f"u{n}", each) for n, each in enumerate(drawn)}
    # One job for all: each day that is built by itself is of a user of its own.
    rows = []
    for user, events in histories.items():
        rows += [row._replace(user_id=f"{user}@{WHOLE}") for row in events]
        for day in days_of(events):
            rows += [row._replace(user_id=f"{user}@{day}") for row in read_for(events, day)]
    cells = [dict.fromkeys(transactions.columns) | row._asdict() for row in rows]
    made = sessions.transform(spark.createDataFrame(cells, transactions.schema)).collect()
    found: dict[str, set[Session]] = {}
    for each in made:
        user, _, part = each["user_id"].partition("@")
        if part in (WHOLE, str(each["session_date"])):
            found.setdefault(f"{user} {part == WHOLE}", set()).add(_session(user, each))
    for user, events in histories.items():
        wanted = set(silver_sessions(events))
        assert found[f"{user} True"] == wanted, "over the whole history"
        assert found[f"{user} False"] == wanted, "day by day"


def _session(user: str, row: Any) -> Session:
    values = {name: row[name] for name in Session._fields}
    times = {name: row[name].replace(tzinfo=UTC) for name in ("session_start", "session_end")}
    return Session(**{**values, **times, "user_id": user})


@settings(max_examples=150, deadline=None)
@example(LONG, [720])
@given(_HISTORIES, st.lists(st.integers(0, _MOST_DAYS * 1440), min_size=1, max_size=3))
def test_late_events_touch_the_days_that_are_built_again(history: Any, minutes: list[int]) -> None:
    """They join, split and move sessions: on no other day than those for which the contract reads theirs."""
    before = events_of("u", history)
    late = [
        before[0]._replace(event_time=at, event_date=at.date())
        for at in (FIRST + timedelta(minutes=n) for n in minutes)
    ]
    touched = {
        row.event_date + timedelta(days=n) for row in late for n in range(-INPUT.days_after, INPUT.days_before + 1)
    }
    changed = set(silver_sessions(before)) ^ set(silver_sessions([*before, *late]))
    assert {each.session_date for each in changed} <= touched


@settings(max_examples=150, deadline=None)
@given(_HISTORIES)
def test_only_runs_of_about_a_day_are_cut_otherwise_than_after_24_hours(history: Any) -> None:
    """What the docstring says of the difference must be all of it."""
    events = events_of("u", history)
    by_start, ours = (silver_sessions(events, cut_at_midnight=each) for each in (False, True))
    assert max(each.session_end - each.session_start for each in ours) <= LONGEST
    assert sum(each.events for each in ours) == len(events)
    assert by_start == ours or longest_run(events) >= LONGEST - PAUSE


def longest_run(events: Sequence[Transaction]) -> timedelta:
    """The longest time without a pause."""
    times = [row.event_time for row in events if row.event_time is not None]
    longest = start = timedelta(0)
    for before, at in pairwise(times):
        start = start + (at - before) if at - before <= PAUSE else timedelta(0)
        longest = max(longest, start)
    return longest
