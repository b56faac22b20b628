"""How alerts are sent: by signed posts, to receivers that hang, are down or lead elsewhere."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from lakehouse.orchestration.alerts import sensor
from lakehouse.orchestration.alerts.message import ERROR, FAILED, Message
from lakehouse.orchestration.alerts.problems import News
from lakehouse.orchestration.alerts.sensor import Look, _send
from lakehouse.orchestration.alerts.sinks import SinkError, WebhookSink, signature
from lakehouse.orchestration.alerts.store import opened_store
from lakehouse_tests.orchestration.receiver import DRIPPING, SLOW, Receiver

MESSAGE = Message(FAILED, ERROR, "silver.orders", "row_count", "team:shop", ("2011-03-01",), "it failed", "run", 1.5)


def test_a_receiver_can_tell_that_a_message_is_genuine_and_fresh(receiver: Receiver) -> None:
    """Without it, anybody who finds the address could send alerts, or send old ones again."""
    WebhookSink(SecretStr(receiver.url()), {}, SecretStr("key")).send(MESSAGE)
    ((_, headers, body),) = receiver.posts
    assert headers["X-Lakehouse-Signature"] == signature("key", headers["X-Lakehouse-Timestamp"], body)
    assert abs(time.time() - int(headers["X-Lakehouse-Timestamp"])) < 60
    assert signature("key", "1", body) != signature("key", "2", body)
    # `openssl dgst -sha256 -hmac key` over `1.{}` gives this.
    assert signature("key", "1", b"{}") == "sha256=1ba6b8171186efc613e8bcc0cbdab2748f24984d7c5a84faa2637afa0e40d224"


@pytest.mark.parametrize("how", [SLOW, DRIPPING])
def test_a_receiver_that_does_not_answer_in_time_is_no_receiver(receiver: Receiver, how: int) -> None:
    """Without it, a hung chat tool would hang the sensor, and every other alert with it."""
    receiver.answers, receiver.delay = [how] * 3, 1.5
    began = time.monotonic()
    with pytest.raises(SinkError, match=r"no answer \(LAKEHOUSE_ALERT_TIMEOUT was over\)") as caught:
        WebhookSink(SecretStr(receiver.url()), {}, timeout=0.2, pause=0.01).send(MESSAGE)
    assert caught.value.passing
    assert time.monotonic() - began < 3 * receiver.delay, "it waited for the answers"
    assert len(receiver.posts) == 3


def test_receivers_that_hang_hold_up_nobody_for_longer_than_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, two of them would take every look, and neither other owners nor the log would get an alert."""
    asked = list[str]()
    monkeypatch.setattr(sensor, "_UNHEARD", {})

    class Hanging:
        def target(self, message: Message) -> str:
            return message.owner

        def send(self, message: Message) -> None:
            asked.append(message.owner)
            if message.owner != "well":
                time.sleep(0.4)
                raise SinkError("no answer", passing=True)

    with opened_store(tmp_path / "alerts.db") as store:
        with store.transaction():
            owners = ["hangs", "too", "third", "well"]
            store.take(News([], [], [replace(MESSAGE, owner=owner) for owner in owners]), ["webhook"])
        for _ in range(3):
            _send(store, {"webhook": Hanging()}, Look(), time.monotonic() + 0.7)
    assert asked == ["hangs", "too", "third", "well", "hangs", "too", "third"]


def test_nobody_there_is_told_without_the_address() -> None:
    """Without it, the address, whose path is a password, would be in the error of the tick."""
    with pytest.raises(SinkError) as caught:
        WebhookSink(SecretStr("http://127.0.0.1:9/secret-path"), {}, pause=0.01).send(MESSAGE)
    assert str(caught.value) == "no answer (the connection was refused)"
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/sécret", "http://hooks..secret.org/x", "http://[::1/secret"])
def test_an_address_that_cannot_be_used_holds_up_nobody_else(tmp_path: Path, receiver: Receiver, address: str) -> None:
    """Without it, an owner's typing mistake would end each look with an error, and no owner would get an alert."""
    with opened_store(tmp_path / "alerts.db") as store:
        with store.transaction():
            store.take(News([], [], [MESSAGE, replace(MESSAGE, owner="team:other")]), ["webhook"])
        sinks = {"webhook": WebhookSink(SecretStr(receiver.url()), {"team:shop": SecretStr(address)})}
        done = Look()
        _send(store, sinks, done, time.monotonic() + 60)
    assert [each["owner"] for each in receiver.bodies] == ["team:other"]
    (told,) = done.problems
    assert "its address cannot be used" in told
    assert "cret" not in told


def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    """Without it, the message would be taken for sent by a page that asks for a login."""
    receiver.answers = [302]
    with pytest.raises(SinkError, match="HTTP 302"):
        WebhookSink(SecretStr(receiver.url()), {}).send(MESSAGE)
    assert [path for path, *_ in receiver.posts] == ["/hook"]
