"""The parts of alerts by themselves: what is news, what is remembered through a kill, and what is sent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from dagster import DagsterInstance
from pydantic import SecretStr
from typer.testing import CliRunner

from lakehouse.build.verdicts import Verdict
from lakehouse.catalog import lake_without_engine, tables
from lakehouse.cli import app
from lakehouse.commands.operate import alerts as alerts_command
from lakehouse.errors import SettingsError
from lakehouse.orchestration.alerts import sensor
from lakehouse.orchestration.alerts.compared import not_told
from lakehouse.orchestration.alerts.message import ERROR, FAILED, RECOVERED, STILL_FAILING, WARN, Message, sentence
from lakehouse.orchestration.alerts.problems import Failure, Key, News, Observed, Problem, judge
from lakehouse.orchestration.alerts.sensor import Look, _send, look, store_path
from lakehouse.orchestration.alerts.sinks import LogSink, Sink, WebhookSink, log_path
from lakehouse.orchestration.alerts.store import Pending, opened_store
from lakehouse.settings import Settings, get_settings
from lakehouse_tests.orchestration.receiver import Receiver

KEY: Key = ("silver.orders", "row_count", "2011-03-01")
HOUR = 3600.0
MESSAGE = Message(FAILED, ERROR, *KEY[:2], "team:shop", (KEY[2],), "it failed", "run", 1.5)


def failing(at: float, severity: str = ERROR) -> Observed:
    """A step that found the problem."""
    return Observed("r", at, {KEY: Failure(KEY, severity, "found 3")})


class Memory:
    """What judge knows from one step to the next."""

    def __init__(self) -> None:
        self.known: dict[Key, Problem] = {}

    def see(self, observed: Observed) -> list[Message]:
        """The messages a step gives."""
        news = judge(observed, self.known, {"silver.orders": "team:shop"}, 24 * HOUR, "build")
        self.known |= {each.key: each for each in news.problems}
        for key in news.over:
            del self.known[key]
        return news.messages


def test_what_goes_on_failing_is_counted_and_told_again_after_the_quiet_time() -> None:
    """Without it, an hourly re-run would send 24 alerts a day, or a problem of weeks be told once and forgotten."""
    memory = Memory()
    assert [m.kind for m in memory.see(failing(0))] == [FAILED]
    assert [memory.see(failing(hour * HOUR)) for hour in range(1, 24)] == [[]] * 23
    (message,) = memory.see(failing(24 * HOUR))
    assert message.kind == STILL_FAILING
    assert memory.known[KEY].seen == 25
    assert memory.see(failing(25 * HOUR)) == []
    (message,) = memory.see(Observed("r", 26 * HOUR, passed={KEY}))
    assert (message.kind, message.owner, memory.known) == (RECOVERED, "team:shop", {})
    assert "failed 26 times before" in message.text


def test_after_the_clock_is_put_back_a_problem_is_told_again() -> None:
    """Without it, what was told by a clock a day ahead would not be told again for two days."""
    memory = Memory()
    memory.see(failing(48 * HOUR))
    assert [message.kind for message in memory.see(failing(24 * HOUR))] == [STILL_FAILING]
    assert memory.see(failing(25 * HOUR)) == []


def test_a_warning_that_becomes_an_error_is_told_at_once() -> None:
    """Without it, an error would hide behind the quiet time of a warning."""
    memory = Memory()
    memory.see(failing(0, WARN))
    assert [(m.kind, m.severity) for m in memory.see(failing(1, ERROR))] == [(FAILED, ERROR)]
    assert memory.see(failing(2, WARN)) == []


def test_a_message_says_what_where_and_how_much() -> None:
    """Without it, the first thing everybody does with an alert would be to look for its days."""
    assert sentence(FAILED, "a.b", "c", ["2011-01-01"], "3 rows") == "a.b c failed on 2011-01-01: 3 rows"
    many = [f"2011-01-{n:02d}" for n in range(1, 9)]
    assert sentence(FAILED, "a.b", "c", many, "x") == "a.b c failed on 8 days (2011-01-01 to 2011-01-08): 2011-01-01 x"
    assert len(sentence(FAILED, "a.b", "c", many, "x" * 5000)) == 600
    assert len(Message(FAILED, ERROR, "a.b", "c", "", tuple(many * 50), "", "", 0).as_json()["days"]) == 100


def test_a_step_is_taken_in_whole_or_not_at_all(tmp_path: Path) -> None:
    """Without it, a crash in between would move the position past an alert that nobody gets."""
    news = News([Problem(KEY, ERROR, 1.5, 1.5, 1, "x")], [], [MESSAGE])
    with opened_store(tmp_path / "alerts.db") as store:
        with pytest.raises(KeyboardInterrupt), store.transaction():  # noqa: PT012  # what is rolled back
            store.take(news, ["log"])
            store.move(5)
            raise KeyboardInterrupt
        assert (store.position, store.problems(), store.pending()) == (None, {}, [])
        with store.transaction():
            store.take(news, ["log", "webhook"])
            store.take(news, ["log", "webhook"])
            store.move(5)
    with opened_store(tmp_path / "alerts.db") as store:
        assert (store.position, set(store.problems())) == (5, {KEY})
        assert store.pending() == [Pending(MESSAGE, "log"), Pending(MESSAGE, "webhook")]
        store.delivered(Pending(MESSAGE, "log"))
        store.not_delivered(Pending(MESSAGE, "webhook"), "HTTP 500")
        assert store.recent(5)[0]["sinks"] == {"log": "sent", "webhook": "HTTP 500"}
        assert store.pending() == [Pending(MESSAGE, "webhook")]


def test_only_old_messages_that_everybody_has_are_forgotten(tmp_path: Path) -> None:
    """Without it, the file would grow for ever, or an outage of days would lose alerts."""
    messages = [Message(FAILED, ERROR, "a.b", "c", "", (), str(n), "", float(n)) for n in range(6)]
    with opened_store(tmp_path / "alerts.db") as store:
        with store.transaction():
            store.take(News([], [], messages), ["log"])
        for n in (0, 1, 2, 4):
            store.delivered(Pending(messages[n], "log"))
        store.tidy(most_kept=2)
        assert [each["text"] for each in store.recent(9)] == ["5", "4", "3"]
        assert [each.message.text for each in store.pending()] == ["3", "5"]


KILLED = """
import os, signal, sys
from pydantic import SecretStr
from lakehouse.orchestration.alerts import sensor
from lakehouse.orchestration.alerts.compared import not_told
from lakehouse.orchestration.alerts.sinks import LogSink, WebhookSink
from lakehouse.orchestration.alerts.store import opened_store
from pathlib import Path

