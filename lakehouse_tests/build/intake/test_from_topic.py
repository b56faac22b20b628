"""Batches from a real Kafka broker: what is taken, what is set aside, and what is noticed to be missing."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Self

import pytest
from confluent_kafka import KafkaError, KafkaException
from pydantic import SecretStr
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.build import build as building
from lakehouse.build.build import build
from lakehouse.build.followers import Which
from lakehouse.build.intake import from_topic
from lakehouse.build.intake.ends import ends_of
from lakehouse.build.result import FAILED, PUBLISHED, BuildResult
from lakehouse.contracts import Table, Topic
from lakehouse.days import start_of
from lakehouse.errors import PublishConflictError, SourceDownError, SourceError
from lakehouse.runs.attempts import retrying
from lakehouse.sources import kafka as source
from lakehouse.spark.transient import is_transient
from lakehouse.transforms.columns import with_event_date
from lakehouse.versions.restore import plan_restore, restore
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.fixtures.making import rows_of
from lakehouse_tests.fixtures.midnight import present_day
from lakehouse_tests.fixtures.streaming import FIELDS, SOURCE, build_followers, streamed

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("today")]


def visit(number: int, at: str = "", **more: Any) -> str:
    """A message, of today unless a time is given."""
    return json.dumps({"id": f"v{number}", "page": "home", "at": at or f"{present_day()}T00:00:00Z"} | more)


class Taking:
    """A lake that takes from a topic of its own."""

    def __init__(self, make: LakeFactory, kafka: Kafka, *, partitions: int = 1, **words: Any) -> None:
        self.kafka, self.topic = kafka, kafka.topic(partitions)
        self.tables = streamed(self.topic, **words)
        self.lake = make(*self.tables)
        self.url = SecretStr(kafka.url)
        self.lake.settings = self.lake.settings.model_copy(update={"source_urls": {SOURCE: self.url}})

    @property
    def bronze(self) -> Table:
        """What takes."""
        return self.tables[0]

    def take(self, *, one: bool = False, days: tuple[date, ...] = ()) -> BuildResult:
        """What is new, or one batch of it."""
        return build(self.lake, self.bronze, days, run_id="test", one_batch=one)

    def rows(self, name: str = "bronze.visits") -> list[dict[str, Any]]:
        """Of a table."""
        return rows_of(self.lake.path(name))

    def taken(self) -> list[str]:
        """The ids of bronze's rows, in order, without dead letters."""
        return sorted(row["id"] for row in self.rows() if row["_error"] is None)

    def ids(self) -> list[str]:
        """The ids of silver's rows, in order, once what is new is built."""
        build_followers(self.lake, self.bronze, "test", Which.GROWING)
        return sorted(row["id"] for row in self.rows("silver.visits"))


@pytest.fixture
def taking(lake: LakeFactory, kafka: Kafka) -> Taking:
    """A topic of one partition."""
    return Taking(lake, kafka)


def test_each_message_once_with_how_it_came(taking: Taking) -> None:
    """Without it, a row could not be followed to its message, or be of no known day."""
    taking.kafka.send_one(
        taking.topic, visit(1).encode(), key=b"me@example.com", headers=[("trace", b"t1"), ("n", None)]
    )
    taking.kafka.send(taking.topic, [visit(2, other=1.25)])
    result = taking.take(days=(present_day(),))
    assert (result.version, result.facts["batch/number"], result.facts["batch/rows"]) == (1, 1, 2)
    assert result.days[present_day()].status == PUBLISHED
    first, second = sorted(taking.rows(), key=lambda row: row["_offset"])
    assert (first["_topic"], first["_partition"], first["_offset"]) == (taking.topic, 0, 0)
    assert (first["_source_file"], first["_source_row"]) == (f"topic/{taking.topic}/00000", 0)
    assert "example.com" not in first["_key"]
    assert json.loads(first["_headers"]) == [{"key": "trace", "value": "t1"}, {"key": "n"}]
    assert json.loads(second["_rescued"]) == {"other": "1.25"}
    assert second["_arrived_at"].date() == second["_arrival_date"]
    assert taking.take().facts["batch/rows"] == 0
    assert taking.take().version == 1  # a look that finds nothing adds no commit


