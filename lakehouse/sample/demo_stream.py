"""`lakehouse demo-stream`: a broker, events that flow, gold that moves, a stream that is killed, and dead letters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

import typer

from lakehouse.build.intake.ends import ends_of
from lakehouse.catalog import tables
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import say
from lakehouse.delta.opening import open_snapshot
from lakehouse.errors import BROKEN, CHECKS_FAILED, OK, SourceError
from lakehouse.kafka.broker import broker_of, start
from lakehouse.kafka.topics import ensure_topic
from lakehouse.read.lake import table_path
from lakehouse.runs.selection import landed_range
from lakehouse.sample.demo import check_here, show_quarantine, show_revenue
from lakehouse.settings import Settings, get_settings
from lakehouse.spark.warm import begin_early
from lakehouse.texts import counted, program

COUNT, SPEED, DAYS_BACK, PARTITIONS = 10_000, 500, 3, 3
SEED = 10_007  # of another shop than that of `lakehouse demo`, whose files may hold the same days: no event is of both
KILLED_AFTER = 1  # turns that took something
ROOM = timedelta(days=31)  # before the first day; the sample sends no event later than that
TOPIC, SETTING = "web-events", "LAKEHOUSE_EVENT_STREAM_URL"
SOURCE, TOPIC_SOURCE = "bronze.event_stream", "event_stream"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "demo-stream", cls=Command, epilog=examples("lakehouse demo-stream", "lakehouse demo-stream --count 50000")
    )(demo_stream)


def demo_stream(
    count: Annotated[int, typer.Option(min=1000, help="Events that are sent.")] = COUNT,
    speed: Annotated[int, typer.Option(min=50, help="Events a second.")] = SPEED,
) -> None:
    """Start a broker, send events to it, stream them into silver and gold, kill the stream, and start it again.

    Some events come twice, late or broken. In the end each one is there once, or set aside with its reason.
    """
    settings = get_settings()
    check_here(SOURCE, "silver.transactions", "gold.daily_revenue")
    begin_early(settings)
    broker = start(settings)
    ensure_topic(broker.address, TOPIC, PARTITIONS)
    say(f"A Kafka broker is up at {broker.url}, with the topic {TOPIC}.")
    environment = {**os.environ, SETTING: broker.url}
    first = datetime.now(UTC).date() - timedelta(days=DAYS_BACK)
    _keep_first_day(settings, first - ROOM)
    # Of a shop that was not sent before: a second demonstration adds to the first.
    seed = SEED + ends_of(open_snapshot(table_path(settings.root, SOURCE)), TOPIC_SOURCE).batch
    before = _held(settings)
    sender = _command(_produce(count, speed, seed, first), environment, quiet=True)
    say(f"{count:,} events begin to flow, {speed} a second: some twice, some late, some broken.")
    _stream_and_kill(environment)
    sent = _sent(sender)
    say("Started again: it goes on where its last commit ended.")
    with _command(["stream", "run", "--until-caught-up", "--json"], environment) as stream:
        _told(stream)
    if stream.returncode not in (OK, CHECKS_FAILED):
        raise typer.Exit(BROKEN)
    # A day that its checks keep back, the stream has named: what there is is shown all the same, as `demo` does.
    shown = _shown(settings, sent, before, [first + timedelta(days=n) for n in range(DAYS_BACK + 1)])
    raise typer.Exit(shown or stream.returncode)


def _keep_first_day(settings: Settings, first: date) -> None:
    """Let a new lake begin with its events, as files let it: Dagster then shows no thousands of empty partitions."""
    if "first_day" not in settings.model_fields_set and landed_range(settings) is None:
        settings.keep(first_day=first)
        get_settings.cache_clear()


def _produce(count: int, speed: int, seed: int, first: date) -> list[str]:
    # Of whole days up to this one, moved by the time of day that it is.
    days = ["--from", str(first), "--rows", str(1 + count // DAYS_BACK), "--up-to-now"]
    wrong = ["--duplicates", "0.02", "--lateness", "0.02", "--malformed", "0.002", "--faults", "default,late=0"]
    how = ["--topic", TOPIC, "--speed", f"{speed}/s", "--count", str(count), "--seed", str(seed)]
    return ["kafka", "produce", *how, *days, *wrong, "--json"]


def _command(arguments: list[str], environment: Mapping[str, str], *, quiet: bool = False) -> subprocess.Popen[str]:
    """A command of the lakehouse's own, in a process of its own."""
    errors = subprocess.DEVNULL if quiet else None
    called = [sys.executable, "-m", "lakehouse.cli", *arguments]
    return subprocess.Popen(called, env=dict(environment), stdout=subprocess.PIPE, stderr=errors, text=True)


