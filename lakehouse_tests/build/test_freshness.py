"""Freshness of a lake's tables, by what their sources have and are still to bring."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr

from lakehouse.build import freshness as module
from lakehouse.build.freshness import freshness
from lakehouse.checks.freshness import MESSAGES_WAIT, NOT_COMPLETE
from lakehouse.days import end_of
from lakehouse.read.lake import Lake
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.streaming import SOURCE, streamed

NOON = datetime(2026, 3, 30, 12, tzinfo=UTC)


def shop(lake: LakeFactory, **addresses: str) -> Lake:
    """Tables that a stream feeds."""
    made = lake(*streamed())
    urls = {name: SecretStr(url) for name, url in addresses.items()}
    made.settings = made.settings.model_copy(update={"source_urls": urls})
    return made


def test_a_topic_without_an_address_owes_nothing(lake: LakeFactory) -> None:
    """Without it, `make demo` leaves tables behind that are not fresh, since nobody has a broker for them."""
    silent, there = shop(lake), shop(lake, **{SOURCE: "kafka://127.0.0.1:1"})
    for each in silent.tables.values():
        assert freshness(silent, each, NOON).met
        assert not freshness(there, each, NOON).met, "a stream that nobody has started is told"


def test_what_messages_wait_for_is_not_complete(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, half a day would count as a whole one because many of its rows are there."""
    made = shop(lake, **{SOURCE: "kafka://127.0.0.1:1"})
    silver = made.table("silver.visits")
    found = freshness(made, silver, NOON)
    assert found.standing == NOT_COMPLETE
    monkeypatch.setattr(module, "come_to", lambda _lake, _table: end_of(found.due) - timedelta(hours=1))
    assert freshness(made, silver, NOON).standing == MESSAGES_WAIT