def test_what_is_no_row_is_set_aside_and_keeps_nothing_back(taking: Taking) -> None:
    """Without it, one broken message would stop the stream, or vanish."""
    bad = [b"{rubbish", b"\xff\xfe", b'{"id": "a"} {}', b"[1]", b'{"id": "me@example.com', b""]
    taking.kafka.send(taking.topic, [visit(1), *bad, visit(2)])
    taking.kafka.send_one(taking.topic, None)
    taking.kafka.send(taking.topic, [visit(3, at="never")])
    result = taking.take()
    assert result.facts["batch/dead"] == len(bad) + 1
    (dead,) = [each for each in result.outcomes if each.check == "dead_letters"]
    assert "7 of the batch (not a JSON object 6, a message without a value 1)" in dead.message
    assert taking.ids() == ["v1", "v2"]
    told = {row["_offset"]: (row["_error"], row["_raw"]) for row in taking.rows() if row["_error"]}
    assert told[1] == ("not a JSON object", "{rubbish")
    assert told[8][0] == "a message without a value"
    assert not any("example.com" in (raw or "") for _, raw in told.values())
    aside = taking.rows("silver.visits_quarantine")
    assert len(aside) == len(bad) + 2
    assert {row["_source_row"] for row in aside if "message_readable" in row["_failed_rules"]} == set(told)


def test_bytes_that_are_no_text_hide_nobody(taking: Taking) -> None:
    """Without it, an address in another encoding would be kept readable; and a message come out otherwise than a file."""
    text = visit(1, email="ann@example.com", other="bob@example.com", page="C te").encode().replace(b"C te", b"C\xf4te")
    taking.kafka.send_one(taking.topic, text, key=b"\xe9 ann@example.com")
    taking.take()
    (row,) = taking.rows()
    assert (row["id"], row["page"], row["_error"]) == ("v1", "C\ufffdte", None)
    taking.kafka.send_one(taking.topic, b"\xff {broken ann@example.com")
    taking.take()
    found = json.dumps(taking.rows(), default=str)
    assert "example.com" not in found
    assert "\\ufffd {broken " in found


def raising(messages: DataFrame) -> DataFrame:
    """A table's code that fails on some pages, as a cast or a division may."""
    page = F.when(F.col("page").startswith("bad"), F.raise_error(F.lit("no such page"))).otherwise(F.col("page"))
    return with_event_date(messages.withColumn("page", page.cast("string")), "at")


def test_a_message_that_the_code_fails_on_is_told_apart(taking: Taking) -> None:
    """Without it, one message that nobody thought of would stop the stream until the code is fixed."""
    taking.tables[0] = replace(taking.bronze, transform=raising)
    taking.kafka.send(taking.topic, [visit(n, page="bad" if n in (2, 3) else "home") for n in range(5)])
    result = taking.take()
    assert (result.facts["batch/rows"], result.facts["batch/dead"]) == (5, 2)
    dead = {row["_offset"]: row for row in taking.rows() if row["_error"]}
    assert set(dead) == {2, 3}
    assert dead[3]["_error"].startswith("the code of bronze.visits fails on it: ")
    assert json.loads(dead[3]["_raw"])["id"] == "v3"
    assert taking.taken() == ["v0", "v1", "v4"]