class Killing(WebhookSink):
    def send(self, message):
        super().send(message)
        os.kill(os.getpid(), signal.SIGKILL)

done = sensor.Look()
with opened_store(Path(sys.argv[1])) as store:
    sinks = {"log": LogSink(Path(sys.argv[1]).with_suffix(".jsonl")), "webhook": Killing(SecretStr(sys.argv[2]), {})}
    sensor._send(store, sinks, done, 1e18)
"""


@pytest.mark.slow
def test_a_kill_between_sending_and_remembering_sends_the_same_message_again(
    tmp_path: Path, receiver: Receiver
) -> None:
    """Without it, a kill could lose what follows; the repeat carries the same id, by which a receiver knows it."""
    file = tmp_path / "alerts.db"
    others = [Message(FAILED, ERROR, "a.b", "c", "", (), "later", "", float(n)) for n in range(2)]
    with opened_store(file) as store, store.transaction():
        store.take(News([], [], [MESSAGE, *others]), ["log", "webhook"])

    command = [sys.executable, "-c", KILLED, str(file), receiver.url()]
    assert subprocess.run(command, check=False, timeout=120, env=dict(os.environ)).returncode == -signal.SIGKILL
    assert len(receiver.bodies) == 1
    with opened_store(file) as store:
        sinks: dict[str, Sink] = {
            "log": LogSink(file.with_suffix(".jsonl")),
            "webhook": WebhookSink(SecretStr(receiver.url()), {}),
        }
        _send(store, sinks, Look(), time.monotonic() + 60)
    assert [m["id"] for m in receiver.bodies] == [MESSAGE.id, MESSAGE.id, *[each.id for each in others]]
    lines = [json.loads(line)["id"] for line in file.with_suffix(".jsonl").read_text().splitlines()]
    assert lines == [MESSAGE.id, *[each.id for each in others]], (
        "the log had each before the kill and was not told again"
    )
    with opened_store(file) as store:
        assert store.pending() == []


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ALERT_WEBHOOK", "hooks.example/T0/very-secret", "LAKEHOUSE_ALERT_WEBHOOK: .*is not an address"),
        ("ALERT_WEBHOOK", "https://me:very-secret@hooks.example/", "is not an address such as .*, without a user"),
        ("ALERT_ROUTES", '{"team:a": "ftp://very-secret"}', "LAKEHOUSE_ALERT_ROUTES: .*is not an address"),
        ("ALERT_ROUTES", "team:a=http://very-secret", "LAKEHOUSE_ALERT_ROUTES: not valid JSON"),
        ("ALERT_TIMEOUT", "0", "LAKEHOUSE_ALERT_TIMEOUT"),
    ],
)
def test_a_wrong_address_is_refused_and_not_repeated(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    """Without it, a typing mistake would show when the first alert is due, and the address in the error."""
    monkeypatch.setenv(f"LAKEHOUSE_{name}", value)
    get_settings.cache_clear()
    with pytest.raises(SettingsError, match=message) as caught:
        get_settings()
    assert "very-secret" not in str(caught.value)


def test_the_command_tries_every_sink_and_says_which_fails(
    settings: Settings, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a wrong webhook would be found out on the day of the first failure."""
    owner = next(iter(tables().values())).owner
    monkeypatch.setenv("LAKEHOUSE_ALERT_WEBHOOK", receiver.url("/all"))
    monkeypatch.setenv(
        "LAKEHOUSE_ALERT_ROUTES", json.dumps({owner: receiver.url("/own"), "team:nobody": receiver.url("/nobody")})
    )
    get_settings.cache_clear()
    done = CliRunner().invoke(app, ["alerts", "test", "--json"])
    assert done.exit_code == 0, done.output
    assert [row["result"] for row in json.loads(done.stdout)] == ["sent"] * 4
    assert {row["sink"]: row["note"] for row in json.loads(done.stdout)}[
        "webhook:team:nobody"
    ] == "no table has this owner"
    assert sorted(path for path, *_ in receiver.posts) == ["/all", "/nobody", "/own"]
    assert {m["kind"] for m in receiver.bodies} == {"test"}
    assert json.loads(log_path(settings).read_text())["kind"] == "test"
    receiver.answers = [404]
    done = CliRunner().invoke(app, ["alerts", "test"])
    assert done.exit_code == 3
    assert "HTTP 404" in done.stdout