def _stream_and_kill(environment: Mapping[str, str]) -> None:
    with _command(["stream", "run", "--json"], environment) as stream:
        _told(stream, KILLED_AFTER)
        time.sleep(0.5)  # somewhere in the next turn
        os.kill(stream.pid, signal.SIGKILL)
    say("The stream was killed (kill -9) in the middle of a turn.")


def _told(stream: subprocess.Popen[str], turns: int | None = None) -> None:
    """Say what turns did, until the stream ends or so many of them took something."""
    assert stream.stdout is not None
    for line in stream.stdout:
        turn = json.loads(line)
        (taken,) = turn["taken"].values()
        if not taken["messages"]:
            continue
        days = {day for built in turn["built"].values() for day in built}
        say(
            f"  {taken['messages']:>6,} messages, {taken['left']:,} waiting, watermark {taken['watermark']}, "
            f"{counted(len(turn['built']), 'table')} built, {counted(len(days), 'day')} touched, "
            f"{turn['seconds']:.1f} s"
        )
        if turns is not None and (turns := turns - 1) == 0:
            return


def _sent(sender: subprocess.Popen[str]) -> dict[str, Any]:
    told, _ = sender.communicate()
    if sender.returncode:
        raise SourceError("The events could not be sent: `lakehouse kafka produce` says why.")
    return dict(json.loads(told))


def _held(settings: Settings) -> tuple[int, int]:
    """Rows of silver.transactions that are published, and that are set aside."""
    names = ("silver.transactions", tables()["silver.transactions"].quarantine_id)
    published, aside = (open_snapshot(table_path(settings.root, name)).live.rows for name in names)
    return published, aside


def _shown(settings: Settings, sent: Mapping[str, Any], before: tuple[int, int], days: Sequence[date]) -> int:
    """Show gold and the dead letters, and whether each event that was sent is there once; returns the exit code."""
    show_revenue(settings, days, currency=None)
    show_quarantine(settings, days)
    held, aside = (now - then for now, then in zip(_held(settings), before, strict=True))
    found = held + aside - sent["malformed"] - sent["nameless"]
    say()
    say(
        f"Sent: {sent['messages']:,} messages of {sent['events']:,} events, {sent['duplicates']:,} of them again, "
        f"{sent['late']:,} late, {sent['malformed']:,} that are no event."
    )
    say(
        f"There: {held:,} rows published and {aside:,} set aside. Without {sent['malformed']:,} that are no event and "
        f"{sent['nameless']:,} events without an id, these are {found:,} events, each once."
    )
    if found != sent["events"]:
        say(f"That is not what was sent: {sent['events']:,} events. This must not happen.")
        return CHECKS_FAILED
    call = program()
    found = broker_of(settings)
    named = ((f"export {SETTING}={found.url}", "for commands that read the topic"),) if found else ()
    say()
    say("Next:")
    for command, purpose in (
        *named,
        (f"{call} stream status", "what was taken of each partition, what waits, the watermark"),
        (f"{call} quarantine show silver.transactions --rule message_readable", "messages that cannot be read as rows"),
        (f"{call} quarantine replay silver.transactions", "judge them again, once their cause is fixed"),
        (f"{call} kafka stop", "end the broker; its messages stay"),
        ("make dev", f"the web interface, on http://127.0.0.1:{settings.port}"),
    ):
        say(f"  {command}\n      {purpose}")
    return 0
