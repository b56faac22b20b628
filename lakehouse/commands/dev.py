"""`lakehouse dev`: Dagster's web interface and daemon on this machine, with their state under the lakehouse root."""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import Annotated

import typer

from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import UsageError, say
from lakehouse.settings import get_settings

HOST = "127.0.0.1"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("dev", cls=Command, epilog=examples("lakehouse dev", "lakehouse dev --port 3100"))(dev)


def dev(
    port: Annotated[
        int | None, typer.Option("--port", "-p", min=1, max=65535, help="Port; default: LAKEHOUSE_PORT, 3000.")
    ] = None,
) -> None:
    """Run the web interface and the daemon until Ctrl-C, for this machine only: they have no login."""
    settings = get_settings()
    chosen = port or settings.port
    if not is_free(chosen):
        raise UsageError(
            f"Port {chosen} of {HOST} is taken. Stop what uses it, or choose another: lakehouse dev --port N"
        )
    from lakehouse.orchestration.instance import opened_instance

    with opened_instance(settings):  # its processes start together, and find the tables of a new instance made
        home = settings.dagster_home
    environment = os.environ | {"LAKEHOUSE_ROOT": str(settings.root)}
    say(f"Dagster on http://{HOST}:{chosen} (state in {home}); Ctrl-C stops it.")
    command = [sys.executable, "-m", "dagster", "dev", "-h", HOST, "-p", str(chosen)]
    command += ["--log-level", "warning"]  # else each look of each sensor is two lines, though it finds nothing
    command += ["-m", "lakehouse.definitions"]
    # A shell starts background jobs with SIGINT ignored, and what is ignored stays so in the program that takes over.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, environment)  # noqa: S606  # no shell: this very process becomes Dagster


def is_free(port: int) -> bool:
    """Whether a server could listen on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
