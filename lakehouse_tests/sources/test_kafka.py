"""How brokers are asked for messages; what comes of it is tested where it is built (`lakehouse_tests.build.intake`)."""

from __future__ import annotations

from typing import Any, Self

import pytest
from pydantic import SecretStr

from lakehouse.sources.kafka import Brokers
from lakehouse.sources.spans import Span
from lakehouse_tests.fixtures.streaming import messages


class Asked(Exception):  # noqa: N818 - no error
    """Instead of reading."""


class Reader:
    """Takes the options of a read, and reads nothing."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}
        self.read = self

    def format(self, _name: str) -> Self:
        """As an engine's."""
        return self

    def options(self, **told: str) -> Self:
        """As an engine's."""
        self.told = told
        return self

    def load(self) -> Any:
        """Here it would be read."""
        raise Asked


def test_no_batch_of_a_quiet_topic_waits_for_messages_to_come() -> None:
    """Without it, each batch would wait half a second for each partition: with twenty of them, ten seconds a turn."""
    topic, reader = messages("visits").topic, Reader()
    assert topic is not None
    with pytest.raises(Asked):
        Brokers(SecretStr("kafka://127.0.0.1:9"), topic).messages(reader, [Span("visits", 0, 3, 5)])  # type: ignore[arg-type]
    assert 0 < int(reader.told["kafka.fetch.max.wait.ms"]) < 100
    assert reader.told["startingOffsets"] == '{"visits": {"0": 3}}'
    assert reader.told["endingOffsets"] == '{"visits": {"0": 5}}'
