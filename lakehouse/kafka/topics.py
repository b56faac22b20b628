"""Topics of a broker: what there is, and how one is made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehouse.errors import SourceDownError, SourceError, UsageError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

SCHEME = "kafka://"
SECONDS = 30.0  # that a broker has for an answer
_ADDRESS = re.compile(rf"{SCHEME}([^\s/,:]+:\d+(?:,[^\s/,:]+:\d+)*)/?")
# What a client says of lost connections goes to those who ask, by errors, and not to the terminal.
QUIET: Mapping[str, Any] = {"log_level": 0, "error_cb": lambda _: None}


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


def servers_of(url: str) -> str:
    """What Kafka's clients call `bootstrap.servers`, of an address such as kafka://127.0.0.1:9092.

    Raises:
        UsageError: it is none.
    """
    if found := _ADDRESS.fullmatch(url):
        return found[1]
    told = re.sub(r"//[^@]*@", "//…@", url)  # a login is for what is read, and may hold a password
    raise UsageError(f"{told!r} is not the address of a broker without a login, such as {SCHEME}127.0.0.1:9092")


def admin(servers: str) -> AdminClient:
    """A client that administers; it connects when it is asked something."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": servers, **QUIET})


def answers(servers: str, seconds: float = SECONDS) -> bool:
    """Whether a broker answers within some seconds, and is ready to store."""
    from confluent_kafka import KafkaException

    try:
        return bool(admin(servers).list_topics(timeout=seconds).brokers)
    except KafkaException:
        return False


def topics(servers: str) -> list[TopicState]:
    """The topics by name, without the broker's own.

    Raises:
        SourceDownError: the broker does not answer.
    """
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    client = admin(servers)
    found = {name: len(each.partitions) for name, each in _listed(client, servers).items() if name[:2] != "__"}
    places = [TopicPartition(name, number) for name, count in found.items() for number in range(count)]
    counts = dict.fromkeys(found, 0)
    ends: list[tuple[OffsetSpec, int]] = [(OffsetSpec.latest(), 1), (OffsetSpec.earliest(), -1)]  # type: ignore[no-untyped-call]
    for spec, sign in ends:
        asked = client.list_offsets(dict.fromkeys(places, spec), request_timeout=SECONDS) if places else {}
        for place, answer in asked.items():
            counts[place.topic] += sign * answer.result().offset
    return [TopicState(name, found[name], counts[name]) for name in sorted(found)]


def ensure_topic(servers: str, name: str, partitions: int | None = None) -> int:
    """Make a topic where there is none; returns how many partitions it has.

    Args:
        servers: of the broker.
        name: of the topic.
        partitions: that it is to have; None: as many as it has, or one.

    Raises:
        SourceDownError: the broker does not answer.
        SourceError: the broker refuses, for instance for the name.
        UsageError: it is there with another number of partitions.
    """
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    client = admin(servers)
    if (there := _listed(client, servers).get(name)) is None:
        try:
            client.create_topics([NewTopic(name, partitions or 1, 1)], request_timeout=SECONDS)[name].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise SourceError(f"Topic {name} could not be made: {error.args[0].str()}") from error
            return ensure_topic(servers, name, partitions)
        return partitions or 1
    found = len(there.partitions)
    if partitions not in (None, found):
        raise UsageError(f"Topic {name} has {found} partitions, not {partitions}: leave --partitions out.")
    return found


def _listed(client: AdminClient, servers: str) -> dict[str, Any]:
    from confluent_kafka import KafkaException

    try:
        return dict(client.list_topics(timeout=SECONDS).topics)
    except KafkaException as error:
        raise SourceDownError(f"No Kafka broker answers at {servers}. Start one: lakehouse kafka start") from error
