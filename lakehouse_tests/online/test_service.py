"""The service over HTTP: it answers on loopback, says what is missing, and is measured."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import uvicorn

from lakehouse.online.service import service
from lakehouse.online.sets import FeatureSet, milliseconds
from lakehouse_tests.fixtures.redis import RedisServer

KINDS = {"orders": "bigint", "amount": "decimal(18,2)", "last": "timestamp", "share": "double"}
USERS = FeatureSet("gold.users", "user", {"user_id": "string"}, KINDS, timedelta(days=7), 1, "0123456789ab")
EVENT = datetime(2026, 3, 2, tzinfo=UTC)


def ask(address: str, path: str, question: Any = None) -> tuple[int, str]:
    """What is answered: status and body."""
    body = None if question is None else json.dumps(question).encode()
    request = urllib.request.Request(address + path, body, {"Content-Type": "application/json"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def served(url: str) -> Iterator[str]:
    """The service on a free port, in a thread."""
    app = service(url, {USERS.table: USERS}, (EVENT + timedelta(days=1)).timestamp)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture
def address(redis_server: RedisServer) -> Iterator[str]:
    with redis_server.empty() as store:
        row = USERS.pack(milliseconds(EVENT), 4, [3, Decimal("2.50"), EVENT, float("nan")])
        store.put(USERS, [(USERS.redis_key(["1"]), store.now() + 10**7, row)], 4)
        yield from served(redis_server.url)


@pytest.fixture
def nowhere() -> Iterator[str]:
    """A service whose Redis is down."""
    yield from served("redis://u:canary-password@127.0.0.1:1/0")


def test_features_come_with_their_status(address: str) -> None:
    wanted = {"entities": [{"user_id": "1"}, {"user_id": "2"}], "features": ["gold.users"]}
    status, text = ask(address, "/features", wanted)
    assert status == 200
    one, two = json.loads(text)["vectors"]
    assert one["gold.users:amount"] == {
        "status": "present", "value": "2.50", "event_time": "2026-03-02T00:00:00+00:00", "delta_version": 4,
        "code_version": "0123456789ab",
    }  # fmt: skip
    assert one["gold.users:last"]["value"] == "2026-03-02T00:00:00+00:00"
    assert one["gold.users:share"]["value"] == "nan"
    assert {each["status"] for each in two.values()} == {"missing"}
    assert {each["value"] for each in two.values()} == {None}
    stale = json.loads(ask(address, "/features", {**wanted, "max_age_seconds": 60})[1])["vectors"][0]
    assert {each["status"] for each in stale.values()} == {"stale"}
    metrics = ask(address, "/metrics")[1]
    assert 'lakehouse_online_features_total{status="present"} 4.0' in metrics
    assert 'lakehouse_online_features_total{status="stale"} 4.0' in metrics
    assert 'lakehouse_online_requests_total{outcome="answered"} 2.0' in metrics


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ({"entities": [{"user_id": "1"}], "features": ["gold.nothing"]}, "There are: gold.users"),
        ({"entities": [{"user": "1"}], "features": ["gold.users"]}, "has no 'user_id'"),
        ({"entities": [{"user_id": None}], "features": ["gold.users"]}, "user_id"),
        ({"entities": [{"user_id": 1.5}], "features": ["gold.users"]}, "user_id is a string"),
        ({"entities": [{"user_id": "\ud800"}], "features": ["gold.users"]}, "user_id is a string"),  # half a character
        ({"entities": [{"user_id": "1"}] * 1001, "features": ["gold.users"]}, "1000"),
        ({"entities": [], "features": []}, "features"),
        ({"entities": [], "features": ["gold.users"], "fresh": 1}, "fresh"),
        ([], "dictionary"),
    ],
)
def test_a_wrong_question_is_told_what_is_wrong(address: str, question: Any, told: str) -> None:
    status, text = ask(address, "/features", question)
    assert (status, told in text) == (422, True), text


def test_it_describes_itself_and_says_how_it_is(address: str) -> None:
    description = json.loads(ask(address, "/openapi.json")[1])
    assert set(description["paths"]) == {"/features", "/health", "/metrics"}
    assert ask(address, "/health") == (200, '{"redis":true,"tables":["gold.users"]}')


def test_a_redis_that_is_down_is_told(nowhere: str) -> None:
    """Without it, an outage would look like users of whom nothing is known, or the answer would show the password."""
    assert ask(nowhere, "/health")[0] == 503
    status, text = ask(nowhere, "/features", {"entities": [{"user_id": "1"}], "features": ["gold.users"]})
    assert status == 503
    assert "does not answer at redis://127.0.0.1:1/0" in text
    assert "canary" not in text
    assert 'lakehouse_online_requests_total{outcome="down"} 1.0' in ask(nowhere, "/metrics")[1]
