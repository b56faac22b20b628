"""Features of a day that is not over: what a stream publishes is served, and the day's end changes nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from lakehouse.contracts import Table
from lakehouse.days import end_of
from lakehouse.errors import OnlineError
from lakehouse.online.load import Loaded, load
from lakehouse.online.parity import verify
from lakehouse.online.sets import FeatureSet
from lakehouse.online.store import OnlineStore
from lakehouse.read.lake import Lake
from lakehouse.runs import stream_online
from lakehouse.runs.stream_online import OnlineToday
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.profiles import DAYS, TABLE, noon, profiles, publish
from lakehouse_tests.fixtures.redis import RedisServer
from lakehouse_tests.online.test_load import online

pytestmark = pytest.mark.spark
MON, TUE, WED, *_ = DAYS
AT_TEN = end_of(MON) + timedelta(hours=10)  # on Tuesday


@pytest.fixture
def made(lake: LakeFactory, redis_server: RedisServer) -> Lake:
    """Whose features are served while their day is open."""
    found = lake(profiles(while_open=True))
    found.settings = found.settings.model_copy(update={"redis_url": SecretStr(redis_server.url)})
    return found


def test_what_a_batch_and_a_stream_have_made_is_one_number(
    made: Lake, store: OnlineStore, redis_server: RedisServer
) -> None:
    """Without it, a user would be served yesterday's number all day, or one that counts an event twice at midnight."""
    table, told = made.table(TABLE), list[str]()
    publish(made, MON, {"a": 4, "b": 7})  # by batch
    load(made, redis_server.url, table, AT_TEN)
    today = OnlineToday(made, told.append)
    today.load({}, AT_TEN)
    publish(made, TUE, {"a": 5})  # by the stream
    assert today.load({TABLE: [TUE]}, AT_TEN) == 1
    assert online(store, made) == {"a": (TUE, 5), "b": (MON, 7)}
    publish(made, TUE, {"a": 6, "c": 1})
    assert today.load({TABLE: [TUE]}, AT_TEN) == 2
    assert online(store, made) == {"a": (TUE, 6), "b": (MON, 7), "c": (TUE, 1)}
    assert verify(made, store, table, AT_TEN, sample=None).passed
    closed = load(made, redis_server.url, table, noon(TUE))  # the day is over, and nothing is new
    assert (closed.put.written, closed.removed) == (1, 0)  # of b alone the version is newer
    assert online(store, made) == {"a": (TUE, 6), "b": (MON, 7), "c": (TUE, 1)}
    assert told == []


def test_a_slow_backfill_takes_no_row_of_today_away(made: Lake, store: OnlineStore, redis_server: RedisServer) -> None:
    publish(made, TUE, {"a": 5})
    OnlineToday(made, print).load({TABLE: [TUE]}, AT_TEN)
    publish(made, MON, {"a": 4, "b": 7})
    load(made, redis_server.url, made.table(TABLE), AT_TEN, only=[MON])
    assert online(store, made) == {"a": (TUE, 5), "b": (MON, 7)}


def test_a_day_that_has_not_begun_is_not_served(made: Lake, store: OnlineStore) -> None:
    """Without it, a producer whose clock is ahead would bring tomorrow's row, and it would win until then."""
    publish(made, WED, {"a": 1})
    assert OnlineToday(made, print).load({TABLE: [WED]}, AT_TEN) == 0
    assert online(store, made) == {}


def test_a_redis_that_is_down_holds_up_no_stream(made: Lake, store: OnlineStore, redis_server: RedisServer) -> None:
    """Without it, an outage of Redis would stop events, or what came meanwhile would never be served."""
    told = list[str]()
    today = OnlineToday(made, told.append, rest=0)
    publish(made, TUE, {"a": 5})
    redis_server.kill()
    try:
        assert today.load({TABLE: [TUE]}, AT_TEN) == 0
    finally:
        redis_server.start()
    assert len(told) == 1
    assert "The stream goes on" in told[0]
    assert today.load({}, AT_TEN) == 1
    assert online(store, made) == {"a": (TUE, 5)}


def test_what_a_killed_stream_had_published_is_served_by_the_next(made: Lake, store: OnlineStore) -> None:
    """Without it, rows that were published just before a kill would not be served until their day is built again."""
    publish(made, MON, {"a": 4, "b": 7})
    publish(made, TUE, {"a": 5})
    assert OnlineToday(made, print).load({}, AT_TEN) == 2
    assert online(store, made) == {"a": (TUE, 5), "b": (MON, 7)}


def test_what_redis_lost_by_a_kill_comes_back(made: Lake, store: OnlineStore, redis_server: RedisServer) -> None:
    """Without it, the last second before a kill of Redis, which its disk may not have, would be missing for long."""
    publish(made, MON, {"a": 4, "b": 7})
    today = OnlineToday(made, print)
    assert today.load({}, AT_TEN) == 2
    redis_server.kill()
    redis_server.start()
    with redis_server.plain() as client:
        client.delete(FeatureSet.of(made.table(TABLE)).redis_key(["b"]))
    today.load({}, AT_TEN)
    assert online(store, made) == {"a": (MON, 4), "b": (MON, 7)}
    assert today.load({}, AT_TEN) == 0


def test_a_table_that_is_refused_holds_up_no_other(
    made: Lake, store: OnlineStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, where one table has to be loaded anew, what others had published would never be served."""
    told, load_one = list[str](), stream_online.load

    def refusing(lake: Lake, url: str, table: Table, *given: Any, **named: Any) -> Loaded:
        if table.id != TABLE:
            raise OnlineError(f"{table.id} was made anew since it was loaded")
        return load_one(lake, url, table, *given, **named)

    monkeypatch.setattr(stream_online, "load", refusing)
    others = {name: replace(made.table(TABLE), name=name) for name in ("a_before", "z_after")}
    made.tables = {TABLE: made.table(TABLE), **{each.id: each for each in others.values()}}
    today = OnlineToday(made, told.append)
    publish(made, TUE, {"a": 5})
    assert today.load({name: [TUE] for name in made.tables}, AT_TEN) == 1
    assert online(store, made) == {"a": (TUE, 5)}
    assert [each.partition(" ")[0] for each in told] == ["gold.a_before", "gold.z_after"]
    assert today.load({}, AT_TEN) == 0
    assert len(told) == 2, "each is told once"
