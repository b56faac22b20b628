"""gold.user_fraud_features: spans that end with the last event, on their borders, against a search from each day."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakehouse.gold.user_fraud_features import user_fraud_features
from lakehouse.silver.transactions import transactions
from lakehouse_tests.sample.oracle import Transaction
from lakehouse_tests.sample.oracle_activity import gold_user_fraud_features
from lakehouse_tests.silver.test_orders import transaction

(INPUT,) = user_fraud_features.upstream.values()
WHOLE = "all"


@pytest.fixture
def build(spark: SparkSession) -> Any:
    """Features of hand-written transactions by user and day."""

    def run(*rows: dict[str, Any]) -> dict[tuple[str, date], dict[str, Any]]:
        made = user_fraud_features.transform(spark.createDataFrame(list(rows), transactions.schema)).collect()
        return {(r["user_id"], r["feature_date"]): _plain(r.asDict()) for r in made}

    return run


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"last_event_time": row["last_event_time"].replace(tzinfo=UTC)}


def of(row: dict[str, Any], span: str) -> tuple[Any, ...]:
    names = ("purchases", "amount", "amount_mean", "amount_stddev", "payment_methods", "countries")
    return tuple(str(row[f"{n}_{span}"]) if "amount" in n else row[f"{n}_{span}"] for n in names)


def test_spans_end_with_the_last_event_and_leave_out_their_border(build: Any) -> None:
    """Sixty minutes before the last event is an hour: not younger than one, so outside."""
    made = build(
        transaction("a", "o1", "purchase", "2011-01-04T10:00", "1.00"),  # a day before: outside of the 24 hours
        transaction("b", "o1", "purchase", "2011-01-04T10:00:00.000001", "2.00") | {"payment_method": "card"},
        transaction("c", "o2", "purchase", "2011-01-05T09:00", "4.00") | {"payment_method": "cash"},
        transaction("d", "o2", "purchase", "2011-01-05T09:00:01", "8.00") | {"payment_method": "card"},
        transaction("e", "o3", "purchase", "2011-01-05T10:00", "2.00") | {"country": "Spain"},
    )["u1", date(2011, 1, 5)]
    assert of(made, "1h") == (2, "10.00", "5.00", "3.0", 1, 2)
    assert of(made, "24h")[:3] == (4, "16.00", "4.00")
    assert of(made, "7d")[:3] == (5, "17.00", "3.40")
    assert made["payment_methods_24h"] == made["payment_methods_7d"] == 2
    assert made["seconds_between_last_two"] == 3599
    assert made["last_event_time"] == datetime(2011, 1, 5, 10, tzinfo=UTC)


def test_a_row_stands_for_seven_days_and_its_spans_stay(build: Any) -> None:
    """Point in time: days without events know what was known before, and the 24 hours may begin before the seven days."""
    made = build(
        transaction("a", "o1", "purchase", "2011-01-04T22:00", "1.00"),
        transaction("b", "o1", "purchase", "2011-01-05T03:00", "2.00"),
    )
    assert sorted(day.day for _, day in made) == list(range(4, 12))
    first, last = made["u1", date(2011, 1, 4)], made["u1", date(2011, 1, 11)]
    assert (first["purchases_24h"], first["purchases_7d"], first["night_share_7d"]) == (1, 1, 0.0)
    assert (last["purchases_1h"], last["purchases_24h"], last["purchases_7d"]) == (1, 2, 1)
    assert (last["night_share_7d"], last["seconds_between_last_two"]) == (1.0, None)
    assert made["u1", date(2011, 1, 10)]["night_share_7d"] == 0.5


def test_cancellations_alone_make_a_row_without_amounts(build: Any) -> None:
    """Somebody who only cancels is worth a look; a guest is nobody."""
    made = build(
        transaction("a", "o1", "cancellation", "2011-01-05T06:00", "-1.00"),
        transaction("b", "o1", "cancellation", "2011-01-05T05:59:59", "-1.00"),
        transaction("g", "o2", "purchase", "2011-01-05T10:00", "1.00") | {"user_id": None},
    )
    assert {user for user, _ in made} == {"u1"}
    row = made["u1", date(2011, 1, 5)]
    assert of(row, "1h") == of(row, "7d") == (0, "0.00", "None", "None", 0, 1)
    assert (row["night_share_7d"], row["seconds_between_last_two"]) == (0.5, 1)


def test_one_purchase_has_a_deviation_of_zero(build: Any) -> None:
    """As of a population; of a sample it would be undefined."""
    row = build(transaction("a", "o1", "purchase", "2011-01-05T10:00", "0.10"))["u1", date(2011, 1, 5)]
    assert of(row, "7d")[:4] == (1, "0.10", "0.10", "0.0")


_HOURS = ["00:00:00", "00:00:00.000001", "05:59:59", "06:00:00", "09:00:00", "10:00:00", "10:00:00.000001", "10:59:59"]
_HISTORIES = st.lists(
    st.tuples(
        st.integers(0, 10), st.sampled_from([*_HOURS, "23:00:00", "23:59:59.999999"]),
        st.sampled_from(["purchase", "purchase", "cancellation"]), st.integers(1, 99_999_999),
        st.sampled_from([None, "card", "cash"]), st.sampled_from([None, "France", "Spain"]),
    ),
    min_size=1, max_size=10,
)  # fmt: skip
_AT_ONCE = [(2, "10:00:00", "purchase", 1, "card", None), (2, "10:00:00", "purchase", 2, None, "Spain")]


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(
    [_AT_ONCE, [(0, "10:00:00", "purchase", 7, "card", "Spain"), (1, "10:00:00", "cancellation", 7, "cash", None)]]
)
@given(st.lists(_HISTORIES, min_size=1, max_size=10))
def test_features_equal_a_search_from_each_day(spark: SparkSession, drawn: list[Any]) -> None:
    """Built over a whole history or one day at a time, they are what looking back from each day gives."""
    events = [row for n, history in enumerate(drawn) for row in _events(f"u{n}", history)]
    dates = [date(2011, 1, 1) + timedelta(days=n) for n in range(20)]
    # One job for all: what a build of a single day reads is of users of its own.
    rows = [row._replace(user_id=f"{row.user_id}@{WHOLE}") for row in events]
    for day in dates:
        read = [row for row in events if 0 <= (day - row.event_date).days <= INPUT.days_before]
        rows += [row._replace(user_id=f"{row.user_id}@{day}") for row in read]
    rows += [row._replace(user_id=None) for row in events]
    cells = [dict.fromkeys(transactions.columns) | row._asdict() for row in rows]
    made = user_fraud_features.transform(spark.createDataFrame(cells, transactions.schema)).collect()
    found: dict[str, list[dict[str, Any]]] = {"whole": [], "single": []}
    for each in made:
        user, _, part = each["user_id"].partition("@")
        if part in (WHOLE, str(each["feature_date"])):
            found["whole" if part == WHOLE else "single"].append(_plain({**each.asDict(), "user_id": user}))
    wanted = list(gold_user_fraud_features(events, dates))
    for rows_found in found.values():
        assert sorted(rows_found, key=_key) == sorted(wanted, key=_key)


def _events(user: str, history: list[tuple[int, str, str, int, str | None, str | None]]) -> list[Transaction]:
    found = []
    for n, (day, time, kind, cents, method, country) in enumerate(history):
        at = datetime.fromisoformat(f"2011-01-{1 + day:02d}T{time}").replace(tzinfo=UTC)
        amount = Decimal(cents).scaleb(-2) * (1 if kind == "purchase" else -1)
        row = Transaction(str(n), "events", "o", user, kind, at, at.date(), amount, "EUR", method, country)
        found.append(row)
    return found


def _key(row: dict[str, Any]) -> tuple[str, date]:
    return row["user_id"], row["feature_date"]
