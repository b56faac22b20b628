"""`lakehouse kafka`: start, stop and look at a Kafka broker of this machine."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated

import typer

from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, console, print_json, say, table
from lakehouse.errors import UsageError
from lakehouse.kafka import broker
from lakehouse.kafka.broker import MEMORY, Broker, broker_of, place_of
from lakehouse.kafka.topics import answers, topics
from lakehouse.settings import get_settings
from lakehouse.texts import program

LOOK_SECONDS = 5.0  # that a broker has to answer who only looks


def family() -> typer.Typer:
    """The commands; who has events to send adds one for that."""
    about = "A Kafka broker on this machine, for development and tests: one node, on loopback."
    made = typer.Typer(no_args_is_help=True, help=about, rich_markup_mode="rich")
    made.command("start", cls=Command, epilog=examples("lakehouse kafka start", "lakehouse kafka start --port 9092"))(
        start
    )
    made.command("stop", cls=Command, epilog=examples("lakehouse kafka stop"))(stop)
    made.command("status", cls=Command, epilog=examples("lakehouse kafka status", "lakehouse kafka status --json"))(
        status
    )
    return made


def start(
    *,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Where it listens; else where it did before, or a free port.")
    ] = None,
    memory: Annotated[str, typer.Option(help="Memory of its heap, such as 1g.")] = MEMORY,
) -> None:
    """Start the broker and wait until it answers; one that is on is left alone. The first time fetches its jars."""
    if not re.fullmatch(r"\d+[mg]", memory):
        raise UsageError(f"--memory: {memory!r} is not a size such as 512m or 1g.")
    found = broker.start(get_settings(), port=port, memory=memory)
    for line in [*_told(found), *_use(found)]:
        say(line)


def stop() -> None:
    """End the broker; its topics and messages stay for the next start."""
    say("The broker ended." if place_of(get_settings()).end() else "No broker is on.")


def status(*, as_json: AsJson = False) -> None:
    """Show the broker's address, its log, and its topics with their partitions and messages."""
    found = broker_of(get_settings())
    ready = found is not None and answers(found.address, LOOK_SECONDS)
    there = topics(found.address) if found is not None and ready else []
    if as_json:
        told = {"url": found.url, "answers": ready, "topics": [asdict(each) for each in there]} if found else None
        print_json({**asdict(found), **told} if found and told else None)
    elif found is None:
        say("No broker is on. Start it: lakehouse kafka start")
    else:
        for line in _told(found) if ready else [f"The broker does not answer. Its log: {found.log}"]:
            say(line)
        if there:
            rows = [(each.name, each.partitions, each.messages) for each in there]
            console().print(table(("topic", "partitions", "messages"), rows, right=("partitions", "messages")))


def _use(found: Broker) -> list[str]:
    """What to type, so that the tables with topics are taken from it."""
    from lakehouse.catalog import declared

    settings = sorted({each.topic.setting for each in declared().values() if each.topic is not None})
    return [f"  export {setting}={found.url}" for setting in settings]


def _told(found: Broker) -> list[str]:
    return [
        f"The broker listens at {found.url} (process {found.pid}, {found.memory}). Its log: {found.log}",
        f"Clients take it as bootstrap.servers={found.servers}. To end it: {program()} kafka stop",
    ]
