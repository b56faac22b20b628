"""Kafka topics: what their brokers say of them, and their messages through Spark.

Brokers are asked by the driver, with librdkafka, how far each partition reaches; the messages of a range of offsets are
read by Spark, in parallel. No consumer group is used: which messages were taken, the table's own log says.

Only committed messages are read. The end of a partition is where its first open transaction begins, so that a batch
never waits for a producer, and never skips one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING

from pydantic import SecretStr
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.contracts import Topic
from lakehouse.errors import SourceDownError, SourceError
from lakehouse.kafka.address import address_of
from lakehouse.kafka.asking import Asking, RefusedError, refused_by
from lakehouse.sources.json_lines import json_rows
from lakehouse.sources.lines import text_of
from lakehouse.sources.spans import Found, Part, Span, messages_in
from lakehouse.transforms.columns import as_data, masked, may_hold_address, token_key, utc_timestamp

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

PATIENCE = 20  # seconds that brokers have to answer
_DIGITS = 5  # of a partition's number at least
A_TASK = 5_000  # messages that one task reads and writes quicker than several, into fewer files
BACK_DAYS = 400  # what is older moves no watermark: it comes from a dead clock
_DOWN = re.compile(
    r"TimeoutException|DisconnectException|Timeout expired|not available|Connection to node|NetworkException"
    r"|NotLeader|LeaderNotAvailable|Failed to get records for compacted|timed out",
)
# What Kafka's protocol calls retriable of where a partition is led, as while a broker starts; the client does not say.
_NOT_READY = frozenset({
    "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "BROKER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "NOT_CONTROLLER", "KAFKA_STORAGE_ERROR", "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH", "OFFSET_NOT_AVAILABLE",
})  # fmt: skip
_LOST = re.compile(r"OffsetOutOfRange|offsets? .{0,40}out of range|data loss|KafkaIllegalState|may have been lost")
# What is kept of a message beside its line.
_ASIDE = (
    "_arrived_at", "_topic", "_partition", "_offset", "_key", "_headers", "_source_file", "_source_row", "_none",
)  # fmt: skip


class Brokers:
    """The source of a `Topic`.

    Args:
        url: `kafka://host:port[,host:port]`, or with a login and encrypted (`lakehouse.kafka.address`).
        topic: which topics, and how their messages are read.

    Raises:
        SettingsError: it is no such address.
    """

    def __init__(self, url: SecretStr, topic: Topic) -> None:
        self._address = address_of(url, topic.setting)
        self._topic = topic

    def found(self) -> dict[str, Found]:
        """Every topic of the contract as it is now.

        Raises:
            SourceDownError: no broker answers at the moment.
            SourceError: a topic does not exist, or the brokers refuse.
        """
        from confluent_kafka import KafkaException, TopicCollection

        with Asking(self._address) as asking:
            try:
                asked = asking.client.describe_topics(
                    TopicCollection(list(self._topic.topics)), request_timeout=PATIENCE
                )
                asking.wait(asked.values())
                if gone := [name for name, each in asked.items() if _is_unknown(_said_by(each.exception()))]:
                    raise self._no_topic(", ".join(gone))
                told = {name: future.result() for name, future in asked.items()}
                numbers = {name: [each.id for each in one.partitions] for name, one in told.items()}
                # First the beginnings, then the ends: what retention takes in between is noticed, not mistaken for
                # more.
                first, end = (_offsets(asking.client, numbers, newest=newest) for newest in (False, True))
            except RefusedError as error:
                raise self._kept_out(str(error)) from None
            except KafkaException as error:
                raise self._refused(error, asking) from None
        return {
            name: Found(str(one.topic_id), {n: Part(first[name, n], end[name, n]) for n in numbers[name]})
            for name, one in told.items()
        }

    def compacted(self) -> list[str]:
        """The topics that drop older messages of a key by themselves, of those whose settings the brokers tell."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType

        found = []
        with Asking(self._address) as asking:
            wanted = [ConfigResource(ResourceType.TOPIC, name) for name in self._topic.topics]
            for each, told in asking.client.describe_configs(wanted, request_timeout=PATIENCE).items():
                with suppress(KafkaException):  # who may read messages need not have the right to see settings
                    if "compact" in told.result()["cleanup.policy"].value:
                        found.append(each.name)
        return found

    def messages(
        self, spark: SparkSession, spans: Sequence[Span], restarts: Mapping[str, int] = MappingProxyType({})
    ) -> DataFrame:
        """One row a message: the topic's columns as text, `_rescued`, and how the message came (`MESSAGE`).

        Beside them `_arrival_date`, `_source_file` (topic and partition) and `_source_row` (the offset), as landed
        lines have them. Addresses are replaced and personal fields left out as in landed lines. `_arrived_at` is null
        where the topic keeps the time of its producers; `_topic_id` is the caller's to add.

        Args:
            spark: the engine.
            spans: which messages.
            restarts: by topic, how often its offsets have begun again.
        """
        options = {
            **self._address.for_spark(),
            "assign": json.dumps(_by_topic({(s.topic, s.partition): s.partition for s in spans}, lists=True)),
            "startingOffsets": json.dumps(_by_topic({(s.topic, s.partition): s.start for s in spans})),
            "endingOffsets": json.dumps(_by_topic({(s.topic, s.partition): s.end for s in spans})),
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            "kafka.isolation.level": "read_committed",
            "kafka.default.api.timeout.ms": str(PATIENCE * 1000),
            "kafka.request.timeout.ms": str(PATIENCE * 500),
            # All that is asked for is there. Else a broker without more holds back, for half a second, what a consumer
            # asks for ahead; and where the partition ends, which Spark asks for next, is told after that.
            "kafka.fetch.max.wait.ms": "10",
        }
        # A partition is a task, but where there are more of them than pay; each writes files of its own.
        read = spark.read.format("kafka").options(**options).load().coalesce(1 + messages_in(spans) // A_TASK)
        rows = self.rows_of(read)
        return rows.withColumn("_source_file", _told_apart(restarts)) if restarts else rows

    def rows_of(self, read: DataFrame) -> DataFrame:
        """The rows, as `messages` gives them, of what Spark's own source of Kafka reads, headers included."""
        topic, key = self._topic, token_key()
        headers = F.transform("headers", lambda h: F.struct(h["key"].alias("key"), text_of(h["value"]).alias("value")))
        lines = read.select(
            F.when(F.col("timestampType") == 1, F.col("timestamp")).alias("_arrived_at"),
            F.col("topic").alias("_topic"),
            F.col("partition").alias("_partition"),
            F.col("offset").alias("_offset"),
            masked(text_of(F.col("key"))).alias("_key"),
            F.when(F.size("headers") > 0, masked(F.to_json(headers))).alias("_headers"),
            F.col("value").isNull().alias("_none"),
            F.coalesce(text_of(F.col("value")), F.lit("")).alias("_line"),
        )
        number = F.col("_partition").cast("string")
        padded = F.when(F.length(number) < _DIGITS, F.lpad(number, _DIGITS, "0")).otherwise(number)
        file = F.concat(F.lit("topic/"), F.col("_topic"), F.lit("/"), padded)  # format_string takes ten times as long
        lines = lines.withColumns({"_source_file": file, "_source_row": F.col("_offset")})
        return json_rows(lines.withColumn("_at", may_hold_address(F.col("_line"))), topic, key, _ASIDE)

    def failed(self, error: Exception) -> SourceError | None:
        """An error of the engine, in a sentence, where reading messages is what failed; else None."""
        trace = getattr(error, "_stackTrace", None) or getattr(error, "_stacktrace", None) or ""
        told = f"{error}\n{trace}"
        if "kafka" not in told.lower():
            return None
        if why := refused_by(told, self._address):
            return self._kept_out(why)
        if _LOST.search(told):
            return SourceError(
                f"{self._name}: messages were deleted while they were read. Nothing was taken; the next batch says "
                "which messages are gone, and how to go on without them."
            )
        if _DOWN.search(told):
            return self._down("the brokers did not answer while messages were read")
        return None

    @property
    def _name(self) -> str:
        return f"{', '.join(self._topic.topics)} of the brokers in {self._topic.setting}"

    def _down(self, why: str) -> SourceDownError:
        return SourceDownError(
            f"{self._name}: {why}. Nothing was taken, and the next batch begins where the last one ended."
        )

    def _kept_out(self, why: str) -> SourceError:
        """An error that no retry fixes."""
        return SourceError(f"{self._name}: {why}. Nothing was taken.")

    def _no_topic(self, names: str) -> SourceError:
        return SourceError(
            f"{names} of the brokers in {self._topic.setting}: there is no such topic. Create it, or correct `topics` "
            "in the table file; nothing was taken."
        )

    def _refused(self, error: Exception, asking: Asking) -> SourceError:
        from confluent_kafka import KafkaError

        try:
            asking.check()
        except RefusedError as refused:
            return self._kept_out(str(refused))
        found = _said_by(error)
        if _is_unknown(found):
            return self._no_topic(", ".join(self._topic.topics))
        down = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)  # noqa: SLF001  # their public names
        if found is None or found.retriable() or found.code() in down:
            return self._down(f"no broker answers{asking.hint()}")
        if found.name() in _NOT_READY:
            return self._down(f"the brokers are not ready: {found.str()}")
        return SourceError(f"{self._name}: the brokers refuse: {found.str()}. Nothing was taken.")


