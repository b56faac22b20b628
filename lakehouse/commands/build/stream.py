"""`lakehouse stream`: take messages of topics as they come, and build what they touch."""

from __future__ import annotations

import gc
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from tenacity import Retrying

from lakehouse.build.base import open_base
from lakehouse.build.followers import followers
from lakehouse.build.grow import may_grow
from lakehouse.build.intake.ends import accepted, ends_of, is_idle
from lakehouse.build.intake.from_topic import accept_loss
from lakehouse.catalog import declared, get_table, lake_beside, lake_with_engine, lake_without_engine, tables
from lakehouse.commands.build.stream_code import CodeOnDisk
from lakehouse.commands.build.stream_screen import Screen
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, console, print_json, say
from lakehouse.commands.console import table as drawn
from lakehouse.contracts import Table, Topic
from lakehouse.days import micros_of
from lakehouse.errors import CHECKS_FAILED, UsageError
from lakehouse.online.address import has_redis
from lakehouse.orchestration.instance import opened_instance
from lakehouse.orchestration.streamed import Telling
from lakehouse.privacy.alone import no_erasure
from lakehouse.read.lake import Lake
from lakehouse.records.day_record import STREAM_RUN
from lakehouse.runs.attempts import retrying, with_engine
from lakehouse.runs.background import BackgroundBuilds, Built
from lakehouse.runs.stream import Pace, Refused, Turn, turns
from lakehouse.runs.stream_metrics import StreamMetrics
from lakehouse.runs.stream_online import OnlineToday
from lakehouse.settings import get_settings
from lakehouse.sources.kafka import Brokers
from lakehouse.texts import program
from lakehouse.users import operator

ABOUT = "Messages of topics, taken as they come."