def test_where_the_code_fails_on_all_messages_none_is_given_up(taking: Taking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a mistake in the code would turn a whole stream into dead letters."""
    monkeypatch.setattr("lakehouse.build.intake.poison.MOST", 1)  # each one that is found is several queries
    taking.tables[0] = replace(taking.bronze, transform=raising)
    taking.kafka.send(taking.topic, [visit(n, page="bad") for n in range(4)])
    with pytest.raises(PySparkException):
        taking.take()
    assert taking.rows() == []


def test_a_backlog_is_taken_in_bounded_batches(lake: LakeFactory, kafka: Kafka) -> None:
    """Without it, a long pause would end in a batch that no engine holds."""
    taking = Taking(lake, kafka, partitions=2, messages_per_batch=10)
    for partition in range(2):
        kafka.send(taking.topic, [visit(100 * partition + n) for n in range(8 * (partition + 1))], partition)
    one = taking.take(one=True)
    assert (one.facts["batch/rows"], one.facts["batch/left"]) == (9, 15)
    rest = taking.take()
    assert (rest.facts["batch/batches"], rest.facts["batch/rows"], rest.facts["batch/left"]) == (2, 15, 0)
    assert len({(row["_partition"], row["_offset"]) for row in taking.rows()}) == len(taking.rows()) == 24


def test_two_intakes_at_once_take_each_message_once(taking: Taking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a stream beside a run of the interface would double rows."""
    taking.kafka.send(taking.topic, [visit(1)])
    opened = building.open_base

    def overtaken(*args: Any) -> Any:
        base = opened(*args)
        monkeypatch.setattr(building, "open_base", opened)
        taking.take()
        return base

    monkeypatch.setattr(building, "open_base", overtaken)
    with pytest.raises(PublishConflictError) as refused:
        taking.take()
    assert is_transient(refused.value)
    assert len(taking.rows()) == 1


def test_repeats_across_batches_are_one_row(taking: Taking) -> None:
    """Without it, what a producer sends again, or a broker delivers again, would count twice."""
    for _ in range(3):
        taking.kafka.send(taking.topic, [visit(1), visit(1), visit(2)])
        taking.take()
        assert taking.ids() == ["v1", "v2"]


def test_messages_that_were_never_committed_are_not_read(taking: Taking) -> None:
    """Without it, rows of a transaction that its producer gave up would be published."""
    taking.kafka.send(taking.topic, [visit(1)])
    taking.kafka.abort(taking.topic, [visit(2).encode(), visit(3).encode()])
    taking.kafka.send(taking.topic, [visit(4)])
    result = taking.take()
    assert result.facts["batch/not_there"] == 3  # two messages and the mark of their end
    assert taking.taken() == ["v1", "v4"]


def test_an_open_transaction_holds_back_what_follows_it(taking: Taking) -> None:
    """Without it, its messages would be skipped for ever once it is committed."""
    taking.kafka.send(taking.topic, [visit(1)])
    with taking.kafka.transaction() as producer:
        producer.produce(taking.topic, visit(2), partition=0)
        producer.flush()
        taking.kafka.send(taking.topic, [visit(3)])
        taking.take()
        assert taking.taken() == ["v1"]
    taking.take()
    assert taking.taken() == ["v1", "v2", "v3"]


def test_where_all_messages_were_given_up_the_stream_goes_on(taking: Taking) -> None:
    """Without it, such a batch would be read again for ever."""
    taking.kafka.abort(taking.topic, [visit(1).encode()])
    assert taking.take().facts["batch/rows"] == 0
    assert taking.take().facts["batch/messages"] == 0
    taking.kafka.send(taking.topic, [visit(2)])
    taking.take()
    assert taking.taken() == ["v2"]


def test_a_new_partition_is_read_from_its_beginning(taking: Taking) -> None:
    """Without it, messages of the minutes before somebody noticed would be missing."""
    taking.kafka.send(taking.topic, [visit(1)])
    taking.take()
    taking.kafka.add_partitions(taking.topic, 2)
    taking.kafka.send(taking.topic, [visit(2)], 1)
    taking.take()
    assert taking.taken() == ["v1", "v2"]


def test_batches_leave_no_connections_behind(lake: LakeFactory, kafka: Kafka) -> None:
    """Without it, a stream would have hundreds of open files more, and an engine of several streams too many."""
    taking = Taking(lake, kafka, partitions=4)
    for turn in range(4):
        for number in range(4):
            kafka.send(taking.topic, [visit(4 * turn + number)], number)
        taking.take()
    assert taking.taken() == sorted(f"v{n}" for n in range(16))
    most = time.monotonic() + 12  # they took 20 seconds and more
    of_a_batch = 8  # the broker has some with itself
    while (left := kafka.connections()) >= of_a_batch:
        assert time.monotonic() < most, left
        time.sleep(0.1)


def test_a_table_that_was_restored_goes_on_from_its_own_end(taking: Taking) -> None:
    """Without it, what a restore took back would never be read again."""
    taking.kafka.send(taking.topic, [visit(1)])
    first = taking.take().version
    taking.kafka.send(taking.topic, [visit(2)])
    taking.take()
    restore(taking.lake, plan_restore(taking.lake, taking.bronze, first), by="test")
    assert [row["id"] for row in taking.rows()] == ["v1"]
    taking.take()
    assert taking.taken() == ["v1", "v2"]


def test_events_of_other_days_go_to_their_days(taking: Taking) -> None:
    """Without it, late rows would be counted on the day they came."""
    old = present_day() - timedelta(days=3)
    taking.kafka.send(taking.topic, [visit(1, at=f"{old}T10:00:00Z"), visit(2)])
    taking.take()
    build_followers(taking.lake, taking.bronze, "test")
    assert {(row["day"], row["visits"]) for row in taking.rows("gold.by_day")} == {(old, 1), (present_day(), 1)}


def test_a_far_future_moves_no_watermark(taking: Taking) -> None:
    """Without it, one wrong clock would make everybody else's rows late for a year."""
    taking.kafka.send(taking.topic, [visit(1), visit(2, at=f"{present_day().year + 1}-01-01T00:00:00Z")])
    taking.take()
    watermark = ends_of(taking.lake.snapshot("bronze.visits"), SOURCE).watermark
    assert watermark == int(start_of(present_day()).timestamp() * 1e6)


def test_late_rows_are_told(taking: Taking) -> None:
    """Without it, nobody would notice that a watermark runs ahead of a producer."""
    taking.kafka.send(taking.topic, [visit(1, at=f"{present_day() - timedelta(days=1)}T12:00:00Z")])
    taking.take()
    taking.kafka.send(taking.topic, [visit(2, at=f"{present_day() - timedelta(days=1)}T11:00:00Z")])
    result = taking.take()
    assert (result.facts["batch/late_rows"], result.facts["batch/late_by_p50_seconds"]) == (1, 3600.0)
    (late,) = [each for each in result.outcomes if each.check == "late_rows"]
    assert not late.passed
    assert not late.blocking


def test_a_clock_that_jumps_loses_and_doubles_nothing(taking: Taking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a machine whose clock is set would skip messages, take them twice, or wait for days to be judged."""
    sent, marks = 0, []

    class Jumping(datetime):
        by = timedelta()

        @classmethod
        def now(cls, tz: Any = None) -> Self:
            return super().now(tz) + cls.by

    monkeypatch.setattr(from_topic, "datetime", Jumping)
    for by in (timedelta(), timedelta(days=3), timedelta(days=-2), timedelta(hours=-1), timedelta()):
        Jumping.by = by
        taking.kafka.send(taking.topic, [visit(sent), visit(sent + 1), visit(sent)])
        taking.take()
        sent += 2
        marks.append(ends_of(taking.lake.snapshot("bronze.visits"), SOURCE))
        assert taking.ids() == sorted(f"v{n}" for n in range(sent))
    assert [each.batch for each in marks] == [1, 2, 3, 4, 5]
    known = [each.watermark for each in marks if each.watermark is not None]
    assert known == sorted(known)
    assert sorted(row["_offset"] for row in taking.rows()) == list(range(sent * 3 // 2))
    (position,) = marks[-1].positions.values()
    assert position.arrived is not None
    # Else the partition would hold back watermarks, as one that is not idle, until the time that the clock once had.
    assert datetime.fromtimestamp(position.arrived / 1e6, UTC) <= datetime.now(UTC)


def test_many_dead_letters_are_told(lake: LakeFactory, kafka: Kafka) -> None:
    """Without it, a producer that sends rubbish would be noticed by those who miss its rows."""
    taking = Taking(lake, kafka, max_dead=2)
    for hour in (2, 3):
        kafka.send(taking.topic, [b"rubbish"] * (hour - 1))
        (dead,) = [each for each in taking.take().outcomes if each.check == "dead_letters"]
        assert dead.passed is (hour == 2)
    assert "3 within an hour (at most 2)" in dead.message


def test_a_broker_that_is_down_may_come_back(taking: Taking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a stream would end for good where its broker is restarted."""
    monkeypatch.setattr(source, "PATIENCE", 3)
    taking.kafka.send(taking.topic, [visit(1)])
    taking.kafka.kill()
    with pytest.raises(SourceDownError, match="no broker answers") as down:
        taking.take()
    assert is_transient(down.value)
    taking.kafka.start()
    retrying(threading.Event())(taking.take)
    assert taking.taken() == ["v1"]


@pytest.mark.parametrize("code", ["UNKNOWN_LEADER_EPOCH", "NOT_LEADER_FOR_PARTITION", "OFFSET_NOT_AVAILABLE"])
def test_brokers_that_are_not_ready_are_asked_again(taking: Taking, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Without it, a broker that is asked in the second in which it starts would end the stream for good."""

    def starting(*_: Any, **__: Any) -> None:
        raise KafkaException(KafkaError(getattr(KafkaError, code)))

    monkeypatch.setattr(source, "_offsets", starting)
    with pytest.raises(SourceDownError, match="the brokers are not ready: Broker: ") as down:
        taking.take()
    assert is_transient(down.value)


def test_a_topic_that_is_not_there_is_named(taking: Taking) -> None:
    """Without it, a name with a typing mistake would look like a quiet topic."""
    source = Topic(SOURCE, (taking.topic, "gone"), FIELDS, time="at")
    taking.tables[0] = replace(taking.bronze, inputs={"messages": source})
    with pytest.raises(SourceError, match="^gone of the brokers in LAKEHOUSE_VISITS_URL: there is no such topic"):
        taking.take()


def test_without_an_address_nothing_is_taken(lake: LakeFactory) -> None:
    """Without it, whoever has no broker could not build the tables beside."""
    made = lake(*streamed())
    result = build(made, made.table("bronze.visits"), [present_day()], run_id="test")
    assert result.facts == {"batch/source": "not configured: set LAKEHOUSE_VISITS_URL"}
    assert not result.with_status(FAILED)