def arrived(rows: DataFrame, topic: Topic, begun: int) -> DataFrame:
    """The rows with the times that follow from their arrival: `_arrived_at`, `_arrival_date` and `_event_at`.

    Args:
        rows: as `Brokers.messages` reads them.
        topic: how they are read.
        begun: when the batch was begun, in microseconds since the epoch; it stands for an arrival nobody knows.
    """
    # No literal: a batch would else run code of its own, which is compiled when the batch is over.
    now = F.timestamp_micros(as_data({"begun": begun}).getField("begun"))
    known = rows.withColumn("_arrived_at", F.coalesce("_arrived_at", now))
    known = known.withColumn("_event_at", utc_timestamp(F.col(topic.time)))
    ahead = F.expr(f"INTERVAL {int(topic.ahead.total_seconds())} SECONDS")
    plausible = F.col("_event_at").between(F.date_sub("_arrived_at", BACK_DAYS), F.col("_arrived_at") + ahead)
    error = F.when(F.col("_none"), "a message without a value").otherwise(F.col("_error"))
    return known.withColumns(
        {
            "_arrival_date": F.to_date("_arrived_at"),
            "_event_at": F.when(plausible, F.col("_event_at")),
            "_error": error,
        }
    ).drop("_none")


def _said_by(error: BaseException | None) -> KafkaError | None:
    """What the client says of an error of its own; None of another one, or of none."""
    from confluent_kafka import KafkaError

    found = error.args[0] if error is not None and error.args else None
    return found if isinstance(found, KafkaError) else None


