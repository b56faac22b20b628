"""`lakehouse engine`: start, stop and look at the warm engine."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, print_json, say
from lakehouse.commands.operate import cluster
from lakehouse.errors import UsageError
from lakehouse.settings import Settings, get_settings
from lakehouse.spark.engine_place import EnginePlace
from lakehouse.texts import counted


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    about = "The warm engine, which commands and runs share."
    family = typer.Typer(no_args_is_help=True, help=about, rich_markup_mode="rich")
    family.command("start", cls=Command, epilog=examples("lakehouse engine start"))(start)
    family.command("stop", cls=Command, epilog=examples("lakehouse engine stop"))(stop)
    family.command("status", cls=Command, epilog=examples("lakehouse engine status", "lakehouse engine status --json"))(
        status
    )
    cluster.add_below(family)
    app.add_typer(family, name="engine")


def start() -> None:
    """Start the engine of the settings and wait until it serves; one that is on is left alone."""
    settings = get_settings()
    if reason := _why_none(settings):
        raise UsageError(reason)
    from lakehouse.spark.warm import begin, wait

    address = wait(begin(settings))
    say(f"The engine serves on {address.url} (process {address.pid}, {address.memory}); log: {address.log}")
    if address.ui:
        say(f"Spark's own pages: {address.ui}")


def stop(
    *,
    force: Annotated[bool, typer.Option("--force", help="Also where processes use it; their runs fail.")] = False,
) -> None:
    """End the engines of this lakehouse, also those of other settings."""
    from lakehouse.spark.warm import places

    found = places(get_settings())
    working = sorted(lease.pid for place in found for lease in place.users() if lease.works)
    if working and not force:
        raise UsageError(
            f"The engine is in use by process {', '.join(map(str, working))}, whose work would fail. Wait for its end "
            "(lakehouse engine status), or let it fail: lakehouse engine stop --force"
        )
    for place in found:
        place.end()
    say(f"Ended: {counted(len(found), 'engine')}." if found else "No engine is on.")


def status(*, as_json: AsJson = False) -> None:
    """Show which engines are on, since when, who uses them for what, their memory, queries, pages and log."""
    from lakehouse.spark.warm import places

    settings = get_settings()
    found = [_state(place) for place in places(settings)]
    if as_json:
        print_json(found)
        return
    for each in found:
        for line in _told(each):
            say(line)
    if not found:
        begins = "The first command or run that computes starts one, or: lakehouse engine start"
        say(f"No engine is on. {_why_none(settings) or begins}")


def _why_none(settings: Settings) -> str:
    """Why there is no engine that could be shared on this machine; empty where there may be one."""
    if not settings.is_local:
        return f"Spark runs at {settings.engine_name}: there is no engine to start on this machine."
    if not settings.engine_minutes:
        return "LAKEHOUSE_ENGINE_MINUTES is 0: each process has an engine of its own. Set it to 15, say."
    return ""


def _state(place: EnginePlace) -> dict[str, Any]:
    address, users = place.address(), place.users()
    state: dict[str, Any] = {"engine": place.folder.name, "serves": address is not None, "log": str(place.log)}
    state["users"] = sorted(lease.pid for lease in users if lease.works)
    state["held_by"] = sorted(lease.pid for lease in users if not lease.works)
    if address is not None:
        # The place where it writes was chosen by whoever started it, by settings that may differ from these.
        state["log"] = address.log
        state |= {"url": address.url, "pid": address.pid, "seconds": max(0, round(time.time() - address.started))}
        state |= {"memory": address.memory, "resident_mb": _resident_mb(address.pid), "versions": address.versions}
        state |= {"ends_after_idle_seconds": address.idle_seconds, "ui": address.ui}
        state["work"] = [{"pid": each.pid, **place.doing(each.session)} for each in users if each.works]
        state |= _activity(address.ui, {each.session: each.pid for each in users})
    return state


def _activity(pages: str, pids: Mapping[str, int]) -> dict[str, Any]:
    """Memory and queries of an engine, as its pages tell; a query is told by process and not by session."""
    from lakehouse.spark.activity import activity

    if not pages or (found := activity(pages)) is None:
        return {"ui_answers": False, "heap_most_mb": None, "running": [], "slowest": []}
    told = {"ui_answers": True, **asdict(found)}
    for query in (*told["running"], *told["slowest"]):
        query["pid"] = pids.get(query.pop("session"))
    return told


def _told(state: dict[str, Any]) -> list[str]:
    if not state["serves"]:
        return [f"An engine is starting or ending; log: {state['log']}"]
    users = f"used by {', '.join(map(str, state['users']))}" if state["users"] else "used by nobody"
    users += f", kept by {', '.join(map(str, state['held_by']))}" if state["held_by"] else ""
    memory = f", at most {state['heap_most_mb']:,} MB in use since it began" if state["heap_most_mb"] else ""
    memory += f"; {state['resident_mb']:,} MB resident" if state["resident_mb"] else ""
    return [
        f"The engine serves on {state['url']} (process {state['pid']}) since {state['seconds'] / 60:.0f} min, {users}.",
        f"Heap: {state['memory']}{memory}. It ends {state['ends_after_idle_seconds'] / 60:g} min after its last use.",
        f"{state['versions']}. Log: {state['log']}",
        f"Spark's own pages: {state['ui'] or 'none; LAKEHOUSE_SPARK_UI=true shows them, where the system is Linux'}",
        *(["They do not answer now, so its queries are not told."] if state["ui"] and not state["ui_answers"] else []),
        *(_work_text(each) for each in state["work"]),
        *(f"Running for {_query_text(each)}" for each in state["running"]),
        *(f"Slow of late: {_query_text(each)}" for each in state["slowest"]),
    ]


def _work_text(work: Mapping[str, Any]) -> str:
    told = [work[name] for name in ("table", "days") if name in work]
    told += [f"run {work['run']}"] if "run" in work else []
    return f"Process {work['pid']} ({work.get('command', 'of another version')}): {', '.join(told) or 'no table now'}."


def _query_text(query: Mapping[str, Any]) -> str:
    process = f", process {query['pid']}" if query["pid"] else ""
    failed = ", failed" if query["failed"] else ""
    tasks = f"{query['tasks_done']:,} of {query['tasks']:,} tasks"
    return f"{query['seconds']:.1f} s: {tasks}{process}{failed}; {query['url']}"


def _resident_mb(group: int) -> int | None:
    """Memory of a process group; None where the system does not tell."""
    pages = 0
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = each.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        pages += int(fields[21]) if fields[2] == str(group) else 0
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20) or None
