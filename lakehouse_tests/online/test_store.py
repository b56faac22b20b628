"""The online store: which row wins, whoever writes when."""

from __future__ import annotations

import itertools
import multiprocessing
import random
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from lakehouse.errors import OnlineDownError, OnlineError, SettingsError
from lakehouse.online.address import redis_url, shown
from lakehouse.online.sets import FeatureSet, milliseconds, moment_of, unpack
from lakehouse.online.store import EVERYTHING, NEVER, OnlineStore, Put
from lakehouse.settings import Settings
from lakehouse_tests.fixtures.redis import RedisServer

USERS = FeatureSet("gold.users", "user", {"user_id": "string"}, {"n": "bigint"}, timedelta(days=7), 1, "0123456789ab")
LATER = 3_600_000


def row(store: OnlineStore, user: str, event: int, version: int, n: int = 0) -> tuple[str, int, bytes]:
    return USERS.redis_key([user]), store.now() + LATER, USERS.pack(event, version, [n])


def put(store: OnlineStore, event: int, version: int, known: int | None = None, user: str = "1", n: int = 0) -> Put:
    return store.put(USERS, [row(store, user, event, version, n)], version, known)


def held(store: OnlineStore, user: str = "1") -> tuple[int, int] | None:
    [found] = store.values([USERS.redis_key([user])])
    return unpack(found)[:2] if found is not None else None


START = """
import sys, time
from pathlib import Path
from lakehouse.online.server import start
from lakehouse.settings import Settings
time.sleep(0.3)
start(Settings(root=Path(sys.argv[1])))
"""
WRITTEN, SAME, OLDER = Put(1, 0, 0), Put(0, 1, 0), Put(0, 0, 1)


def test_the_later_event_time_wins_and_of_one_the_later_version(store: OnlineStore) -> None:
    """Without it, a slow backfill would take the place of a newer row."""
    assert put(store, 10, 5) == WRITTEN
    assert put(store, 9, 8) == OLDER, "an older day, however late it was published"
    assert put(store, 10, 4) == OLDER
    assert put(store, 10, 5) == SAME
    assert held(store) == (10, 5)
    assert put(store, 10, 6) == WRITTEN
    assert put(store, 11, 2) == WRITTEN, "a later day, from whatever version"
    assert held(store) == (11, 2)


def test_who_has_read_the_whole_table_may_take_back_what_is_gone(store: OnlineStore) -> None:
    """Without it, a corrected row would be served until it expires."""
    put(store, 10, 5)
    assert put(store, 9, 6, known=9) == OLDER, "it has not read the day of the row that is there"
    assert put(store, 9, 5, known=EVERYTHING) == OLDER
    assert put(store, 9, 6, known=EVERYTHING) == WRITTEN
    assert held(store) == (9, 6)


def test_a_slower_load_of_an_older_version_brings_nothing_back(store: OnlineStore) -> None:
    """Without it, a row that a correction took out would come back, with nothing there that says it is old."""
    assert store.begin(USERS, 5, EVERYTHING, "a") == 5
    put(store, 10, 5, EVERYTHING, user="gone")
    assert store.begin(USERS, 6, EVERYTHING, "a") == 6
    put(store, 10, 6, EVERYTHING, user="stays")
    assert store.sweep(USERS, 6, EVERYTHING) == 1
    assert put(store, 10, 5, EVERYTHING, user="gone") == OLDER
    assert held(store, "gone") is None
    assert held(store, "stays") == (10, 6)
    assert store.begin(USERS, 5, EVERYTHING, "a") == 6, "it is told that a newer one has begun"
    with pytest.raises(OnlineError, match="lakehouse online rebuild gold.users"):
        store.begin(USERS, 0, EVERYTHING, "another table of that name")


def test_a_load_up_to_a_day_leaves_later_ones_alone(store: OnlineStore) -> None:
    store.begin(USERS, 7, 100, "a")
    put(store, 200, 3)
    assert store.sweep(USERS, 7, 100) == 0
    assert held(store) == (200, 3)


@given(st.data())
def test_any_order_of_writes_ends_in_one_state(redis_server: RedisServer, data: Any) -> None:
    """Without it, what is served would depend on who was faster."""
    rows = data.draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8, unique=True))
    with redis_server.empty() as store:
        for event, version in rows:
            put(store, event, version)
        assert held(store) == max(rows)


def write(url: str, versions: list[int], seed: int) -> None:
    """As one of several processes: days of each version, shuffled, a few rows at a time."""
    store, rng = OnlineStore(url), random.Random(seed)
    work = list(itertools.product(versions, range(5), range(20)))
    rng.shuffle(work)
    for version, day, user in work:
        put(store, day * 10, version, user=str(user), n=version)