TableNames = Annotated[
    list[str] | None, typer.Option("--table", help="Only these tables with a topic; all by default.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    family = typer.Typer(no_args_is_help=True, help=ABOUT, rich_markup_mode="rich")
    shown = (
        "lakehouse stream run",
        "lakehouse stream run --until-caught-up",
        "lakehouse stream run --metrics-port 9464",
    )
    family.command("run", cls=Command, epilog=examples(*shown))(run)
    family.command("status", cls=Command, epilog=examples("lakehouse stream status --json"))(status)
    given_up = "lakehouse stream accept bronze.event_stream --reason outage"
    family.command("accept", cls=Command, epilog=examples(given_up))(accept)
    app.add_typer(family, name="stream")


def run(
    table: TableNames = None,
    *,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="End when all messages are taken that are there.")
    ] = False,
    pause: Annotated[
        float, typer.Option(help="Seconds from one turn to the next, at least, where nothing waits.")
    ] = Pace.pause,
    refresh: Annotated[
        float, typer.Option(help="Seconds between builds of tables whose days are built whole, such as sums.")
    ] = Pace.refresh,
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve figures for Prometheus at this port of 127.0.0.1.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Take messages batch by batch and build the days they touch, until stopped; Dagster shows every touched day.

    Ctrl-C or SIGTERM ends it after the present turn; after a kill, simply start it again: nothing is lost or doubled.
    Exit code 3: an error that did not pass, such as messages that were deleted before they were taken. With
    --until-caught-up, exit code 1: everything was taken, and checks kept a day back.
    """
    sources, settings = _chosen(table), get_settings()
    stop, metrics, refused = threading.Event(), StreamMetrics(), Refused()
    if metrics_port is not None:
        metrics.serve(metrics_port)
        say(f"Figures: http://127.0.0.1:{metrics_port}/metrics")

    def retried(error: BaseException, seconds: float) -> None:
        metrics.retried()
        say(f"{error} Trying again in {seconds:.0f} s.")

    lake, run_id = lake_with_engine(settings), f"{STREAM_RUN}{uuid.uuid4().hex[:12]}"
    lake.spark  # noqa: B018  # before the screen is drawn on: an engine may say something as it starts
    again = retrying(stop, retried)
    beside, load = None, _loading(lake, again)
    if not until_caught_up:  # nobody waits for the messages of a stream that ends by itself: its turns build all of it
        load, other = _loading(lake, again, growing=True), lake_beside(lake)
        then = _loading(other, again, growing=False)
        beside = BackgroundBuilds(other, sources, run_id, refresh, again, then)
    built_by_it = [each for source in sources for each in [source, *followers(lake, source)]]
    code, screen = CodeOnDisk(), Screen(live=console().is_terminal and not as_json)
    with (
        no_erasure(settings.root, run_id),
        _stopped_by_signals(stop),
        opened_instance(settings) as instance,
        screen,
        Telling(instance, lake, built_by_it) as telling,
        _building(beside, telling),
    ):
        pace = Pace(pause, refresh)
        for turn in turns(
            lake, sources, run_id, stop, pace=pace, until_caught_up=until_caught_up, beside=beside, retried=retried
        ):
            metrics.add(lake, turn)
            load(turn.built)
            refused.add(turn.built)
            code.look(each.table for each in (*turn.taken.values(), *turn.built.values()))
            print_json(_json(turn), lines=True) if as_json else screen.show(turn)
            if turn.number == 1:
                gc.freeze()  # what is loaded by now stays, and is not looked through again
            if telling.add({**turn.taken, **turn.built}):
                gc.collect()  # plans that Python would drop much later hold memory of the engine
    if until_caught_up and (days := refused.told()):
        say(
            f"Not published: {days}. The checks of these days failed; readers see what was published of them before, "
            f"if anything was. When the cause is fixed: {program()} backfill --stale"
        )
        raise typer.Exit(CHECKS_FAILED)


@contextmanager
def _building(beside: BackgroundBuilds | None, telling: Telling) -> Iterator[None]:
    """Build beside the turns for a block; what was built until its end is told, whatever has ended it."""
    if beside is None:
        yield
        return
    try:
        with beside:
            yield
    finally:
        telling.add(beside.built())
    beside.check()


def _loading(lake: Lake, again: Retrying, *, growing: bool | None = None) -> Callable[[Built], object]:
    """What puts features of today online, where there is a Redis: of all tables, of those that grow, or of others."""
    today = OnlineToday(lake, say, lambda table: growing is None or may_grow(table, lake) == growing)
    was_there = False

    def load(built: Built) -> None:
        nonlocal was_there
        # One that is started later is loaded with whole tables; of one that was there and is off, people are told.
        was_there = was_there or has_redis(lake.settings)
        if not was_there:
            return
        for attempt in again.copy():
            with attempt, with_engine(lake):
                today.add(built)

    return load


def status(table: TableNames = None, *, as_json: AsJson = False) -> None:
    """Show where each partition of each topic was taken up to, what waits at its broker, and the watermark."""
    lake, found = lake_without_engine(get_settings()), []
    for source in _chosen(table):
        topic, url = _topic(source), get_settings().source_url(_topic(source).source)
        assert url is not None
        ends, at = ends_of(lake.snapshot(source.id), topic.source), Brokers(url, topic).found()
        now = micros_of(datetime.now(UTC))
        after, why = accepted(ends, at)
        if why:
            say(f"{source.id} does not go on: {'; '.join(why)}. {program()} stream accept {source.id} --reason …")
        for name, one in sorted(at.items()):
            for number, part in sorted(one.parts.items()):
                # Of a topic that was made anew nothing was taken; where messages are gone, what is left waits.
                then = after.positions.get((name, number))
                position = ends.positions.get((name, number)) if then else None
                found.append(
                    {
                        "table": source.id,
                        "topic": name,
                        "partition": number,
                        "taken up to": position.offset if position else None,
                        "waiting": part.end - (then.offset if then else part.first),
                        "newest event": _time(position.event if position else None),
                        "idle": bool(
                            position and is_idle(position, now, topic.idle_after, taken=position.offset >= part.end)
                        ),
                        "watermark": _time(ends.watermark),
                    }
                )
    if as_json:
        print_json(found)
        return
    numbers = ("partition", "taken up to", "waiting")
    console().print(drawn(tuple(found[0]) if found else (), [tuple(row.values()) for row in found], right=numbers))


def accept(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Table whose stream does not go on.")],
    *,
    reason: Annotated[str, typer.Option(help="Why; kept in the table's log with your name.")],
) -> None:
    """Let a stream go on though messages are gone or a topic was made anew; what is given up is kept in the log."""
    source = get_table(table)
    topic, settings = _topic(source), get_settings()
    url = settings.source_url(topic.source)
    if url is None:
        raise UsageError(f"{table}: set {topic.setting}.")
    given_up = accept_loss(open_base(lake_without_engine(settings), source), url, who=operator(), reason=reason)
    if not given_up:
        say(f"{table}: nothing is missing; its stream goes on where it was.")
        return
    for each in given_up:
        say(f"Given up: {each}.")
    say(f"{table}: the next batch goes on. {program()} stream run")


def _chosen(names: list[str] | None) -> list[Table]:
    settings = get_settings()
    chosen = [get_table(name) for name in names] if names else [each for each in tables().values() if each.topic]
    if wrong := [each.id for each in chosen if each.topic is None]:
        raise UsageError(f"{', '.join(wrong)}: not taken from a topic.")
    ready = [each for each in chosen if settings.source_url(_topic(each).source) is not None]
    if not ready:
        unset = sorted({each.topic.setting for each in declared().values() if each.topic})
        why = f"set {' or '.join(unset)}, such as kafka://127.0.0.1:9092" if unset else "no table file has a Topic"
        raise UsageError(f"No table is taken from a topic: {why}.")
    return ready


def _topic(table: Table) -> Topic:
    if table.topic is None:
        raise UsageError(f"{table.id} is not taken from a topic.")
    return table.topic


def _time(micros: int | None) -> str | None:
    return None if micros is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(micros / 1e6))


@contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """The first signal ends the stream after the present turn, a second one at once."""

    def asked(number: int, _frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        say(f"{signal.Signals(number).name}: ending after this turn; once more ends it at once.")

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _json(turn: Turn) -> dict[str, Any]:
    return {
        "turn": turn.number,
        "seconds": round(turn.seconds, 3),
        "taken": {
            name: {key.removeprefix("batch/"): value for key, value in each.facts.items()}
            for name, each in turn.taken.items()
        },
        "built": {name: each.with_status("published") for name, each in turn.built.items()},
        "failed": turn.failed,
    }
