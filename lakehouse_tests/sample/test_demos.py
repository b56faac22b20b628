"""The demonstrations, as users start them: in processes of their own, on the warm engine, with no setting but the places.

What they leave is looked at from this process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from lakehouse.kafka import broker
from lakehouse.online import server as redis
from lakehouse.sample import demo, demo_stream
from lakehouse.sample.generator import generate_events
from lakehouse.settings import Settings
from lakehouse_tests.commands.conftest import run
from lakehouse_tests.conftest import ALONE
from lakehouse_tests.fixtures.engines import end_engines

Called = Callable[..., subprocess.CompletedProcess[str]]
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.crash]


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One warm engine for all of them, as for a user who goes from one to the next."""
    folder = tmp_path_factory.mktemp("engines")
    yield folder
    end_engines(Settings(engine_dir=folder))


@pytest.fixture
def call(tmp_path: Path, engines: Path) -> Iterator[Called]:
    """Calls `lakehouse` on a root of its own; servers are ended at the end."""
    root = tmp_path / "lake"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LAKEHOUSE_")}
    machine = {n: os.environ[n] for n in ("LAKEHOUSE_JARS_DIR",) if n in os.environ}
    places = {"LAKEHOUSE_ROOT": str(root), "LAKEHOUSE_ENGINE_DIR": str(engines)}
    places["SPARK_SUBMIT_OPTS"] = ALONE["SPARK_SUBMIT_OPTS"]  # the engine is soon gone
    environment = {**kept, **machine, **places, "LAKEHOUSE_SPARK_MEMORY": "1g"}

    def made(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        called = [sys.executable, "-m", "lakehouse.cli", *arguments]
        return subprocess.run(
            called, env={**environment, **more}, capture_output=True, text=True, timeout=900, check=False
        )

    yield made
    for server in (broker, redis):
        server.place_of(Settings(root=root)).end()


def test_the_demonstration_and_what_it_serves(call: Called, tmp_path: Path) -> None:
    """Without it, the first command of the README could fail: tests have engines in their own process, users have not."""
    shown = call("demo")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert " skipped: " not in shown.stderr, "every day that a run was asked for is told"
    rows = {each["table"]: each["rows"] for each in run(tmp_path / "lake", "status", "--json").json}
    assert {name for name, number in rows.items() if not number} == {"bronze.event_stream"}, "nobody has sent anything"
    served = call("demo-online")
    assert served.returncode == 0, served.stdout + served.stderr


def test_the_demonstration_of_the_stream(call: Called, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the first command that shows a stream could show a lost or a doubled event, or none at all."""
    told = call("demo-stream", "--count", "1500", "--speed", "500")
    said = told.stdout + told.stderr
    assert told.returncode == 0, said
    assert "The stream was killed (kill -9)" in said
    assert "events, each once." in said
    assert "message_readable" in said
    # In Dagster, nearly all days of its tables would else be missing.
    begins = Settings(_env_file=tmp_path / "lake" / "lake.env").first_day
    assert begins > datetime.now(UTC).date() - timedelta(days=40)
    (silver,) = (
        each for each in run(tmp_path / "lake", "status", "--json").json if each["table"] == "silver.transactions"
    )
    assert silver["first_day"] >= str(begins)
    url = run(tmp_path / "lake", "kafka", "status", "--json").json["url"]
    assert f"export LAKEHOUSE_EVENT_STREAM_URL={url}" in said, "the next command needs it"
    monkeypatch.setenv("LAKEHOUSE_EVENT_STREAM_URL", url)
    status = run(tmp_path / "lake", "stream", "status", "--json").json
    assert {each["partition"]: each["waiting"] for each in status} == {0: 0, 1: 0, 2: 0}
    asked = run(tmp_path / "lake", "stream", "accept", "bronze.event_stream", "--reason", "none")
    assert "nothing is missing" in asked.err + asked.out
    again = call("stream", "run", "--until-caught-up", "--json", LAKEHOUSE_EVENT_STREAM_URL=url)
    assert [json.loads(line)["taken"]["bronze.event_stream"]["messages"] for line in again.stdout.splitlines()] == [0]


def test_without_brokers_the_setting_is_named(tmp_path: Path) -> None:
    """Without it, who tries the stream first would not know what it needs."""
    told = run(tmp_path / "lake", "stream", "run")
    assert told.code == 2  # usage
    assert "set LAKEHOUSE_EVENT_STREAM_URL, such as kafka://127.0.0.1:9092" in told.err.replace("\n", " ")


def test_files_and_stream_are_of_two_shops() -> None:
    """Without it, who tries both would be told that events were lost: those that are in a file and a message are one."""
    day = date(2026, 11, 26)
    landed, sent = (generate_events(day, 300, each.SEED).lines for each in (demo, demo_stream))
    assert not {json.loads(line)["event_id"] for line in landed} & {json.loads(line)["event_id"] for line in sent}
