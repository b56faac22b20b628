"""How many dead letters a topic had in the last hour, which an alert goes by."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lakehouse.build.base import open_base
from lakehouse.build.intake.from_topic import _dead_since
from lakehouse.runs.stream import merge_small
from lakehouse_tests.build.intake.test_from_topic import Taking, visit
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.fixtures.midnight import present_day

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("today")]


def test_dead_letters_are_counted_whatever_their_files_were_merged_to(lake: LakeFactory, kafka: Kafka) -> None:
    """Without it, a stream, which merges its files every half minute, would never tell that a producer broke."""
    taking = Taking(lake, kafka)
    for broken in (2, 0, 3):
        taking.kafka.send(taking.topic, [*["broken"] * broken, visit(1)])
        taking.take()
    merge_small(taking.lake, taking.bronze, [present_day()], 2)
    assert taking.lake.snapshot(taking.bronze.id).live.number == 1
    taking.kafka.send(taking.topic, ["broken", visit(2)])
    result = taking.take()
    assert (result.facts["batch/dead"], result.facts["batch/dead_last_hour"]) == (1, 6)
    arrived = sorted(row["_arrived_at"].replace(tzinfo=UTC) for row in taking.rows() if row["_error"] is not None)
    base, now = open_base(taking.lake, taking.bronze), datetime.now(UTC)
    for moment in (*arrived, now + timedelta(seconds=1)):
        assert _dead_since(base, moment, now) == sum(each >= moment for each in arrived)
