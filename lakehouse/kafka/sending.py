"""Sending messages to a topic: in the order of each partition, at a steady pace or as fast as it goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from lakehouse.errors import SourceDownError
from lakehouse.kafka.address import Address

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

SECONDS = 60.0  # that the broker has to take a message; it may be started again meanwhile
_LATEST = 0.2  # seconds that a paced message may wait for the ones after it
_SOONEST = 0.001  # seconds; the client waits whole milliseconds, and spins through less


def send(
    address: Address,
    topic: str,
    messages: Iterable[tuple[int, bytes | None, bytes]],
    pace: float | None = None,
    told: Callable[[int], None] = lambda _: None,
) -> int:
    """Send messages and wait until the broker has all of them; returns how many that were.

    What a broker took twice after a lost answer, it stores once, and a partition has its messages in this order.

    Args:
        address: of the brokers.
        topic: which has to be there.
        messages: partition, key and value of each.
        pace: messages a second; None: as fast as it goes.
        told: called now and then with how many were handed over.

    Raises:
        SourceDownError: the broker did not take a message for a minute; those before it may be there.
    """
    from confluent_kafka import Producer

    failed: list[KafkaError] = []

    def taken(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    settings = {
        **address.for_client(),
        "enable.idempotence": True,
        "linger.ms": 20,
        "message.timeout.ms": int(SECONDS * 1000),
        "topic.metadata.propagation.max.ms": 5000,  # then a topic that nobody knows does not exist
        "delivery.report.only.error": True,
    }
    producer = Producer(settings)
    sent, began = 0, time.monotonic()
    try:
        for partition, key, value in messages:
            if failed:
                break
            if pace is not None:
                _wait(producer.poll, began + sent / pace)
            while True:
                with suppress(BufferError):  # as many wait as may: until the broker has taken some
                    producer.produce(topic, value, key, partition, on_delivery=taken)
                    break
                producer.poll(0.1)
            sent += 1
            if sent % 1000 == 0:
                producer.poll(0)
                told(sent)
    finally:
        left = producer.flush(SECONDS)
    if failed or left:
        why = failed[0].str() if failed else "it does not answer"
        raise SourceDownError(
            f"The broker at {address.servers} did not take all of {sent:,} messages to {topic}: {why}."
        )
    return sent


def _wait(poll: Callable[[float], int], until: float) -> None:
    while (left := until - time.monotonic()) > 0:
        poll(max(_SOONEST, min(left, _LATEST)))
