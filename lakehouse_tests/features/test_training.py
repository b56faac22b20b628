"""Labels joined with features by time: the same as a loop over everything, and never with what came later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakehouse.contracts import Table
from lakehouse.delta.layout import table_path
from lakehouse.errors import HistoryGoneError, UnknownTableError, UsageError
from lakehouse.features.training import training_set
from lakehouse.read.lake import Lake
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.features.making import FIRST, ZERO, features, labels, publish

Publishes = Sequence[tuple[int, int, Mapping[str, int]]]
"""Hours from the beginning, number of the day, value by user; in the order they are published."""
Found = tuple[int | None, str | None, int | None, bool]

DAY = timedelta(days=1)
USERS = "abc"
TTLS = [timedelta(hours=1), DAY, timedelta(hours=36), 3 * DAY]


def random_history(random: Random) -> Publishes:
    """Days published and published again, with users who come and go."""
    several = [
        (
            6 * random.randrange(40),
            random.randrange(6),
            {u: random.randrange(10) for u in USERS if random.random() < 0.7},
        )
        for _ in range(10)
    ]
    return sorted(several, key=lambda each: each[0])


def random_labels(random: Random) -> list[tuple[str, datetime]]:
    """Users at quarters of days, and at the microsecond before: all edges are met."""
    hours = [ZERO + timedelta(hours=6 * random.randrange(44)) for _ in range(60)]
    return [(random.choice(f"{USERS}x"), at - timedelta(microseconds=random.randrange(2))) for at in hours]


def oracle(history: Publishes, ttl: timedelta, user: str, at: datetime, *, known: bool) -> Found:
    """The newest row by trying all of them."""
    live: dict[int, Mapping[str, int]] = {}
    for hours, day, content in history:
        live |= {day: content} if not known or ZERO + timedelta(hours=hours) <= at else {}
    for day in sorted(live, reverse=True):
        valid = ZERO + (day + 1) * DAY
        if user in live[day] and valid <= at <= valid + ttl:
            value = live[day][user]
            return value, f"{user}{value}", int((at - valid).total_seconds()), False
    return None, None, None, True


def told(frame: Any, *tables: Table) -> dict[int, Any]:
    """What was found for each label by its number, of each table."""
    found = {}
    for row in frame.collect():
        of = [tuple(row[f"{t.name}__{c}"] for c in ("value", "word", "age_seconds", "missing")) for t in tables]
        found[row["number"]] = of[0] if len(of) == 1 else of
    return found


@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random=st.randoms(use_true_random=True))
def test_it_is_what_trying_all_rows_finds(lake: LakeFactory, tmp_path_factory: Any, random: Random) -> None:
    """Without it, an edge of a day, a ttl or a version could be off by one, which no example would show."""
    histories, ttls, asked = [random_history(random) for _ in range(2)], random.sample(TTLS, 2), random_labels(random)
    tables = [features(name, ttl) for name, ttl in zip(("gold.seen", "gold.heard"), ttls, strict=True)]
    made = lake(*tables, root=tmp_path_factory.mktemp("lake"))
    for table, history in zip(tables, histories, strict=True):
        for hours, day, content in history:
            publish(made, table, FIRST + day * DAY, content, ZERO + timedelta(hours=hours))
    frame = labels(made, asked)
    for known in (False, True):
        found = training_set(made, frame, ["gold.seen,gold.heard"], as_known_then=known)
        wanted = {
            number: [oracle(history, ttl, *each, known=known) for history, ttl in zip(histories, ttls, strict=True)]
            for number, each in enumerate(asked)
        }
        assert told(found.frame, *tables) == wanted, (histories, ttls, asked)
        assert found.labels == len(asked)


@pytest.fixture
def corrected(lake: LakeFactory) -> tuple[Lake, Table]:
    """A day that was published, corrected two days later, and lost a user a day after that."""
    seen = features()
    made = lake(seen)
    publish(made, seen, FIRST, {"a": 1, "b": 1}, ZERO + timedelta(hours=26))
    publish(made, seen, FIRST, {"a": 5, "b": 1}, ZERO + timedelta(hours=50))
    publish(made, seen, FIRST, {"a": 5}, ZERO + timedelta(hours=60))
    return made, seen


def test_what_was_published_later_is_not_seen_as_known_then(corrected: tuple[Lake, Table]) -> None:
    """The leak that a join by event time alone has: the correction of a day reaches labels from before it was made."""
    made, seen = corrected
    hours = [24, 26, 49, 50, 59, 60]
    frame = labels(made, [(user, ZERO + timedelta(hours=hour)) for user in "ab" for hour in hours])
    values = [told(training_set(made, frame, ["gold.seen"], as_known_then=k).frame, seen) for k in (False, True)]
    now, then = ([each[number][0] for number in range(2 * len(hours))] for each in values)
    assert now == [5] * 6 + [None] * 6
    assert then == [None, 1, 1, 5, 5, 5, None, 1, 1, 1, 1, None]


def test_versions_are_read_again(corrected: tuple[Lake, Table]) -> None:
    """Without it, a training set could not be made again once a day was published anew."""
    made, seen = corrected
    frame = labels(made, [("a", ZERO + timedelta(hours=hour)) for hour in (30, 55)])
    first = training_set(made, frame, ["gold.seen"], versions={"gold.seen": 1})
    assert [first.versions, *(each[0] for each in told(first.frame, seen).values())] == [{"gold.seen": 1}, 1, 1]
    then = training_set(made, frame, ["gold.seen"], versions={"gold.seen": 1}, as_known_then=True)
    assert [each[0] for each in told(then.frame, seen).values()] == [1, 1]


def test_what_is_gone_is_said(corrected: tuple[Lake, Table]) -> None:
    """Without it, labels of a time whose files or log entries were removed would be without features in silence."""
    made, seen = corrected
    early, late = (labels(made, [("a", ZERO + timedelta(hours=hour))]) for hour in (30, 61))
    path = table_path(made.settings.root, "gold.seen")
    live = {each.path for each in made.snapshot("gold.seen").files}
    for file in path.rglob("*.parquet"):
        if str(file.relative_to(path)) not in live:
            file.unlink()
    # The correction of hour 50 is gone as well, so labels from then on would not do.
    with pytest.raises(HistoryGoneError, match=r"has removed 1 of 1 files. Labels from 2024-01-03T12:00:00Z on"):
        training_set(made, early, ["gold.seen"], as_known_then=True)
    assert told(training_set(made, late, ["gold.seen"], as_known_then=True).frame, seen)[0][0] == 5
    for version in (0, 1):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(
        HistoryGoneError, match=r"gold.seen cannot be read as it was known at 2024-01-02T00:00:00Z: its"
    ):
        training_set(made, early, ["gold.seen"], as_known_then=True)


def test_labels_stay_as_many_as_they_were(corrected: tuple[Lake, Table]) -> None:
    """Without it, a user with two labels at one time would count once, and a name with a dot would be a struct."""
    made, _ = corrected
    at = ZERO + timedelta(hours=30)
    frame = labels(made, [("a", at)] * 3 + [("nobody", at)]).selectExpr("*", "number = 0 AS `is.fraud`").drop("number")
    found = training_set(made, frame, ["gold.seen:value"]).frame
    assert found.columns == ["user", "event_time", "is.fraud", "seen__value", "seen__age_seconds", "seen__missing"]
    rows = sorted((row["user"], row["is.fraud"], row["seen__value"], row["seen__missing"]) for row in found.collect())
    assert rows == [
        ("a", False, 5, False),
        ("a", False, 5, False),
        ("a", True, 5, False),
        ("nobody", False, None, True),
    ]


def test_times_with_and_without_offsets(corrected: tuple[Lake, Table]) -> None:
    """Without it, an offset that is passed over moves a label by hours, over the end of a day."""
    made, seen = corrected
    texts = [
        "2024-01-02T00:00:00Z", "2024-01-02 00:00:00", "2024-01-02T01:00:00+01:00", "2024-01-01T19:00:00-0500",
        "2024-01-02", "2024-01-01T23:59:59.999999Z", "2024-01-02T00:30:00+01:00",
    ]  # fmt: skip
    frame = labels(made, [("a", text) for text in texts])
    found = told(training_set(made, frame, ["gold.seen"]).frame, seen)
    assert [found[number][0] for number in range(len(texts))] == [5] * 5 + [None] * 2
    ntz = frame.selectExpr("number", "user", "TIMESTAMP_NTZ '2024-01-02 00:00:00' AS event_time").limit(1)
    assert told(training_set(made, ntz, ["gold.seen"]).frame, seen)[0][2:] == (0, False)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", "12:30"), ("a", "2024-01-02"), ("a", "soon"), ("b", None), (None, "2024-01-02")],
         "Labels: of 5 labels, 1 without user, 1 without event_time, 2 whose event_time is no time ('12:30' is one). Fix"),
    ],
)  # fmt: skip
def test_bad_labels_are_counted_by_reason(corrected: tuple[Lake, Table], rows: Any, message: str) -> None:
    """Without it, they would be left out, or be missing features, and nobody would know."""
    with pytest.raises(UsageError) as told_by:
        training_set(corrected[0], labels(corrected[0], rows), ["gold.seen"], source="Labels")
    assert message in str(told_by.value)


def test_what_cannot_be_joined_is_refused(corrected: tuple[Lake, Table]) -> None:
    """Without it, a key of another type would find nobody, and a name could be there twice."""
    made, _ = corrected
    frame = labels(made, [("a", ZERO)])
    for other, message in (
        (frame.withColumnRenamed("event_time", "asked"), "expected the columns event_time; name it with --time; got"),
        (
            frame.selectExpr("CAST(1.5 AS DOUBLE) AS user", "event_time"),
            "expected user as string, got double. Write it",
        ),
        (frame.selectExpr("user", "number AS event_time"), "expected times in event_time, got int. Name another"),
        (frame.selectExpr("*", "1 AS seen__value"), "the column seen__value would be there twice"),
        (frame.where("false"), "there is no label in it"),
    ):
        with pytest.raises(UsageError, match=message):
            training_set(made, other, ["gold.seen"])


def test_what_is_asked_for_has_to_be_there(lake: LakeFactory) -> None:
    """Without it, a misspelt feature would end in a message of Spark's. No engine starts."""
    seen = features()
    plain = replace(seen, name="plain", features=None)
    till = features("gold.tills")
    assert till.features is not None
    till = replace(till, features=replace(till.features, entity="till"))
    made = lake(seen, plain, till)
    for asked, kind, message in (
        (
            ["gold.sen"],
            UnknownTableError,
            r"no table 'gold.sen'. Did you mean gold.seen .*Tables of features: gold.seen, gold.tills",
        ),
        (["gold.plain"], UsageError, r"gold.plain says nothing of features \(`features=` in its file\)"),
        (
            ["gold.seen:valu"],
            UsageError,
            r"gold.seen has no feature 'valu'. Did you mean value\? Its features: value, word",
        ),
        ([], UsageError, "No features are asked for"),
        (["gold.seen,gold.tills"], UsageError, "asked for are gold.seen of user, gold.tills of till"),
        (["gold.seen"], UsageError, "gold.seen was never built"),
    ):
        with pytest.raises(kind, match=message):
            training_set(made, None, asked)  # type: ignore[arg-type]  # refused before they are looked at


def test_only_days_that_a_label_can_use_are_read(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a training set over a week would read years."""
    seen = features(ttl=timedelta(hours=30))
    made = lake(seen)
    for number in range(8):
        publish(made, seen, FIRST + number * DAY, {"a": number})
    asked: list[set[date]] = []
    read = made.read

    def noted(table: Table, days: Any, snapshot: Any) -> Any:
        asked.append(set(days))
        return read(table, days, snapshot)

    monkeypatch.setattr(made, "read", noted)
    found = training_set(made, labels(made, [("a", datetime(2024, 1, 5, 6, tzinfo=UTC))]), ["gold.seen"])
    assert told(found.frame, seen)[0] == (3, "a3", 6 * 3600, False)
    assert asked == [{date(2024, 1, 2), date(2024, 1, 3), date(2024, 1, 4)}]
