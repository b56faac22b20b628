"""Reading features online: what is there, what is not, and what may not be used any more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from lakehouse.errors import OnlineDownError, UnknownTableError, UsageError
from lakehouse.online import client as reading
from lakehouse.online.client import MISSING, PRESENT, STALE, AsyncOnlineClient, Feature, OnlineClient
from lakehouse.online.sets import FeatureSet, milliseconds
from lakehouse_tests.fixtures.redis import RedisServer

NOW = datetime(2026, 3, 9, 12, tzinfo=UTC)
KINDS = {"orders": "bigint", "amount": "decimal(18,2)", "note": "string"}
USERS = FeatureSet("gold.users", "user", {"user_id": "string"}, KINDS, timedelta(days=7), 1, "0123456789ab")
RISK = replace(USERS, table="gold.risk", columns={"score": "double"}, ttl=timedelta(days=1))
VISITOR = {"shop": "string", "user_id": "string"}
VISITS = FeatureSet("gold.visits", "visit", VISITOR, {"n": "bigint"}, timedelta(days=1), 1, "0123456789ab")
SETS = {each.table: each for each in (USERS, RISK, VISITS)}
DAY = 86_400_000


def clock() -> float:
    """The moment at which the tests read."""
    return NOW.timestamp()


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[OnlineClient]:
    """User 1 has both rows, of today; user 2 one of three days ago and one of two; user 3 none."""
    today = milliseconds(NOW.replace(hour=0))
    with redis_server.empty() as store:
        later = store.now() + DAY
        store.put(
            USERS,
            [
                (USERS.redis_key(["1"]), later, USERS.pack(today, 4, [3, Decimal("2.50"), None])),
                (USERS.redis_key(["2"]), later, USERS.pack(today - 3 * DAY, 4, [0, Decimal(0), ""])),
            ],
            4,
        )
        store.put(
            RISK,
            [
                (RISK.redis_key(["1"]), later, RISK.pack(today, 9, [0.25])),
                (RISK.redis_key(["2"]), later, RISK.pack(today - 2 * DAY, 9, [0.5])),
            ],
            9,
        )
        store.put(VISITS, [(VISITS.redis_key(["a,b", "1"]), later, VISITS.pack(today, 1, [7]))], 1)
        made = OnlineClient(redis_server.url, SETS, clock)
        yield made
        made.close()


def of(*users: str) -> list[dict[str, str]]:
    return [{"user_id": user} for user in users]


def test_each_feature_says_whether_it_is_present_missing_or_stale(client: OnlineClient) -> None:
    """Without it, a model would take a user of whom nothing is known for one who has done nothing."""
    wanted = ["gold.risk:score", "gold.users:note", "gold.users:orders", "gold.users:amount"]
    one, two, three = client.get_online_features(of("1", "2", "3"), wanted)
    assert list(one) == ["gold.risk:score", "gold.users:note", "gold.users:orders", "gold.users:amount"]
    assert [each.status for each in one.values()] == [PRESENT] * 4
    assert [each.value for each in one.values()] == [0.25, None, 3, Decimal("2.50")]
    assert [each.status for each in two.values()] == [STALE, *[PRESENT] * 3]
    assert [each.value for each in two.values()] == [None, "", 0, Decimal(0)]
    assert list(three.values()) == [Feature(MISSING, None, None)] * 4
    assert one.required() == one.values_present() == {name: each.value for name, each in one.items()}
    with pytest.raises(UsageError, match="gold.risk:score is stale"):
        two.required()
    with pytest.raises(UsageError, match="gold.users:note is missing"):
        three.required()


def test_a_row_says_where_it_is_from(client: OnlineClient) -> None:
    [vector] = client.get_online_features(of("1"), ["gold.users"])
    row = vector["gold.users:orders"].row
    assert row is not None
    assert (row.event_time, row.delta_version, row.code_version) == (NOW.replace(hour=0), 4, "0123456789ab")


def test_a_reader_may_ask_for_younger_rows(client: OnlineClient) -> None:
    [of_one, of_two] = client.get_online_features(of("1", "2"), ["gold.users:orders"], timedelta(days=2))
    assert (of_one["gold.users:orders"].status, of_two["gold.users:orders"].status) == (PRESENT, STALE)


def test_the_last_moment_is_included(redis_server: RedisServer, client: OnlineClient) -> None:
    ends = NOW.replace(hour=0) + USERS.ttl
    for moment, status in ((ends, PRESENT), (ends + timedelta(milliseconds=1), STALE)):
        reader = OnlineClient(redis_server.url, SETS, moment.timestamp)
        [vector] = reader.get_online_features(of("1"), ["gold.users:orders"])
        assert vector["gold.users:orders"].status == status


def test_an_entity_of_several_columns(client: OnlineClient) -> None:
    there, not_there = client.get_online_features(
        [{"user_id": 1, "shop": "a,b"}, {"user_id": "b,1", "shop": "a"}], ["gold.visits"]
    )
    assert (there["gold.visits:n"].value, not_there["gold.visits:n"].status) == (7, MISSING)


def test_what_cannot_be_asked_for_is_refused(client: OnlineClient) -> None:
    """Without it, a spelling mistake would be a feature that nobody has."""
    with pytest.raises(UnknownTableError, match=r"No features of 'gold.user' are online. There are: gold.users"):
        client.get_online_features(of("1"), ["gold.user"])
    with pytest.raises(UsageError, match="gold.users has no feature 'order'. It has: orders, amount, note"):
        client.get_online_features(of("1"), ["gold.users:order"])
    with pytest.raises(UsageError, match="An entity has no 'user_id'"):
        client.get_online_features([{"user": "1"}], ["gold.users"])
    with pytest.raises(UsageError, match="null"):
        client.get_online_features([{"user_id": None}], ["gold.users"])
    with pytest.raises(UsageError, match=r"An entity's user_id is a string: what was given \(float\) is none"):
        client.get_online_features([{"user_id": 1.0}], ["gold.users"])
    with pytest.raises(UsageError, match="different entities"):
        client.get_online_features(of("1"), ["gold.users", "gold.visits"])
    with pytest.raises(UsageError, match="No features were asked for"):
        client.get_online_features(of("1"), [])
    assert client.get_online_features([], ["gold.users"]) == []


def test_both_clients_answer_alike(redis_server: RedisServer, client: OnlineClient) -> None:
    async def ask() -> list[dict[str, Feature]]:
        other = AsyncOnlineClient(redis_server.url, SETS, clock)
        try:
            assert await other.answers()
            return [
                dict(each) for each in await other.get_online_features(of("1", "2", "3"), ["gold.users", "gold.risk"])
            ]
        finally:
            await other.close()

    own = client.get_online_features(of("1", "2", "3"), ["gold.users", "gold.risk"])
    assert asyncio.run(ask()) == [dict(each) for each in own]
    assert client.answers()


def test_a_store_that_is_down_is_no_missing_row() -> None:
    """Without it, an outage would look like users of whom nothing is known."""
    nowhere = "redis://:canary-password@127.0.0.1:1/0"
    client = OnlineClient(nowhere, SETS, clock)
    with pytest.raises(OnlineDownError, match=r"at redis://127.0.0.1:1/0\."):
        client.get_online_features(of("1"), ["gold.users"])

    async def ask() -> None:
        other = AsyncOnlineClient(nowhere, SETS, clock)
        assert not await other.answers()
        await other.get_online_features(of("1"), ["gold.users"])

    with pytest.raises(OnlineDownError):
        asyncio.run(ask())
    assert not client.answers()


def test_what_is_kept_of_questions_does_not_grow_for_ever(
    client: OnlineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, whoever asks for ever other lists of features would fill the memory of the service."""
    monkeypatch.setattr(reading, "_MOST_PLANS", 3)
    for number in range(1, 9):
        [found] = client.get_online_features([{"user_id": "1"}], ["gold.users:orders"] * number)
        assert found["gold.users:orders"].value == 3
        assert len(client._made) <= 3
