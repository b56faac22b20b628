"""`lakehouse stream run --until-caught-up`: how it ends where checks keep a day back."""

from __future__ import annotations

import json
import threading
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import cast
from unittest.mock import MagicMock

import pytest
from pydantic import SecretStr

from lakehouse.build.intake.ends import Ends, Position
from lakehouse.build.result import FAILED, PUBLISHED, BuildResult, DayResult
from lakehouse.catalog import tables
from lakehouse.checks.metrics import DayMetrics, Outcome
from lakehouse.commands.build import intake, stream, stream_code
from lakehouse.contracts import Table
from lakehouse.days import micros_of
from lakehouse.delta.commit import append_batch, ensure_table
from lakehouse.delta.snapshot import fingerprint
from lakehouse.delta.target import Commit
from lakehouse.errors import EngineLostError
from lakehouse.orchestration.streamed import Telling
from lakehouse.read.targets import targets
from lakehouse.runs.attempts import retrying
from lakehouse.runs.background import BackgroundBuilds
from lakehouse.runs.stream import Refused
from lakehouse.sources.spans import Found, Part
from lakehouse_tests.commands.conftest import Cli
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.fixtures.streaming import SOURCE, messages, streamed, visits

DAY = date(2026, 3, 2)


@pytest.fixture
def topic(lake: LakeFactory, kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic of visits that the commands take from; a day with more than a few dead letters is kept back."""
    name = kafka.topic()
    source = messages(name)
    made = lake(source, visits(0.1), streamed()[2])
    url = kafka.url
    made.settings = made.settings.model_copy(update={"source_urls": {SOURCE: SecretStr(url)}})
    monkeypatch.setenv("LAKEHOUSE_VISITS_URL", url)
    for command in (stream, intake):
        monkeypatch.setattr(command, "_chosen", lambda _names: [source])
        monkeypatch.setattr(command, "lake_with_engine", lambda _settings: made)
    return name


def sent(day: date, numbers: range) -> list[str]:
    """Visits of a day."""
    return [json.dumps({"id": f"v{number}", "page": "home", "at": f"{day}T00:00:00Z"}) for number in numbers]


@pytest.mark.spark
def test_a_day_that_is_kept_back_ends_the_stream_with_one(topic: str, kafka: Kafka, cli: Cli, today: date) -> None:
    """Without it, a schedule would take a stream for done whose days nobody can read."""
    kafka.send(topic, [*sent(today, range(5)), *["rubbish"] * 20])
    run = ("stream", "run", "--until-caught-up", "--pause", "0", "--refresh", "0")
    kept = cli(*run)
    assert kept.code == 1, kept.err
    assert f"Not published: silver.visits {today}." in kept.err
    assert "NOT PUBLISHED silver.visits" in kept.out
    assert cli(*run).code == 1, "nothing new has come, and the day is still not there"
    kafka.send(topic, sent(today, range(10, 300)))
    good = cli(*run)
    assert (good.code, "Not published" in good.err) == (0, False), good.err


@pytest.mark.spark
def test_a_day_that_is_kept_back_ends_an_intake_with_one(topic: str, kafka: Kafka, cli: Cli, today: date) -> None:
    """Without it, an intake would pass for done whose days nobody can read, and not name them."""
    kafka.send(topic, [*sent(today, range(5)), *["rubbish"] * 20])
    kept = cli("intake", "--downstream", "--json")
    (told,) = kept.json
    assert kept.code == 1
    assert told["built"]["silver.visits"] == []
    assert "20 of 25 rows" in told["failed"][f"silver.visits {today}"]
    assert f"silver.visits {today} was not published" in cli("intake", "--downstream").err


def test_a_day_that_a_later_turn_publishes_is_no_failure() -> None:
    """Without it, a day whose first messages were bad would fail a stream that fixed it."""
    table, other = tables()["silver.transactions"], tables()["gold.daily_revenue"]
    before, refused = DAY - timedelta(days=1), Refused()
    refused.add({table.id: result(table, FAILED, DAY, before), other.id: result(other, FAILED, DAY)})
    assert refused.told() == f"gold.daily_revenue {DAY}; silver.transactions {before} … {DAY}"
    refused.add({table.id: result(table, PUBLISHED, DAY), other.id: result(other, PUBLISHED, DAY)})
    assert refused.told() == f"silver.transactions {before}"
    refused.add({table.id: result(table, PUBLISHED, before)})
    assert refused.told() == ""


def result(table: Table, status: str, *days: date) -> BuildResult:
    """A build that did this to some days."""
    made = {
        day: DayResult(status, DayMetrics(day), [Outcome("row_rules", day, status == PUBLISHED, "9 of 10 rows")])
        for day in days
    }
    return BuildResult(table, 7, {}, made)


def test_what_was_built_beside_turns_that_failed_is_told() -> None:
    """Without it, Dagster would hear of the last days of a stream that ended with an error when the next one starts."""
    table, told = tables()["gold.daily_revenue"], list[object]()
    built = {table.id: result(table, PUBLISHED, DAY)}
    telling = cast("Telling", SimpleNamespace(add=told.append))
    beside = MagicMock(spec=BackgroundBuilds, built=lambda: built)

    def broken_off() -> None:
        with stream._building(beside, telling):
            raise ConnectionError

    with pytest.raises(ConnectionError):
        broken_off()
    assert told == [built]
    beside.check.side_effect = ValueError("a mistake in a transform")
    with pytest.raises(ValueError, match="a mistake"), stream._building(beside, telling):
        pass


def test_features_of_today_are_loaded_though_the_engine_ends(
    monkeypatch: pytest.MonkeyPatch, lake: LakeFactory
) -> None:
    """Without it, a stream would end where its engine does while features are put online, and no other step of it."""
    made, errors, loaded = lake(), [EngineLostError("it ended")], list[object]()
    first = object()
    vars(made)["spark"] = first

    def add(built: object) -> None:
        if errors:
            raise errors.pop()
        loaded.append(("spark" in vars(made), built))

    monkeypatch.setattr("lakehouse.runs.attempts.LONGEST_WAIT", 0.0)
    monkeypatch.setattr("lakehouse.runs.attempts.is_lost", lambda session: session is first and not errors)
    monkeypatch.setattr(stream, "has_redis", lambda _settings: True)
    monkeypatch.setattr(stream, "OnlineToday", lambda *_: SimpleNamespace(add=add))
    stream._loading(made, retrying(threading.Event()))({})
    assert loaded == [(False, {})]


def test_partitions_that_are_quiet_by_now_are_shown_as_idle(
    lake: LakeFactory, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, where all fall quiet at once they would be shown as not idle, and nobody would know what waits."""
    made, now = lake(messages("web")), micros_of(datetime.now(UTC))
    source = made.table("bronze.visits")
    old = now - 3 * 60_000_000
    mine = fingerprint(["id"])
    positions = [Position(5, old, arrival, idle, of=mine) for arrival, idle in ((old, 0), (now, 0), (old, 1))]
    ends = Ends(1, old, {"web": mine}, {("web", number): each for number, each in enumerate(positions)})
    target, _ = targets(made, source)
    append_batch(target, ensure_table(target), [], Commit(ends.transactions(SOURCE), {}))
    parts = {0: Part(0, 5), 1: Part(0, 5), 2: Part(0, 9), 3: Part(0, 0)}
    settings = made.settings.model_copy(update={"source_urls": {SOURCE: SecretStr("kafka://127.0.0.1:1")}})
    monkeypatch.setattr(stream, "_chosen", lambda _names: [source])
    monkeypatch.setattr(stream, "get_settings", lambda: settings)
    monkeypatch.setattr(stream, "lake_without_engine", lambda _settings: made)
    topic_id = ["id"]
    brokers = SimpleNamespace(found=lambda: {"web": Found(topic_id[0], parts)})
    monkeypatch.setattr(stream, "Brokers", lambda *_: brokers)
    told = cli("stream", "status", "--json").json
    assert [(each["waiting"], each["idle"]) for each in told] == [(0, True), (0, False), (4, False), (0, False)]
    (heads, *lines) = cli("stream", "status").out.splitlines()
    assert [heads.split()[0], *(line.split()[-2] for line in lines)] == ["table", "yes", "no", "no", "no"]
    topic_id[0], parts[2] = "other", Part(0, 3)
    anew = cli("stream", "status", "--json")
    assert [(each["taken up to"], each["waiting"]) for each in anew.json] == [
        (None, 5),
        (None, 5),
        (None, 3),
        (None, 0),
    ]
    assert "bronze.visits does not go on: the topic web was deleted and made anew" in anew.err


def test_code_that_changed_beside_a_stream_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, days would be built by an older rule than others, beside whoever changed it, and nothing would say so."""
    told, code, changed = list[str](), stream_code.CodeOnDisk(), list[str]()
    monkeypatch.setattr(stream_code, "say", told.append)
    monkeypatch.setattr(stream_code, "EVERY", 0.0)
    monkeypatch.setattr(Table, "changed_on_disk", lambda _self: list(changed))
    code.look([visits()])
    changed.append("shop.silver.visits")
    code.look([])
    code.look([visits()])
    (said,) = told
    assert said.startswith("silver.visits: shop.silver.visits changed on disk since this stream loaded the code")
    assert "Start the stream again, then run: " in said
    assert said.endswith(" backfill --older-code")
    changed.clear()
    code.look([])
    changed.append("shop.silver.visits")
    code.look([])
    assert len(told) == 2, "changed, taken back, and changed again"


def test_a_redis_that_is_started_after_the_stream_is_loaded(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a stream that began while Redis was off would serve nothing until its end, and say nothing of it."""
    there, loaded = [False], list[object]()
    monkeypatch.setattr(stream, "has_redis", lambda _settings: there[0])
    monkeypatch.setattr(stream, "OnlineToday", lambda *_: SimpleNamespace(add=loaded.append))
    load = stream._loading(lake(visits(0.1)), retrying(threading.Event(), lambda *_: None))
    load({})
    assert loaded == []
    for is_there in (True, False):  # of one that is off again, `OnlineToday` tells
        there[0] = is_there
        load({})
    assert loaded == [{}, {}]
