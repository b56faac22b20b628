"""Loads of features that are killed, and a Redis that is killed under them: what is there afterwards is what Delta has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from lakehouse.errors import OnlineDownError
from lakehouse.online import load as module
from lakehouse.online.load import Loaded, load
from lakehouse.online.parity import Certificate, verify
from lakehouse.online.sets import FeatureSet
from lakehouse.online.store import OnlineStore
from lakehouse.read.lake import Lake
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.faults.loading import slow
from lakehouse_tests.fixtures.profiles import DAYS, TABLE, noon, profiles, publish
from lakehouse_tests.fixtures.redis import RedisServer

pytestmark = [pytest.mark.slow, pytest.mark.crash]
TUE, WED = DAYS[1], DAYS[2]
USERS = 4000


@pytest.fixture
def made(lake: LakeFactory) -> Lake:
    """Of each user a row of Tuesday, and of every second one of Wednesday, too."""
    found = lake(profiles())
    publish(found, TUE, {f"u{n}": n for n in range(USERS)})
    publish(found, WED, {f"u{n}": n + 1 for n in range(0, USERS, 2)})
    return found


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[OnlineStore]:
    with redis_server.empty() as found:
        yield found


def in_the_middle(made: Lake, redis_server: RedisServer, is_on: Callable[[], bool]) -> None:
    """Wait until some rows are in, and not all."""
    with redis_server.plain() as client:
        deadline = time.monotonic() + 120
        while client.dbsize() < USERS // 10:
            assert time.monotonic() < deadline
            assert is_on(), "the load has ended before its time"
            time.sleep(0.01)
        assert client.dbsize() < USERS, "the load was to be in the middle"
        assert client.exists(FeatureSet.of(made.table(TABLE)).floor)


@contextmanager
def loading(made: Lake, redis_server: RedisServer, told: list[str]) -> Iterator[Future[Loaded]]:
    """A slow load in the middle, beside this thread."""
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as pool:
        patch.setattr(module, "_writer", slow(module._writer))
        done = pool.submit(load, made, redis_server.url, made.table(TABLE), noon(WED), told=told.append)
        in_the_middle(made, redis_server, lambda: not done.done())
        yield done


def certificate(made: Lake, store: OnlineStore) -> Certificate:
    return verify(made, store, made.table(TABLE), noon(WED), sample=None)


def test_a_load_that_is_killed_is_gone_on_with(made: Lake, store: OnlineStore, redis_server: RedisServer) -> None:
    """Without it, a killed load would leave rows of two versions side by side, or need a rebuild."""
    command = [sys.executable, "-W", "ignore", "-m", "lakehouse_tests.faults.loading"]
    with subprocess.Popen(
        [*command, str(made.settings.root), redis_server.url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            in_the_middle(made, redis_server, lambda: process.poll() is None)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    before = certificate(made, store)
    assert 0 < before.online < USERS == before.entities
    assert before.mismatched == 0, "what is there is right"
    # A correction comes before it is gone on with: half of the users have no row any more.
    publish(made, TUE, {f"u{n}": n for n in range(USERS // 2)})
    done = load(made, redis_server.url, made.table(TABLE), noon(WED))
    after = certificate(made, store)
    assert after.passed, [each.text() for each in after.mismatches]
    assert done.put.written + done.put.same == after.entities == after.online


def test_a_redis_that_is_killed_and_comes_back_has_everything(
    made: Lake, store: OnlineStore, redis_server: RedisServer
) -> None:
    """Without it, the second that Redis lost would be missing, and the load would have been told that it is there."""
    told: list[str] = []
    with loading(made, redis_server, told) as done:
        redis_server.kill()
        redis_server.start()
    assert done.result().attempts == 2
    assert "the load begins again" in "".join(told)
    after = certificate(made, store)
    assert after.passed, [each.text() for each in after.mismatches]


def test_a_redis_that_stays_down_fails_the_load_in_a_sentence(
    made: Lake, store: OnlineStore, redis_server: RedisServer
) -> None:
    """Without it, a load would hang, or end in a traceback of the engine's."""
    try:
        with loading(made, redis_server, []) as done:
            redis_server.kill()
        with pytest.raises(OnlineDownError, match=r"Redis does not answer at redis://127.0.0.1:\d+"):
            done.result()
    finally:
        redis_server.start()
    load(made, redis_server.url, made.table(TABLE), noon(WED))
    assert certificate(made, store).passed
