"""`lakehouse kafka produce`: events of the web shop for a topic, real retail lines or made up, in order or not."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from lakehouse.commands.build.land import FIRST_GENERATED_DAY
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, FromDay, ToDay, console, print_json, say
from lakehouse.commands.operate import kafka
from lakehouse.days import end_of
from lakehouse.environment import source_setting
from lakehouse.errors import UsageError
from lakehouse.kafka.address import Address, address_of
from lakehouse.kafka.broker import broker_of
from lakehouse.kafka.sending import send
from lakehouse.kafka.topics import ensure_topic
from lakehouse.sample.clocks import moved
from lakehouse.sample.disorder import Disorder, Tally, disordered, message_of, parse_duration, partition_of
from lakehouse.sample.faults import Faults
from lakehouse.sample.web_events import made_up_lines, retail_lines
from lakehouse.settings import get_settings
from lakehouse.texts import counted

TOPIC = "web-events"
MADE_UP = 10_000  # events, where nobody says how many
DAY_ROWS = 10_000
SAY_SECONDS = 5.0
_PACE = re.compile(r"(\d{1,9})(?:/s)?", re.ASCII)
SOURCE, WRONG = "What is sent", "What goes wrong on the way"


def add_to(app: typer.Typer) -> None:
    """Add the command to those of the broker."""
    family = kafka.family()
    family.command(
        "produce",
        cls=Command,
        epilog=examples(
            "lakehouse kafka produce --count 10000 --speed 1000/s",
            "lakehouse kafka produce --source exports/ --from 2010-12-01 --to 2010-12-07 --partitions 4",
            "lakehouse kafka produce --lateness 0.02 --late-by 6h --duplicates 0.01 --shuffle 100 --malformed 0.001",
        ),
    )(produce)
    app.add_typer(family, name="kafka")


def produce(  # noqa: PLR0913 - one option each
    *,
    topic: Annotated[str, typer.Option(help="Topic; it is made where it is not there.")] = TOPIC,
    partitions: Annotated[int | None, typer.Option(min=1, help="Partitions of a topic that is made; else one.")] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            metavar="URL|SOURCE",
            help="Brokers, such as kafka://127.0.0.1:9092, or the source whose setting holds their address (a password "
            "does not belong into a command); else this lakehouse's.",
        ),
    ] = None,
    speed: Annotated[str, typer.Option(help="Messages a second, such as 1000/s; max: as fast as it goes.")] = "max",
    seed: Annotated[int, typer.Option(help="The same seed gives the same messages, in each partition's order.")] = 7,
    source: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            exists=True,
            file_okay=False,
            rich_help_panel=SOURCE,
            help="Folder of YYYY-MM-DD.csv.gz retail exports, sent as web events; else events are made up.",
        ),
    ] = None,
    first: FromDay = None,
    last: ToDay = None,
    shift: Annotated[
        int, typer.Option(metavar="DAYS", help="Move times of exports by so many days.", rich_help_panel=SOURCE)
    ] = 0,
    count: Annotated[
        int | None,
        typer.Option(min=1, help="Most events; else all of the exports, or 10,000.", rich_help_panel=SOURCE),
    ] = None,
    rows: Annotated[
        int, typer.Option(min=1, help="Events a day, where they are made up.", rich_help_panel=SOURCE)
    ] = DAY_ROWS,
    up_to_now: Annotated[
        bool,
        typer.Option(
            "--up-to-now", help="Move made-up events so that the last of their days ends now.", rich_help_panel=SOURCE
        ),
    ] = False,
    faults: Annotated[
        str, typer.Option(help="What is wrong in made-up events, as in `lakehouse land`.", rich_help_panel=SOURCE)
    ] = "none",
    lateness: Annotated[
        float, typer.Option(min=0, max=1, help="Share that comes late: after later events.", rich_help_panel=WRONG)
    ] = 0.0,
    late_by: Annotated[
        str, typer.Option(help="Most that it is late, in event time: 90s, 15m, 6h, 3d.", rich_help_panel=WRONG)
    ] = "1d",
    shuffle: Annotated[
        int, typer.Option(min=0, metavar="N", help="Shuffle each run of N messages.", rich_help_panel=WRONG)
    ] = 0,
    duplicates: Annotated[
        float, typer.Option(min=0, max=1, help="Share that is sent twice.", rich_help_panel=WRONG)
    ] = 0.0,
    malformed: Annotated[
        float, typer.Option(min=0, max=1, help="Share that a broken message follows.", rich_help_panel=WRONG)
    ] = 0.0,
    skew: Annotated[
        float,
        typer.Option(min=0, max=1, help="Share of users who all go to the first partition.", rich_help_panel=WRONG),
    ] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Send events of the web shop to a topic, and print what was sent.

    A message's key is its user, or else its order. Whatever goes wrong on the way, every event is sent.
    """
    pace = _pace(speed)
    disorder = Disorder(lateness, parse_duration(late_by), shuffle, duplicates, malformed, skew)
    limit = count if count is not None or source is not None else MADE_UP
    lines = _lines(source, first, last, shift=shift, made_up=(rows, faults, seed))
    if up_to_now:
        lines = _up_to_now(lines, first, rows, source, limit)
    address = _named(broker) if broker else _own()
    number = ensure_topic(address, topic, partitions)
    tally = Tally()

    def routed() -> Iterator[tuple[int, bytes | None, bytes]]:
        for each in disordered(map(message_of, islice(lines, limit)), disorder, seed):
            partition, skewed = partition_of(each, number, skew)
            tally.count(each, skewed=skewed)
            yield partition, each.key, each.value

    send(address, topic, routed(), pace, _progress())
    sent = asdict(tally.sent)
    if as_json:
        print_json({"topic": topic, "partitions": number, "seed": seed, **sent})
        return
    told = ", ".join(f"{value:,} {name}" for name, value in sent.items() if name != "messages")
    console().print(f"{sent['messages']:,} messages to {topic} ({counted(number, 'partition')}), seed {seed}: {told}")


