"""Batches from a topic that is another one by now, has lost messages, or is declared otherwise: what is told and kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.build.base import open_base
from lakehouse.build.build import build
from lakehouse.build.intake.from_topic import accept_loss
from lakehouse.contracts import MessageModel
from lakehouse.errors import ContractError, SchemaMismatchError, SourceError
from lakehouse.quarantine.replay import discard
from lakehouse.records.ledger import Wanted
from lakehouse.records.quarantined import quarantined_rows
from lakehouse_tests.build.intake.test_from_topic import Taking, visit
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.fixtures.streaming import SOURCE

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("today")]


@pytest.fixture
def taking(lake: LakeFactory, kafka: Kafka) -> Taking:
    """A topic of one partition."""
    return Taking(lake, kafka)


class Fewer(MessageModel):
    """Visits without a column."""

    id: T.StringType() = pa.Field(nullable=True)
    page: T.StringType() = pa.Field(nullable=True)
    at: T.StringType() = pa.Field(nullable=True)


def test_a_topic_made_anew_is_refused_until_somebody_accepts(taking: Taking) -> None:
    """Without it, messages of the new topic below the old offset would be skipped in silence."""
    taking.kafka.send(taking.topic, [visit(1), visit(2)])
    taking.take()
    taking.kafka.recreate(taking.topic)
    taking.kafka.send(taking.topic, [visit(n) for n in range(3, 8)])
    with pytest.raises(
        SourceError, match=r"deleted and made anew.*Nothing was taken.*stream accept bronze\.visits --reason"
    ):
        taking.take()
    base = open_base(taking.lake, taking.bronze)
    (told,) = accept_loss(base, taking.url, who="me", reason="a test")
    assert "made anew" in told
    taking.take()
    assert taking.taken() == [f"v{n}" for n in range(1, 8)]
    assert accept_loss(open_base(taking.lake, taking.bronze), taking.url, who="me", reason="") == []


def test_a_message_of_a_topic_made_anew_is_not_the_one_that_had_its_offset(taking: Taking) -> None:
    """Without it, a decision on a dead letter would hide another one, and which repeat is kept would be by chance."""
    silver, root = taking.tables[1], taking.lake.settings.root
    taking.kafka.send(taking.topic, [visit(1, page="old"), "{old"])
    taking.take()
    taking.ids()
    assert discard(root, silver, Wanted(), who="me", at=datetime.now(UTC), reason="a test") is not None
    taking.kafka.recreate(taking.topic)
    taking.kafka.send(taking.topic, [visit(1, page="new"), "{new", visit(2)])
    accept_loss(open_base(taking.lake, taking.bronze), taking.url, who="me", reason="a test")
    taking.take()
    assert taking.ids() == ["v1", "v2"]
    assert [row["page"] for row in taking.rows("silver.visits") if row["id"] == "v1"] == ["old"]
    assert sorted(each.discarded for each in quarantined_rows(root, silver)) == [False, True]
    places = {(row["_source_file"], row["_source_row"]) for row in taking.rows()}
    file = f"topic/{taking.topic}/00000"
    assert places == {(file, 0), (file, 1), *((f"{file}/00001", offset) for offset in range(3))}


def test_a_source_with_another_name_takes_nothing_again(taking: Taking) -> None:
    """Without it, whoever renames a source would have every message of its topics twice."""
    taking.kafka.send(taking.topic, [visit(1)])
    taking.take()
    assert taking.bronze.topic is not None
    named = replace(taking.bronze.topic, source="web")
    renamed = replace(taking.bronze, inputs=dict.fromkeys(taking.bronze.inputs, named))
    renamed.__dict__["code_version"] = taking.bronze.code_version  # as `making.table` gives it
    taking.lake.settings = taking.lake.settings.model_copy(update={"source_urls": {"web": taking.url}})
    told = rf"{taking.topic} was taken as the source {SOURCE}.* again as web\. Nothing was taken"
    with pytest.raises(SourceError, match=told):
        build(taking.lake, renamed, [], run_id="test")
    taking.kafka.recreate(taking.topic)
    taking.kafka.send(taking.topic, [visit(2)])
    build(taking.lake, renamed, [], run_id="test")
    assert taking.taken() == ["v1", "v2"], "of another topic, nothing was taken before"


def test_who_takes_a_column_away_is_told_what_a_new_beginning_loses(taking: Taking) -> None:
    """Without it, whoever moves the folder away, as is told of other tables, would lose what the topic has forgotten."""
    open_base(taking.lake, taking.bronze)
    fewer = replace(taking.bronze, model=Fewer)
    with pytest.raises(SchemaMismatchError, match=r"email is in the table.*what is not is lost with the folder"):
        open_base(taking.lake, fewer)
    with pytest.raises(SchemaMismatchError) as told:
        open_base(taking.lake, replace(fewer, inputs={}))
    assert "lost" not in str(told.value)


def test_a_transform_without_return_takes_no_message(taking: Taking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the batch would be committed without rows, and its messages never be taken again."""
    taking.kafka.send(taking.topic, [visit(1)])
    with monkeypatch.context() as patch:
        patch.setitem(vars(taking.bronze), "transform", lambda **_: None)
        with pytest.raises(ContractError, match=r"^The transform of bronze\.visits: expected a DataFrame, got nothing"):
            taking.take()
    taking.take()
    assert taking.taken() == ["v1"]


def test_messages_that_retention_took_are_told(taking: Taking) -> None:
    """Without it, a pause longer than the topic's retention would lose messages in silence."""
    taking.kafka.send(taking.topic, [visit(1)])
    taking.take()
    taking.kafka.send(taking.topic, [visit(n) for n in range(2, 6)])
    taking.kafka.delete_before(taking.topic, {0: 4})
    with pytest.raises(SourceError, match=r"3 message\(s\) of .*/0 were deleted before they were taken: 1–3"):
        taking.take()
    accept_loss(open_base(taking.lake, taking.bronze), taking.url, who="me", reason="a test")
    taking.take()
    assert taking.taken() == ["v1", "v5"]
