"""`lakehouse redis`: start, stop and look at a Redis of this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, print_json, say
from lakehouse.online import server
from lakehouse.online.address import SETTING
from lakehouse.online.server import Server, answers, place_of, server_of
from lakehouse.settings import get_settings
from lakehouse.texts import program


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    about = "A Redis on this machine for features online, for development and tests."
    family = typer.Typer(no_args_is_help=True, help=about, rich_markup_mode="rich")
    family.command("start", cls=Command, epilog=examples("lakehouse redis start", "lakehouse redis start --port 6379"))(
        start
    )
    family.command("stop", cls=Command, epilog=examples("lakehouse redis stop"))(stop)
    family.command("status", cls=Command, epilog=examples("lakehouse redis status", "lakehouse redis status --json"))(
        status
    )
    app.add_typer(family, name="redis")


def start(
    *,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Where it listens; else where it did before, or a free port.")
    ] = None,
) -> None:
    """Start Redis and wait until it answers; one that is on is left alone."""
    found = server.start(get_settings(), port=port)
    for line in [*_told(found), f"  export {SETTING}={found.url}"]:
        say(line)


def stop() -> None:
    """End Redis; what it holds stays for the next start."""
    say("Redis ended." if place_of(get_settings()).end() else "No Redis is on.")


def status(*, as_json: AsJson = False) -> None:
    """Show the address of Redis, and its log."""
    found = server_of(get_settings())
    ready = found is not None and answers(found)
    if as_json:
        print_json({**asdict(found), "url": found.url, "answers": ready} if found else None)
    elif found is None:
        say("No Redis is on. Start it: lakehouse redis start")
    else:
        for line in _told(found) if ready else [f"Redis does not answer. Its log: {found.log}"]:
            say(line)


def _told(found: Server) -> list[str]:
    return [
        f"Redis listens at {found.url} (process {found.pid}). Its log: {found.log}",
        f"It is used where {SETTING} is not set; Dagster needs that set. To end it: {program()} redis stop",
    ]
