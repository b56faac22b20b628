"""A Redis that answers and takes nothing: it is full, cannot write its files, or does not take the login."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import SecretStr
from redis import exceptions

from lakehouse.errors import OnlineError, OnlineRefusedError
from lakehouse.online.address import failed
from lakehouse.online.client import AsyncOnlineClient, OnlineClient
from lakehouse.online.load import load
from lakehouse.online.store import OnlineStore
from lakehouse.runs.stream_online import OnlineToday
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.profiles import DAYS, TABLE, noon, profiles, publish
from lakehouse_tests.fixtures.redis import RedisServer
from lakehouse_tests.online.test_load import online
from lakehouse_tests.online.test_service import USERS, ask, served

MON, TUE, *_ = DAYS
FULL = r"Redis at redis://127\.0\.0\.1:\d+/0 refuses: its memory \(`maxmemory`\) is full\. Give it more; then the same"

LOGIN = "the login in LAKEHOUSE_REDIS_URL is not taken"


@contextmanager
def told_to(server: RedisServer, name: str, value: str, after: str) -> Iterator[None]:
    """A setting of Redis, for the block."""
    with server.plain() as client:
        client.config_set(name, value)
        try:
            yield
        finally:
            client.config_set(name, after)


@pytest.mark.spark
def test_a_load_into_a_full_redis_says_so_and_goes_on_once_there_is_room(
    lake: LakeFactory, store: OnlineStore, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a full Redis would be a fault of this program, told by a traceback, in a run of Dagster too."""
    made = lake(profiles())
    publish(made, MON, {"a": 4, "b": 7})
    with told_to(redis_server, "maxmemory", "1", "0"):
        with pytest.raises(OnlineRefusedError, match=FULL):
            load(made, redis_server.url, made.table(TABLE), noon(TUE))
        monkeypatch.setattr(OnlineStore, "begin", lambda *_: 0)  # full only when its rows come, from the workers
        with pytest.raises(OnlineRefusedError, match=FULL):
            load(made, redis_server.url, made.table(TABLE), noon(TUE))
    monkeypatch.undo()
    assert online(store, made) == {}
    assert load(made, redis_server.url, made.table(TABLE), noon(TUE)).put.written == 2
    assert online(store, made) == {"a": (MON, 4), "b": (MON, 7)}


@pytest.mark.spark
def test_a_load_into_a_redis_that_makes_room_by_itself_says_so(
    lake: LakeFactory, store: OnlineStore, redis_server: RedisServer
) -> None:
    """Without it, a load says that it has written all rows and ends well, and Redis has pushed most of them out."""
    made = lake(profiles())
    users = {f"user{number:05}": number for number in range(3000)}
    publish(made, MON, users)
    with redis_server.plain() as client:
        room = client.info("memory")["used_memory"] + 200_000
    with (
        told_to(redis_server, "maxmemory-policy", "volatile-ttl", "noeviction"),
        told_to(redis_server, "maxmemory", str(room), "0"),
        pytest.raises(OnlineError, match=rf"pushed out [\d,]+ keys while {TABLE} was loaded.* noeviction"),
    ):
        load(made, redis_server.url, made.table(TABLE), noon(TUE))
    assert len(online(store, made)) < len(users)
    load(made, redis_server.url, made.table(TABLE), noon(TUE))
    assert len(online(store, made)) == len(users)


@pytest.mark.spark
def test_a_full_redis_holds_up_no_stream(lake: LakeFactory, store: OnlineStore, redis_server: RedisServer) -> None:
    """Without it, events would not be taken for as long as Redis has no room, or would never be served."""
    made = lake(profiles(while_open=True))
    made.settings = made.settings.model_copy(update={"redis_url": SecretStr(redis_server.url)})
    publish(made, MON, {"a": 5})
    told = list[str]()
    today = OnlineToday(made, told.append, rest=0)
    with told_to(redis_server, "maxmemory", "1", "0"):
        assert today.load({TABLE: [MON]}, noon(TUE)) == 0
    assert ["full" in each and "The stream goes on" in each for each in told] == [True]
    assert today.load({}, noon(TUE)) == 1
    assert online(store, made) == {"a": (MON, 5)}


def test_a_login_that_is_not_taken_is_no_outage(store: OnlineStore, redis_server: RedisServer) -> None:
    """Without it, a wrong password would send people to look for a Redis that is on."""
    wrong = redis_server.url.replace("redis://", "redis://:canary-password@")
    with told_to(redis_server, "requirepass", "another", ""):
        for url in (redis_server.url, wrong):
            client, impatient = OnlineClient(url, {USERS.table: USERS}), OnlineStore(url, (60.0,))
            other = AsyncOnlineClient(url, {USERS.table: USERS})
            question: Any = ([{"user_id": "1"}], ["gold.users"])
            with pytest.raises(OnlineRefusedError, match=LOGIN) as told:
                client.get_online_features(*question)
            assert "canary" not in str(told.value)
            with pytest.raises(OnlineRefusedError, match=LOGIN):
                asyncio.run(other.get_online_features(*question))
            with pytest.raises(OnlineRefusedError, match=LOGIN):
                impatient.instance()
            assert not client.answers()
        for address in served(wrong):
            status, text = ask(address, "/features", {"entities": [{"user_id": "1"}], "features": ["gold.users"]})
            assert (status, "is not taken" in text, "canary" in text) == (503, True, False)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (exceptions.ResponseError("MISCONF Errors writing to the AOF file: No space left on device"), "room on its disk"),
        (exceptions.ReadOnlyError("You can't write against a read only replica."), "a copy, which only reads"),
        (exceptions.NoPermissionError("this user has no permissions to run the 'eval' command"), "may not do this"),
        (exceptions.ResponseError("Command # 1 (SET user:canary 5) of pipeline caused error: ERR"), r"\(ResponseError\)"),
    ],
)  # fmt: skip
def test_what_it_refuses_is_told_without_its_words(error: Exception, why: str) -> None:
    """Without it, a message would quote rows, or say nothing that helps."""
    said = failed("redis://me:canary@host/0", error)
    assert isinstance(said, OnlineRefusedError)
    assert re.search(why, str(said))
    assert "canary" not in str(said)
