"""`lakehouse dev`: Dagster's web interface and daemon on this machine, with their state under the lakehouse root.

The report is served beside it, on the next port.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from dotenv import dotenv_values

from lakehouse import orchestration
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import say
from lakehouse.errors import LakehouseError, UsageError
from lakehouse.servers.place import locked
from lakehouse.servers.ports import HERE, free_port, is_free
from lakehouse.servers.web import DEV_LOCK
from lakehouse.settings import Settings, get_settings

_SUPERSEDED = "ignore:Function `dev_command` is superseded"
LAST_PORT = 65535


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
            f"Port {chosen} of {HERE} is taken. Stop what uses it, or choose another: lakehouse dev --port N"
        )
    from lakehouse.orchestration.instance import opened_instance

    with opened_instance(settings):  # its processes start together, and find the tables of a new instance made
        home = settings.dagster_home
    alone = _be_alone(home, chosen)
    from lakehouse.report.serve import start

    beside = chosen + 1 if chosen < LAST_PORT and is_free(chosen + 1) else free_port()
    report = f"http://{HERE}:{beside}/"
    environment = os.environ | _from_env_file()
    environment |= {"LAKEHOUSE_ROOT": str(settings.root), "LAKEHOUSE_REPORT_URL": settings.report_url or report}
    # Dagster advises every user of `dagster dev` to type another command, in two lines that look like a fault.
    environment["PYTHONWARNINGS"] = ",".join(filter(None, (environment.get("PYTHONWARNINGS"), _SUPERSEDED)))
    start(beside, environment)
    _begin_engine(settings)
    say(f"Dagster on http://{HERE}:{chosen} (state in {home}), the report on {report}; Ctrl-C stops both.")
    # What `dagster dev` finds at the top of the repository, so that ticks and runs of both belong together.
    workspace = str(Path(orchestration.__file__).with_name("workspace.yaml"))
    command = [sys.executable, "-m", "lakehouse.orchestration.dev", "dev"]
    command += ["-h", HERE, "-p", str(chosen), "-w", workspace]
    command += ["--log-level", "warning"]  # else each look of each sensor is two lines, though it finds nothing
    # A shell starts background jobs with SIGINT ignored, and what is ignored stays so in the program that takes over.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    os.chdir(home)  # Dagster warns of a dagster.yaml that it finds where it is started and does not need
    sys.stdout.flush()
    sys.stderr.flush()
    os.set_inheritable(alone, True)  # by the program that takes over; what that starts does not inherit it
    os.execve(command[0], command, environment)  # noqa: S606  # no shell: this very process becomes Dagster


def _be_alone(home: Path, port: int) -> int:
    """The descriptor of a lock that this process holds while it lives: two daemons would look after the same runs.

    The file says where it listens.
    """
    descriptor = locked(home / DEV_LOCK, mode=0o666)  # for whoever shares the root; the umask keeps others out
    if descriptor is None:
        raise UsageError(
            f"`lakehouse dev` is on for {home.parent} already, and one looks after all of its runs. "
            "Use its pages, or end it first: Ctrl-C where it was started."
        )
    os.truncate(descriptor, 0)
    os.write(descriptor, str(port).encode())
    return descriptor


def _begin_engine(settings: Settings) -> None:
    """Let the warm engine start, so that the first click need not wait for it; it stays for as long as this process."""
    from lakehouse.spark.warm import begin, is_wanted

    if is_wanted(settings):
        try:
            begin(settings, hold=True)
        except LakehouseError as error:  # the runs will say it again; all else works without an engine
            say(f"Warning: {error}")


def _from_env_file() -> dict[str, str]:
    """What `.env` of this folder sets, as Dagster's processes will not start here; variables win over it."""
    found = {name: value for name, value in dotenv_values(".env").items() if value and name not in os.environ}
    folder = found.get("LAKEHOUSE_JARS_DIR") or os.environ.get("LAKEHOUSE_JARS_DIR")
    return found | ({"LAKEHOUSE_JARS_DIR": str(Path(folder).expanduser().absolute())} if folder else {})
