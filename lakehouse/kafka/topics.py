"""Topics of a broker: what there is, and how one is made."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from lakehouse.errors import SourceDownError, SourceError, UsageError
from lakehouse.kafka.address import Address
from lakehouse.kafka.asking import Asking, RefusedError

SECONDS = 30.0  # that a broker has for an answer
_LOOK = 2.0  # that it has between two looks whether it refuses


@dataclass(frozen=True)
class TopicState:
    """A topic as its broker has it.

    Attributes:
        name: what it is called.
        partitions: how many it has.
        messages: that can be read: offsets from the first to the last of each partition.
    """

    name: str
    partitions: int
    messages: int


def answers(address: Address, seconds: float = SECONDS) -> bool:
    """Whether a broker answers within some seconds, and is ready to store."""
    from confluent_kafka import KafkaException

    try:
        with Asking(address) as asking:
            return bool(asking.client.list_topics(timeout=seconds).brokers)
    except KafkaException:
        return False


def topics(address: Address) -> list[TopicState]:
    """The topics by name, without the broker's own.

    Raises:
        SourceDownError: the broker does not answer.
    """
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    with Asking(address) as asking:
        found = {name: len(each.partitions) for name, each in _listed(asking, address).items() if name[:2] != "__"}
        places = [TopicPartition(name, number) for name, count in found.items() for number in range(count)]
        counts = dict.fromkeys(found, 0)
        ends: list[tuple[OffsetSpec, int]] = [(OffsetSpec.latest(), 1), (OffsetSpec.earliest(), -1)]  # type: ignore[no-untyped-call]
        for spec, sign in ends:
            wanted = dict.fromkeys(places, spec)
            asked = asking.client.list_offsets(wanted, request_timeout=SECONDS) if places else {}
            for place, answer in asked.items():
                counts[place.topic] += sign * answer.result().offset
    return [TopicState(name, found[name], counts[name]) for name in sorted(found)]


def ensure_topic(address: Address, name: str, partitions: int | None = None) -> int:
    """Make a topic where there is none; returns how many partitions it has.

    Args:
        address: of the brokers.
        name: of the topic.
        partitions: that it is to have; None: as many as it has, or one.

    Raises:
        SourceDownError: the broker does not answer.
        SourceError: the broker refuses, for instance for the name.
        UsageError: it is there with another number of partitions.
    """
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    with Asking(address) as asking:
        if (there := _listed(asking, address).get(name)) is None:
            made = asking.client.create_topics([NewTopic(name, partitions or 1, 1)], request_timeout=SECONDS)
            try:
                made[name].result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise SourceError(f"Topic {name} could not be made: {error.args[0].str()}") from error
                return ensure_topic(address, name, partitions)
            _wait_until_told(asking, address, name)
            return partitions or 1
    found = len(there.partitions)
    if partitions not in (None, found):
        raise UsageError(f"Topic {name} has {found} partitions, not {partitions}: leave --partitions out.")
    return found


def _wait_until_told(asking: Asking, address: Address, name: str) -> None:
    """A broker that has made a topic tells of it, and of its partitions, a moment later."""
    until = time.monotonic() + SECONDS
    while (told := _listed(asking, address).get(name)) is None or not told.partitions:
        if time.monotonic() >= until:
            raise SourceError(f"Topic {name} was made, but the broker at {address.servers} does not tell of it.")
        time.sleep(0.02)


def _listed(asking: Asking, address: Address) -> dict[str, Any]:
    from confluent_kafka import KafkaException

    until = time.monotonic() + SECONDS
    while True:
        try:
            return dict(asking.client.list_topics(timeout=_LOOK).topics)
        except KafkaException as error:
            try:
                asking.check()
            except RefusedError as refused:
                raise SourceError(f"{refused}.") from None
            if time.monotonic() >= until:
                why = asking.hint()
                raise SourceDownError(
                    f"No Kafka broker answers at {address.servers}{why}. Start one: lakehouse kafka start"
                ) from error
