"""Brokers that want a login, or are encrypted: a real one with such doors, and those who come to the wrong one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import pytest
from pydantic import SecretStr

from lakehouse import catalog
from lakehouse.build.build import build
from lakehouse.commands.operate import doctor_remote
from lakehouse.commands.operate.doctor_remote import ProblemError
from lakehouse.errors import SettingsError, SourceDownError, SourceError
from lakehouse.kafka.address import Address, address_of
from lakehouse.privacy.traces import files_under, unpacked
from lakehouse.settings import Settings
from lakehouse.sources import kafka as source
from lakehouse.sources.kafka import Brokers
from lakehouse.sources.spans import Span
from lakehouse.spark.transient import is_transient
from lakehouse_tests.commands.conftest import Result, run
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.engines import own_engines
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.fixtures.making import rows_of
from lakehouse_tests.fixtures.secured import MECHANISMS, USER, Secured, secured
from lakehouse_tests.fixtures.streaming import SOURCE, messages, streamed

CANARY = "canary-7f3a"
VISIT = json.dumps({"id": "v1", "page": "home", "at": "2026-03-01T10:00:00Z"})
WAYS = [("SSL", ""), *((door, each) for door in ("SASL_PLAINTEXT", "SASL_SSL") for each in MECHANISMS)]


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The broker."""
    folder = tmp_path_factory.mktemp("doors")
    with secured(folder, Kafka(tmp_path_factory.mktemp("secured"))) as made:
        yield made


def address(url: str) -> Address:
    """Of a setting."""
    return address_of(SecretStr(url), "LAKEHOUSE_VISITS_URL")


def test_the_words_of_an_address() -> None:
    """Without it, a login could go to the wrong client, or by a mechanism that nobody chose."""
    plain = address("kafka://a:1,b:2/")
    assert plain.for_client().items() >= {"bootstrap.servers": "a:1,b:2", "log_level": 0}.items()
    assert not any("sasl" in name or "security" in name for name in plain.for_client())
    assert plain.for_spark() == {"kafka.bootstrap.servers": "a:1,b:2"}
    login = address("kafka://me:p%40ss%22%5C@a:1?mechanism=PLAIN")
    assert login.for_client()["sasl.password"] == 'p@ss"\\'
    assert login.for_spark()["kafka.sasl.jaas.config"].endswith(
        r'PlainLoginModule required username="me" password="p@ss\"\\";'
    )
    assert address("kafka://me:it@a:1").mechanism == "SCRAM-SHA-512"
    assert (address("kafka+ssl://a:1").protocol, address("kafka+ssl://me:it@a:1").protocol) == ("SSL", "SASL_SSL")
    assert CANARY not in repr(address(f"kafka://me:{CANARY}@a:1"))


WRONG = {
    "http://a:1": "is not an address such as kafka",
    f"kafka://me:{CANARY}@a": "is not an address such as kafka",
    "127.0.0.1:9092": "is not an address such as kafka",
    "kafka://": "is not an address such as kafka",
    "kafka://a:1/x": "is not an address such as kafka",
    f"kafka://me:{CANARY}/x@a:1": "is not an address such as kafka",
    f"kafka://{CANARY}@a:1": "a login is user and password",
    f"kafka://me:{CANARY}@a:1?mechanism=GSSAPI": "mechanism is SCRAM-SHA-512, SCRAM-SHA-256, PLAIN",
    "kafka+ssl://a:1?mechanism=PLAIN": "belongs to a user and a password",
    f"kafka://me:{CANARY}@a:1?sasl=PLAIN": "unknown option sasl; there are mechanism and ca",
    f"kafka://me:{CANARY}@a:1?ca=x.pem": r"write kafka\+ssl://",
    f"kafka+ssl://me:{CANARY}@a:1?ca=/none.pem": "ca=/none.pem cannot be read: No such file",
    f"kafka+ssl://me:{CANARY}@a:1?ca={quote(__file__)}": "holds no certificate",
    f"kafka://me:{CANARY}@[a:1": "LAKEHOUSE_VISITS_URL",
}


@pytest.mark.parametrize("url", WRONG)
def test_what_cannot_work_is_named_without_the_password(url: str) -> None:
    """Without it, a slip would be found by a broker, in its words, or the message would tell the password."""
    with pytest.raises(SettingsError, match=WRONG[url]) as caught:
        address(url)
    assert CANARY not in str(caught.value)
    assert str(caught.value).startswith("LAKEHOUSE_VISITS_URL: ")


@pytest.mark.slow
@pytest.mark.spark
def test_messages_come_through_every_door(doors: Secured, lake: LakeFactory) -> None:
    """Without it, the broker may be asked by one client with the login, and read by the other without."""
    topic = doors.kafka.topic()
    tables = streamed(topic)
    made = lake(*tables)
    for number, (door, mechanism) in enumerate(WAYS, 1):
        doors.kafka.send(topic, [VISIT.replace("v1", f"{door}-{mechanism}")])
        url = SecretStr(doors.url(door, mechanism))
        made.settings = made.settings.model_copy(update={"source_urls": {SOURCE: url}})
        assert build(made, tables[0], [], run_id="test").facts["batch/number"] == number, (door, mechanism)
    assert sorted(row["id"] for row in rows_of(made.path("bronze.visits"))) == sorted(f"{d}-{m}" for d, m in WAYS)
    assert holding(made.settings.root, CANARY) == []