def test_the_command_lists_what_was_told_and_what_fails(settings: Settings) -> None:
    """Without it, whoever comes to the desk in the morning would have to read a file."""
    assert CliRunner().invoke(app, ["alerts", "list", "--json"]).stdout == "[]\n"
    with opened_store(store_path(settings)) as store, store.transaction():
        over = Problem(KEY, ERROR, 1.5, 1.5, 3, "found 3")  # says the store; the table's own log knows of none
        run = Problem((KEY[0], "run", KEY[2]), ERROR, 1.5, 1.5, 3, "broke")
        store.take(News([over, run], [], [MESSAGE]), ["log"])
    (row,) = json.loads(CliRunner().invoke(app, ["alerts", "list", "--json"]).stdout)
    assert (row["table"], row["days"], row["sinks"]) == (KEY[0], [KEY[2]], {"log": "waiting"})
    (row,) = json.loads(CliRunner().invoke(app, ["alerts", "list", "--failing", "--json"]).stdout)
    assert (row["check"], row["day"], row["seen"]) == ("run", KEY[2], 3)
    shown = CliRunner().invoke(app, ["alerts", "list"]).stdout
    assert "1970-01-01T00:00:01Z" in shown
    assert "log: waiting" in shown


def test_what_the_sensor_has_not_looked_at_was_not_seen_zero_times(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, "seen 0" would stand beside what fails."""
    told = [Verdict("row_count", date(2011, 3, 1), True, "no rows")]
    monkeypatch.setattr(alerts_command, "verdicts", lambda _, table: told if table.id == "silver.orders" else [])
    monkeypatch.setattr(alerts_command, "table_verdicts", lambda *_: [])
    (row,) = json.loads(CliRunner().invoke(app, ["alerts", "list", "--failing", "--json"]).stdout)
    assert (row["table"], row["found"], row["seen"]) == ("silver.orders", "no rows", None)
    assert "not yet" in CliRunner().invoke(app, ["alerts", "list", "--failing"]).stdout


def test_a_clock_that_is_put_back_leaves_no_table_unlooked_at(
    instance: DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, after an hour ahead no row that waits too long, and no day that is not fresh, would be told for an hour."""
    looks = list[str]()
    monkeypatch.setattr(sensor, "verdicts", lambda _, table: looks.append(table.id) or [])
    monkeypatch.setattr(sensor, "table_verdicts", lambda *_: [])
    lake, now = lake_without_engine(settings), time.time()
    with opened_store(store_path(settings)) as store:
        for moment in (now, now + HOUR, now + HOUR + 60, now + 60):
            look(instance, store, {}, {}, quiet=HOUR, lake=lake, now=moment)
    assert looks.count("silver.orders") == 3, "at first, ten minutes later, and once the clock is back"


def test_what_a_run_has_just_found_is_left_to_its_events() -> None:
    """Without it, a failure that the sensor first reads in the table's log would have failed twice once its events come."""
    table, now = tables()["silver.orders"], time.time()
    found = Verdict("row_count", date(2011, 1, 4), True, "no rows", 3, "a-run", datetime.fromtimestamp(now - 1, UTC))
    assert not_told(table, [found], {}, now, 5.0) == []
    (later,) = not_told(table, [found], {}, now + 5, 5.0)
    assert [key[:2] for key in later.failures] == [("silver.orders", "row_count")]
    assert not_told(table, [replace(found, run_id="")], {}, now, 5.0), "no run speaks of it"
    known = {("silver.orders", "row_count", "2011-01-04"): Problem(("", "", ""), ERROR, now, now, 1, "")}
    assert not_told(table, [found], known, now, 5.0) == [], "it is not over either"
