"""The broker of this machine: found again, with its messages, whoever ends it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from lakehouse import catalog
from lakehouse.commands.operate import doctor_remote
from lakehouse.commands.operate.doctor_remote import ProblemError
from lakehouse.errors import EngineError, SourceDownError, SourceError, UsageError
from lakehouse.kafka import jars as own
from lakehouse.kafka.address import Address
from lakehouse.kafka.broker import broker_of, cluster_id, place_of, start
from lakehouse.kafka.sending import send
from lakehouse.kafka.topics import TopicState, ensure_topic, topics
from lakehouse.settings import Settings
from lakehouse.spark import jars
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.fixtures.streaming import SOURCE, streamed
from lakehouse_tests.spark.test_warm import is_gone, until


def command(kafka: Kafka, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`lakehouse kafka …` for the broker of the tests."""
    return subprocess.run(
        [sys.executable, "-m", "lakehouse.cli", "kafka", *arguments],
        env=os.environ | {"LAKEHOUSE_ROOT": str(kafka.root)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def assert_private(kafka: Kafka) -> None:
    """Nobody else reads what it keeps, and nobody elsewhere reaches it."""
    there = [kafka.root / "kafka", *(kafka.root / "kafka").rglob("*")]
    assert not [path for path in there if path.exists() and path.stat().st_mode & 0o077]
    told = (kafka.root / "kafka" / "server.properties").read_text()
    listeners = [line for line in told.splitlines() if "listeners=" in line]
    assert listeners
    assert all(address.split("://")[1].startswith("127.0.0.1:") for line in listeners for address in line.split(","))


@pytest.mark.slow
def test_messages_and_address_outlive_the_broker(kafka: Kafka) -> None:
    """Without it, a broker would come up elsewhere or empty, or a second one would be started."""
    topic = kafka.topic(2)
    assert kafka.send(topic, ["one", "two"], key=b"k") == 2
    kafka.send(topic, ["three"], partition=1)
    before, messages = kafka.broker, kafka.stored(topic)
    assert [each.value for each in messages] == [b"one", b"two", b"three"]
    assert_private(kafka)
    arguments = Path(f"/proc/{before.pid}/cmdline").read_text().split("\0")
    assert f"-Xmx{before.memory}" in arguments

    again = command(kafka, "start")
    assert again.returncode == 0, again.stderr
    assert before.url in again.stderr
    assert kafka.broker == before, "one that is on is left alone"
    with pytest.raises(UsageError, match=rf"listens on port {before.port}. End it first"):
        start(kafka.settings, port=before.port + 1)

    stopped = command(kafka, "stop")
    assert "The broker ended." in stopped.stderr
    until(lambda: is_gone(before.pid))
    assert not place_of(kafka.settings).end()
    started = command(kafka, "start")
    assert started.returncode == 0, started.stderr
    assert kafka.stored(topic) == messages
    status = json.loads(command(kafka, "status", "--json").stdout)
    assert status["url"] == before.url
    assert {"name": topic, "partitions": 2, "messages": 3} in status["topics"]


def topics_of_nobody(address: Address) -> None:
    """Ask a broker that is not there; not for half a minute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakehouse.kafka.topics.SECONDS", 1.0)
        topics(address)


@pytest.mark.slow
def test_what_tests_do_to_topics_is_done(kafka: Kafka) -> None:
    """Without it, a test of lost, aborted or new messages could pass since nothing was lost, aborted or new."""
    topic = kafka.topic(1)
    kafka.send_one(topic, b"dated", headers=[("source", b"shop")], timestamp=1_000)
    [dated] = kafka.stored(topic)
    assert dated.headers == (("source", b"shop"),)
    assert dated.appended > 1_000_000_000_000, "the broker's time, not the producer's"
    kafka.send_one(topic, None, key=b"gone")
    kafka.abort(topic, [b"aborted"] * 2)
    with kafka.transaction() as producer:
        producer.produce(topic, b"committed")
    assert [each.value for each in kafka.stored(topic)] == [b"dated", None, b"committed"]
    assert [each.value for each in kafka.stored(topic, committed=False)].count(b"aborted") == 2
    kafka.delete_before(topic, {0: 1})
    assert next(each.offset for each in kafka.stored(topic)) == 1
    kafka.add_partitions(topic, 3)
    kafka.send(topic, [b"new"], partition=2)
    assert ensure_topic(kafka.address, topic) == 3
    with pytest.raises(UsageError, match="has 3 partitions, not 2"):
        ensure_topic(kafka.address, topic, 2)
    kafka.recreate(topic, 2)
    assert kafka.stored(topic) == []
    assert TopicState(topic, 2, 0) in topics(kafka.address)
    own_time = kafka.topic(message_timestamp_type="CreateTime")
    kafka.send_one(own_time, b"dated", timestamp=1_000)
    assert [each.appended for each in kafka.stored(own_time)] == [1_000]
    with pytest.raises(SourceError, match="a b could not be made"):
        ensure_topic(kafka.address, "a b")
    with pytest.raises(SourceDownError, match="did not take all of 1 messages to no-such-topic"):
        send(kafka.address, "no-such-topic", [(0, None, b"x")])


@pytest.mark.slow
def test_messages_that_are_sent_while_the_broker_is_killed_are_there_once_and_in_order(kafka: Kafka) -> None:
    """Without it, a replay would have other messages than it says, whenever the broker was started again."""
    topic, before, count = kafka.topic(2), kafka.broker, 6000

    def numbers() -> Iterator[tuple[int, bytes | None, bytes]]:
        for number in range(count):
            if number == count // 2:
                kafka.kill()
                assert broker_of(kafka.settings) is None
                with pytest.raises(SourceDownError, match="lakehouse kafka start"):
                    topics_of_nobody(before.address)
                kafka.start()
            yield number % 2, None, str(number).encode()

    assert send(before.address, topic, numbers()) == count
    assert (kafka.broker.port, kafka.broker.pid != before.pid) == (before.port, True)
    stored = [int(each.value or b"-1") for each in kafka.stored(topic)]
    assert stored == [*range(0, count, 2), *range(1, count, 2)]


def test_an_id_is_no_option() -> None:
    """Without it, one start in 64 would fail on a new folder."""
    made = [cluster_id() for _ in range(1000)]
    assert all(len(each) == 22 and each[0].isalnum() for each in made)
    assert len({each[0] for each in made}) > 40


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    """Without it, the broker would end at once, and its log would have to be read."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"Port {port} of 127.0.0.1.*--port N"):
            start(Settings(root=tmp_path), port=port)
    assert broker_of(Settings(root=tmp_path)) is None
    assert not place_of(Settings(root=tmp_path)).end()


def test_a_machine_without_java_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a missing program would look like a fault of the broker's."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    with pytest.raises(EngineError, match="Install a Java 17"):
        start(Settings(root=tmp_path))


def test_the_broker_has_jars_of_its_own() -> None:
    """Without it, Spark would load the broker's classes, or each set-up fetch a broker that nobody starts."""
    brokers = {jar.name for jar in jars.locked_jars(own.LOCK_FILE)}
    assert "kafka_2.13-4.3.1.jar" in brokers
    assert not brokers & {jar.name for jar in jars.locked_jars()}
    assert jars.default_jars_dir(own.LOCK_FILE) != jars.default_jars_dir()


@pytest.mark.slow
def test_the_doctor_asks_the_brokers(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, an address with a slip in it would be found by the first stream."""
    topic = kafka.topic(2)
    monkeypatch.setattr(catalog, "tables", lambda: {each.id: each for each in streamed(topic)})
    assert doctor_remote.topics(Settings(root=tmp_path)) == "", "no address is set"
    known = Settings(root=tmp_path, source_urls={SOURCE: SecretStr(kafka.url)})
    assert doctor_remote.topics(known) == f"{topic} has 2 partitions"
    monkeypatch.setattr(catalog, "tables", lambda: {each.id: each for each in streamed("no-such-topic")})
    with pytest.raises(ProblemError, match="no-such-topic") as none:
        doctor_remote.topics(known)
    assert "LAKEHOUSE_VISITS_URL" in none.value.fix
    drops = kafka.topic(cleanup_policy="compact,delete")
    monkeypatch.setattr(catalog, "tables", lambda: {each.id: each for each in streamed(drops)})
    with pytest.raises(ProblemError, match=f"{drops} .* is compacted") as told:
        doctor_remote.topics(known)
    assert "cleanup.policy to delete" in told.value.fix