@pytest.mark.slow
def test_events_are_sent_through_a_door_too(
    doors: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without it, a topic with a login could be read and never be tried with events."""
    topic = doors.kafka.topic()

    def produced(**setting: str) -> Result:
        for name, value in setting.items():
            monkeypatch.setenv(name, value)
        return run(tmp_path / "root", "kafka", "produce", "--broker", SOURCE, "--count", "5", "--topic", topic)

    assert "LAKEHOUSE_VISITS_URL is not set" in " ".join(produced().err.split())
    told = produced(LAKEHOUSE_VISITS_URL=doors.url("SASL_SSL"))
    assert told.code == 0, told.err
    assert len(doors.kafka.stored(topic)) == 5
    wrong = produced(LAKEHOUSE_VISITS_URL=doors.url("SASL_SSL", password=f"{CANARY}-wrong"))
    assert "Correct user, password or mechanism in LAKEHOUSE_VISITS_URL." in " ".join(wrong.err.split())
    assert CANARY not in f"{told}{wrong}{capfd.readouterr()}", "the client's library writes past Python"


def refused(url: str, topic: str) -> SourceError:
    """What the brokers of an address say to one who asks."""
    with pytest.raises(SourceError) as caught:
        Brokers(SecretStr(url), streamed(topic)[0].topic).found()  # type: ignore[arg-type]
    said = str(caught.value)
    assert "LAKEHOUSE_VISITS_URL" in said
    assert "wrong-one" not in said
    assert CANARY not in said
    return caught.value


@pytest.mark.slow
def test_who_is_not_let_in_is_told_at_once_and_tries_no_more(doors: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a wrong password would look like a broker that is down, and be tried for ever; or lock the user out."""
    topic = doors.kafka.topic()
    monkeypatch.setattr(source, "PATIENCE", 600)  # who waits for the time to pass waits long
    tasks = Path("/proc/self/task")
    before = len(list(tasks.glob("*")))
    for door in ("SASL_PLAINTEXT", "SASL_SSL"):
        for mechanism in MECHANISMS:
            error = refused(doors.url(door, mechanism, password="wrong-one"), topic)
            assert f"127.0.0.1:{doors.ports[door]} does not let in '{USER}' with {mechanism}" in str(error)
            assert "Correct user, password or mechanism" in str(error)
            assert not is_transient(error)
    for door in ("SSL", "SASL_SSL"):
        error = refused(doors.url(door, ca=str(doors.other)), topic)
        assert f"the certificate of 127.0.0.1:{doors.ports[door]} is not signed by those in {doors.other}" in str(error)
        assert not is_transient(error)
    foreign = doors.url("SASL_SSL").replace("127.0.0.1", "localhost")
    assert "is not for this host" in str(refused(foreign, topic))
    assert "those that this machine knows" in str(refused(f"kafka+ssl://127.0.0.1:{doors.ports['SSL']}", topic))
    assert len(list(tasks.glob("*"))) <= before, "threads of clients that were refused try again and again"


@pytest.mark.slow
def test_who_comes_to_another_door_is_told_which_one_that_was(doors: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a forgotten login would read as a broker that is down."""
    topic = doors.kafka.topic()
    monkeypatch.setattr(source, "PATIENCE", 3)
    for url in (
        f"kafka://127.0.0.1:{doors.ports['SASL_PLAINTEXT']}",
        f"kafka://127.0.0.1:{doors.ports['SASL_SSL']}",
        f"kafka+ssl://127.0.0.1:{doors.kafka.broker.port}",
    ):
        error = refused(url, topic)
        assert isinstance(error, SourceDownError), "a broker that is stopped breaks off, too"
        assert "perhaps LAKEHOUSE_VISITS_URL lacks user and password" in str(error)
    assert "perhaps" not in str(refused("kafka://127.0.0.1:9", topic)), "where nobody listens"


@pytest.mark.slow
def test_the_doctor_says_so(doors: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the first stream would find out."""
    topic = doors.kafka.topic()
    monkeypatch.setattr(catalog, "tables", lambda: {each.id: each for each in streamed(topic)})

    def said(url: str) -> str:
        return doctor_remote.topics(Settings(root=tmp_path, source_urls={SOURCE: SecretStr(url)}))

    assert said(doors.url("SASL_SSL")) == f"{topic} has 1 partition"
    with pytest.raises(ProblemError, match="does not let in") as caught:
        said(doors.url("SASL_SSL", password="wrong-one"))
    assert caught.value.fix == "Correct LAKEHOUSE_VISITS_URL, or remove it."


@pytest.mark.slow
@pytest.mark.spark
def test_executors_that_are_not_let_in_say_so_too(doors: Secured, lake: LakeFactory) -> None:
    """Without it, a password that changed after the brokers were asked would be told in a trace, and tried again."""
    topic = doors.kafka.topic()
    doors.kafka.send(topic, [VISIT])
    spark, span = lake(messages(topic)).spark, Span(topic, 0, 0, 1)
    contract = messages(topic).topic
    assert contract is not None
    for url, told in {
        doors.url("SASL_SSL", "PLAIN", password="wrong-one"): "does not let in",
        doors.url("SASL_PLAINTEXT", password="wrong-one"): "does not let in",
        doors.url("SASL_SSL", ca=str(doors.other)): "is not signed by",
    }.items():
        brokers = Brokers(SecretStr(url), contract)
        with pytest.raises(Exception, match=".") as caught:
            brokers.messages(spark, [span]).collect()
        error = brokers.failed(caught.value)
        assert error is not None
        assert told in str(error)
        error.__cause__ = caught.value  # as a build raises it
        assert not is_transient(error)
        assert "wrong-one" not in f"{caught.value}{error}{getattr(caught.value, '_stackTrace', '')}"


def holding(folder: Path, text: str) -> list[Path]:
    """The files that hold a text."""
    return [path for path in files_under(folder) if text.encode() in unpacked(path)]


def pages_of(address: str) -> Mapping[str, str]:
    """Every page of an engine that a link leads to, and what it tells programs of its queries."""
    left, found = [f"{address}/{page}/" for page in ("jobs", "SQL", "connect", "environment")], dict[str, str]()
    while left:
        page = left.pop()
        with urllib.request.urlopen(page) as answer:  # noqa: S310  # of this machine
            found[page] = answer.read().decode()
        links = re.findall(r'href="(/(?:SQL/execution|connect/session|jobs/job)/[?]\w+=[^"#& ]*)', found[page])
        left += {f"{address}{each.replace('&amp;', '&')}" for each in links} - found.keys() - set(left)
    return found


PLAINLY = """
import os; from pydantic import SecretStr; from lakehouse.kafka.address import address_of
from lakehouse.settings import get_settings; from lakehouse.spark.session import start
settings = get_settings(); address = address_of(settings.source_url("event_stream"), "URL"); spark = start(settings)
rows = spark.read.format("kafka").options(**address.for_spark(), subscribe="web-events").load()
rows.write.format("noop").mode("overwrite").save()
rows.explain(extended=True)
print(rows.count())
"""


def read_plainly(environment: Mapping[str, str]) -> int:
    """How many messages a query reads that is so small that Spark's pages show all of it."""
    called = [sys.executable, "-W", "ignore", "-c", PLAINLY]
    told = subprocess.run(called, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert CANARY not in told.stdout + told.stderr
    return int(told.stdout.split()[-1])


@pytest.mark.slow
@pytest.mark.spark
def test_a_password_is_nowhere(
    doors: Secured,
    tmp_path: Path,
    make_command: Callable[..., subprocess.CompletedProcess[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without it, who reads logs, Dagster's pages, Spark's pages or their files could read the topics as well."""
    doors.kafka.topic(name="web-events")
    event = {"event_id": "e1", "event_type": "purchase", "event_time": "2026-03-01T10:00:00Z", "amount": 5}
    doors.kafka.send("web-events", [json.dumps(event)])
    spark = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{tmp_path}",
        "spark.eventLog.compress": "false",
    }
    environment = {
        "LAKEHOUSE_SPARK_CONFIG": json.dumps(spark),
        "LAKEHOUSE_EVENT_STREAM_URL": doors.url("SASL_SSL"),
        "LAKEHOUSE_SPARK_UI": "true",
        "LAKEHOUSE_TABLES": "lakehouse",
    }
    own_engines(monkeypatch, str(tmp_path / "engine"))
    try:
        told = make_command("stream", "run", "--until-caught-up", "--json", **environment)
        assert told.returncode == 0, told.stderr
        [engine] = run(tmp_path / "root", "engine", "status", "--json").json
        assert read_plainly(environment | {"LAKEHOUSE_ROOT": str(tmp_path / "root")}) == 1
        pages = pages_of(engine["ui"])
        assert any("noop" in page and "(redacted)" in page for url, page in pages.items() if "/connect/" in url)
        assert [url for url, page in pages.items() if CANARY in page] == []
        wrong = doors.url("SASL_SSL", password=f"{CANARY}-wrong")
        refused = make_command(
            "stream", "run", "--until-caught-up", **environment | {"LAKEHOUSE_EVENT_STREAM_URL": wrong}
        )
        assert refused.returncode == 3
        assert "does not let in" in refused.stderr
        assert "Trying again" not in refused.stderr
        assert CANARY not in f"{told}{refused}"
    finally:
        run(tmp_path / "root", "engine", "stop")
    assert sum(1 for _ in files_under(tmp_path)) > 20
    assert holding(tmp_path, CANARY) == []


@pytest.fixture
def make_command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Calls `lakehouse` on a root of its own."""

    def made(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        called = [sys.executable, "-W", "ignore", "-m", "lakehouse.cli", *arguments]
        environment = os.environ | {"LAKEHOUSE_ROOT": str(tmp_path / "root")} | more
        return subprocess.run(called, env=environment, capture_output=True, text=True, check=False)

    return made