def test_processes_that_race_leave_the_newest_of_each(redis_server: RedisServer, store: OnlineStore) -> None:
    """Without it, two loads between read and write would each take the other's row for older."""
    context = multiprocessing.get_context("fork")
    racers = [context.Process(target=write, args=(redis_server.url, [i, i + 3], i)) for i in range(4)]
    for each in racers:
        each.start()
    for each in racers:
        each.join(60)
        assert each.exitcode == 0
    assert {held(store, str(user)) for user in range(20)} == {(40, 6)}


def test_a_row_goes_when_its_time_has_come(store: OnlineStore) -> None:
    key = USERS.redis_key(["1"])
    store.put(USERS, [(key, store.now() + 30, USERS.pack(1, 1, [1]))], 1)
    assert held(store) == (1, 1)
    deadline = time.monotonic() + 10
    while held(store) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_row_that_is_there_goes_when_the_last_load_says(store: OnlineStore, redis_server: RedisServer) -> None:
    """Without it, a row as of a moment that stands still was gone a few days after a load, or one of today stayed."""
    from redis import Redis

    key, packed, later = USERS.redis_key(["1"]), USERS.pack(10, 5, [1]), store.now() + LATER
    with Redis.from_url(redis_server.url) as client:
        for until, told in ((later, WRITTEN), (NEVER, SAME), (later + 1000, SAME), (NEVER, SAME)):
            assert store.put(USERS, [(key, until, packed)], 5) == told
            assert client.pexpiretime(key) == until
        store.put(USERS, [(key, later, USERS.pack(9, 5, [1]))], 5)
        assert client.pexpiretime(key) == NEVER, "an older row decides nothing"


def test_a_new_definition_has_keys_of_its_own(store: OnlineStore) -> None:
    """Without it, a model would be served columns of one meaning under the name of another."""
    put(store, 10, 5)
    changes: tuple[dict[str, Any], ...] = ({"code_version": "ba9876543210"}, {"schema_version": 2})
    for other in changes:
        new = replace(USERS, **other)
        assert store.values([new.redis_key(["1"])]) == [None]
        assert list(store.keys(new.pattern)) == []
    assert list(store.keys(USERS.pattern)) == [USERS.redis_key(["1"])]
    assert store.drop(USERS) == 1


def test_values_come_out_as_they_went_in() -> None:
    kinds = {
        "amount": "decimal(18,2)", "at": "timestamp", "day": "date", "n": "bigint", "share": "double", "name": "string",
        "is": "boolean", "none": "bigint",
    }  # fmt: skip
    features = FeatureSet("gold.x", "x", {"id": "string"}, kinds, timedelta(days=1), 1, "0123456789ab")
    moment = datetime(2011, 8, 31, 23, 59, 59, 999999, tzinfo=UTC)
    values = [Decimal("123456789012345.10"), moment, date(2011, 8, 31), 2**62 + 1, 0.1 + 0.2, 'é"\n', True, None]
    record = unpack(features.pack(7, 3, values))
    assert record[:3] == (7, 3, "0123456789ab")
    decoded = [
        value if decode is None or value is None else decode(value)
        for value, decode in zip(record.values, features.decoders.values(), strict=True)
    ]
    assert decoded == values
    assert moment_of(milliseconds(datetime(2011, 9, 1, tzinfo=UTC))) == datetime(2011, 9, 1, tzinfo=UTC)


@pytest.mark.slow
def test_a_store_that_comes_back_is_gone_on_with(redis_server: RedisServer, store: OnlineStore) -> None:
    """Without it, a restart of a second would fail a load of an hour; without an end, it would hang for ever."""
    put(store, 10, 5)
    time.sleep(1.2)  # its files are a second behind at most
    before = store.instance()
    redis_server.kill()
    impatient = OnlineStore(
        "redis://user:canary-password@" + shown(address(redis_server)).removeprefix("redis://"), (0.01, 0.01)
    )
    with pytest.raises(OnlineDownError, match=r"does not answer at redis://127.0.0.1:\d+/0") as told:
        impatient.instance()
    assert "canary" not in repr(told.value) + repr(impatient)
    starter = subprocess.Popen([sys.executable, "-c", START, str(redis_server.root)])
    patient = OnlineStore(address(redis_server), (0.1,) * 200)
    assert put(patient, 11, 5) == WRITTEN
    assert starter.wait(30) == 0
    assert held(patient) == (11, 5)
    assert patient.instance() != before


def address(server: RedisServer) -> str:
    """Where it listens, also while it is off."""
    import json

    return f"redis://127.0.0.1:{json.loads((server.root / 'redis' / 'redis.json').read_text())['port']}/0"


def test_a_password_is_shown_to_nobody(tmp_path: Any) -> None:
    assert shown("rediss://me:secret@host:6379/1") == "rediss://host:6379/1"
    assert shown("redis://host") == "redis://host"
    with pytest.raises(SettingsError) as told:
        redis_url(Settings(root=tmp_path, redis_url=SecretStr("http://me:secret@host")))
    assert "secret" not in str(told.value)
    with pytest.raises(OnlineDownError, match="lakehouse redis start"):
        redis_url(Settings(root=tmp_path))
