"""`lakehouse engine cluster`: start, stop and look at a Spark cluster of this machine."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any

import typer

from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, print_json, say
from lakehouse.errors import UsageError
from lakehouse.settings import get_settings
from lakehouse.spark.cluster import Cluster, Size, cluster_of, end, state_of
from lakehouse.spark.cluster import start as started
from lakehouse.texts import counted


def add_below(app: typer.Typer) -> None:
    """Add the commands."""
    about = "A Spark cluster on this machine: a master and workers, processes of their own on loopback."
    family = typer.Typer(no_args_is_help=True, help=about, rich_markup_mode="rich")
    shown = ("lakehouse engine cluster start", "lakehouse engine cluster start --workers 4 --memory 2g --connect")
    family.command("start", cls=Command, epilog=examples(*shown))(start)
    family.command("stop", cls=Command, epilog=examples("lakehouse engine cluster stop"))(stop)
    family.command("status", cls=Command, epilog=examples("lakehouse engine cluster status"))(status)
    app.add_typer(family, name="cluster")


def start(
    *,
    workers: Annotated[int, typer.Option(min=1, help="Workers, each with one executor.")] = 2,
    cores: Annotated[int, typer.Option(min=1, help="Cores of each worker.")] = 1,
    memory: Annotated[str, typer.Option(help="Memory of each worker's executor, such as 2g.")] = "1g",
    connect: Annotated[bool, typer.Option("--connect", help="Also a Spark Connect server, which runs share.")] = False,
) -> None:
    """Start a cluster and wait until it is there; one that is on is left alone."""
    if not re.fullmatch(r"\d+[mg]", memory):
        raise UsageError(f"--memory: {memory!r} is not a size such as 1500m or 2g.")
    size = Size(workers, cores, memory, connect)
    found = started(get_settings(), size)
    if found.size != size:
        raise UsageError("A cluster of another size is on. End it first: lakehouse engine cluster stop")
    for line in _told(found):
        say(line)


def stop() -> None:
    """End the cluster and all that runs on it."""
    say("The cluster ended." if end(get_settings()) else "No cluster is on.")


def status(*, as_json: AsJson = False) -> None:
    """Show the cluster's addresses, its workers that are alive, what runs on it, and its log."""
    found = cluster_of(get_settings())
    if as_json:
        print_json(asdict(found) | _now(found) if found else None)
    elif found is None:
        say("No cluster is on. Start one: lakehouse engine cluster start")
    else:
        for line in _told(found):
            say(line)


def _now(cluster: Cluster) -> dict[str, Any]:
    """What its master says; where it does not answer, nobody knows of workers and applications."""
    with suppress(OSError, ValueError):
        state = state_of(cluster.page)
        return {
            "master_answers": True, "alive_workers": len(state.workers), "applications": list(state.applications),
        }  # fmt: skip
    return {"master_answers": False, "alive_workers": None, "applications": None}


def _told(cluster: Cluster) -> list[str]:
    now, size = _now(cluster), cluster.size
    if not now["master_answers"]:
        return [
            f"The cluster is on, but its master (process {cluster.pids['master']}) does not answer.",
            "It is stopped, or too busy. What starts on it fails after a minute.",
            "Look again, or end it: lakehouse engine cluster stop",
            f"Its page is {cluster.page}, its log {cluster.log}.",
        ]
    runs = ", ".join(now["applications"]) if now["applications"] else "nothing"
    each = f"{counted(size.workers, 'worker')} alive, each of {counted(size.cores, 'core')} and {size.memory}"
    return [
        f"The cluster is on: {now['alive_workers']} of {each}. It runs: {runs}.",
        f"Its page is {cluster.page}, its log {cluster.log}. To use it:",
        f"  {cluster.export}",
    ]