def _is_unknown(found: KafkaError | None) -> bool:
    """Whether the brokers do not know a topic."""
    return found is not None and found.code() == found.UNKNOWN_TOPIC_OR_PART


def _told_apart(restarts: Mapping[str, int]) -> Column:
    """`_source_file` of topics whose offsets have begun again: `topic/<name>/<partition>/<how often>`.

    Else two messages would be of one place: which of them comes first, nobody could say, and a decision on one that was
    set aside would count for the other. What came later comes later in the alphabet, too.
    """
    file = F.col("_source_file")
    for topic, number in sorted(restarts.items()):
        of_it = F.col("_topic") == topic
        file = F.when(of_it, F.concat(F.col("_source_file"), F.lit(f"/{number:0{_DIGITS}}"))).otherwise(file)
    return file


def _by_topic(values: Mapping[tuple[str, int], int], *, lists: bool = False) -> dict[str, object]:
    """By topic a list of partitions, or numbers by partition, as Spark's options want them."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), value in sorted(values.items()):
        found.setdefault(topic, {})[str(partition)] = value
    return {topic: list(each.values()) if lists else each for topic, each in found.items()}


def _offsets(client: AdminClient, numbers: Mapping[str, Sequence[int]], *, newest: bool) -> dict[tuple[str, int], int]:
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    spec: OffsetSpec = OffsetSpec.latest() if newest else OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    wanted = {TopicPartition(name, n): spec for name, several in numbers.items() for n in several}
    asked = client.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=PATIENCE)
    return {(at.topic, at.partition): future.result().offset for at, future in asked.items()}
