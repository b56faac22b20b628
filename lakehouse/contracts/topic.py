"""A Kafka topic as the input of a bronze table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from lakehouse.contracts.landing import PERSONAL_WORDS
from lakehouse.contracts.mistakes import are_known, are_names, check, is_at_least, is_time, unless
from lakehouse.environment import source_setting

# How a message came out of its topic; the last two say, of one that is no row, what it was and why.
MESSAGE = (
    "_event_at", "_arrived_at", "_topic", "_topic_id", "_partition", "_offset", "_key", "_headers", "_raw", "_error",
)  # fmt: skip


@dataclass(frozen=True)
class Topic:
    """Messages of Kafka topics, JSON objects, taken in numbered batches (`lakehouse.build.intake`).

    Each message is taken once: where the next batch begins is part of the commit that adds the rows, and no consumer
    group is asked. Fields beyond `columns`, personal ones and addresses are treated as those of landed files
    (`lakehouse.contracts.landing`). A message that is no JSON object is a row too, with `_error` and `_raw` in place of
    columns: what reads the table sets it aside by a rule.

    A message has arrived when its broker stored it, where the topic keeps that time (`message.timestamp.type` is
    `LogAppendTime`); else when its batch was begun, for a producer's time proves nothing.

    Attributes:
        source: names the setting with the brokers, `LAKEHOUSE_<SOURCE>_URL`; without one there is nothing to take.
        topics: which ones.
        columns: the fields that become columns, as text.
        time: the column with the event time.
        personal: words of field names whose values are never kept.
        addresses: columns that arrive as they are, since the transform makes tokens of them.
        messages_per_batch: most messages of one commit, so that a backlog of any size is taken in bounded steps.
        idle_after: a partition without new messages for so long holds back no watermark.
        ahead: how far after its arrival an event may be; what is further moves no watermark.
        max_lag: how long after its arrival a message is to be published; then `stream_lag` warns.
        max_dead: messages an hour that cannot be read as rows; beyond it `dead_letters` warns.
    """

    source: str
    topics: tuple[str, ...]
    columns: tuple[str, ...]
    time: str
    personal: tuple[str, ...] = PERSONAL_WORDS
    addresses: tuple[str, ...] = ()
    messages_per_batch: int = 250_000
    idle_after: timedelta = timedelta(minutes=2)
    ahead: timedelta = timedelta(minutes=15)
    max_lag: timedelta = timedelta(minutes=5)
    max_dead: int = 100

    @property
    def setting(self) -> str:
        """Name of the setting with the brokers' address."""
        return source_setting(self.source)

    def __post_init__(self) -> None:
        of = f"a field of the messages of {', '.join(self.topics)}"
        check(
            unless(self.topics, "inputs", "a topic", "none", 'Write topics=("web-events",).'),
            are_names("inputs", self.topics),
            are_names("inputs", self.columns),
            are_known("inputs", (*self.addresses, self.time), self.columns, of),
            is_at_least("messages_per_batch", self.messages_per_batch, 1),
            unless(all(is_time(each, timedelta.resolution) for each in (self.idle_after, self.ahead, self.max_lag)),
                   "idle_after",
                   "idle_after, ahead and max_lag that are longer than nothing",
                   f"{self.idle_after}, {self.ahead} and {self.max_lag}", "Write them as timedelta(minutes=2)."),
        )  # fmt: skip