def _lines(
    source: Path | None, first: date | None, last: date | None, *, shift: int, made_up: tuple[int, str, int]
) -> Iterator[bytes]:
    rows, faults, seed = made_up
    if source is not None:
        if faults != "none":
            raise UsageError("--faults is for made-up events; exports have their own. Leave out one of them.")
        return retail_lines(source, first, last, shift=shift)
    if last is not None or shift:
        raise UsageError(
            "Made-up events have no last day and no shift: say how many (--count), and where from (--from)."
        )
    return made_up_lines(first or FIRST_GENERATED_DAY, rows, seed, Faults.parse(faults))


def _up_to_now(
    lines: Iterator[bytes], first: date | None, rows: int, source: Path | None, limit: int | None
) -> Iterator[bytes]:
    """Made-up events as of the days that end now: none is ahead of its arrival but for what is wrong with it."""
    if source is not None or limit is None:
        raise UsageError("--up-to-now is for made-up events; exports are moved by --shift. Leave out one of them.")
    # Whole days: the last event may have any time of its day.
    end = end_of((first or FIRST_GENERATED_DAY) + timedelta(days=(limit - 1) // rows))
    by = datetime.now(UTC) - end
    return (moved(line, by) for line in lines)


def _named(broker: str) -> Address:
    if "://" in broker:
        return address_of(SecretStr(broker), "--broker")
    setting = source_setting(broker)
    if (url := get_settings().source_url(broker)) is None:
        raise UsageError(
            f"--broker: {broker!r} is no address such as kafka://127.0.0.1:9092, and {setting} is not set."
        )
    return address_of(url, setting)


def _own() -> Address:
    found = broker_of(get_settings())
    if found is None:
        raise UsageError(
            "No broker is on. Start it: lakehouse kafka start; or name another: --broker kafka://host:port"
        )
    return found.address


def _pace(text: str) -> float | None:
    if text == "max":
        return None
    if (found := _PACE.fullmatch(text)) and int(found[1]):
        return float(found[1])
    raise UsageError(f"--speed: {text!r} is neither max nor messages a second, such as 1000/s.")


def _progress() -> Callable[[int], None]:
    """Says on standard error how far it is, every few seconds."""
    said = time.monotonic()

    def told(sent: int) -> None:
        nonlocal said
        if time.monotonic() - said > SAY_SECONDS:
            said = time.monotonic()
            say(f"{sent:,} messages …")

    return told
