"""`lakehouse alerts`: what was told to whom, what fails now, and whether every sink can be reached."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from lakehouse.build.verdicts import table_verdicts, verdicts
from lakehouse.catalog import lake_without_engine, tables
from lakehouse.checks.audit import check_names
from lakehouse.commands.command import Command, LookingCommand, examples
from lakehouse.commands.console import AsJson, console, print_json, say, table
from lakehouse.errors import BROKEN
from lakehouse.orchestration.alerts.compared import failure_of, key_of
from lakehouse.orchestration.alerts.message import TEST, WARN, Message
from lakehouse.orchestration.alerts.sensor import store_path
from lakehouse.orchestration.alerts.sinks import LOG, WEBHOOK, Sink, SinkError, sinks_of
from lakehouse.orchestration.alerts.store import opened_store
from lakehouse.settings import Settings, get_settings
from lakehouse.texts import counted

SHOWN_DAYS = 3
NOT_SEEN = "not yet"  # the table's own log says that it fails, and the sensor has not looked since


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    family = typer.Typer(no_args_is_help=True, help="Alerts: what was told, and to whom.", rich_markup_mode="rich")
    family.command(
        "list", cls=LookingCommand, epilog=examples("lakehouse alerts list", "lakehouse alerts list --failing --json")
    )(list_)
    family.command("test", cls=Command, epilog=examples("lakehouse alerts test"))(try_sinks)
    app.add_typer(family, name="alerts")


def list_(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most alerts to show.")] = 20,
    *,
    failing: Annotated[bool, typer.Option("--failing", help="What fails now, however often it was seen.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the newest alerts with how each sink stands, or what fails now."""
    rows = _failing(get_settings()) if failing else _recent(get_settings(), limit)
    if as_json:
        print_json(rows)
    elif not rows:
        what = "Nothing is known to fail." if failing else "There are no alerts."
        say(f"{what} The sensor `alerts` of `lakehouse dev` looks every half minute.")
    elif failing:
        columns = ("table", "check", "day", "severity", "seen", "found")
        cells = [[NOT_SEEN if row[name] is None else row[name] for name in columns] for row in rows]
        console().print(table(columns, cells, right=("seen",)))
    else:
        _print(rows)


def _tried(sink: Sink, owner: str) -> str:
    try:
        sink.send(_test_message(owner))
    except SinkError as error:
        return str(error)
    return "sent"


def try_sinks(*, as_json: AsJson = False) -> None:
    """Send a test message through every configured sink; ends with 3 where one does not take it."""
    settings = get_settings()
    sinks = sinks_of(settings)
    owners = {each.owner for each in tables().values()}
    rows: list[dict[str, Any]] = []
    for sink, target, owner in _tries(settings):
        note = "" if not owner or owner in owners else "no table has this owner"
        rows.append({"sink": target, "result": _tried(sinks[sink], owner), "note": note})
    if as_json:
        print_json(rows)
    else:
        console().print(table(("sink", "result", "note"), [list(row.values()) for row in rows]))
        if not settings.alert_webhook:
            unrouted = sorted(owners - set(settings.alert_routes))
            say(f"Only logged, for want of LAKEHOUSE_ALERT_WEBHOOK: alerts of {', '.join(unrouted) or 'runs'}.")
    raise typer.Exit(BROKEN if any(row["result"] != "sent" for row in rows) else 0)


def _tries(settings: Settings) -> list[tuple[str, str, str]]:
    """Every way a message can go: the sink, the name of the way, and the owner whose own it is."""
    common = [(LOG, LOG, ""), *([(WEBHOOK, WEBHOOK, "")] if settings.alert_webhook else [])]
    return common + [(WEBHOOK, f"{WEBHOOK}:{owner}", owner) for owner in sorted(settings.alert_routes)]


def _test_message(owner: str) -> Message:
    text = f"A test alert of this lakehouse for {owner or 'everyone'}; nothing failed."
    return Message(TEST, WARN, "", "", owner, (), text, "", time.time())


def _recent(settings: Settings, limit: int) -> list[dict[str, Any]]:
    if not store_path(settings).exists():
        return []
    with opened_store(store_path(settings)) as store:
        return store.recent(limit)


def _failing(settings: Settings) -> list[dict[str, Any]]:
    """What fails now: of the tables' checks by their own logs, of all else what the sensor has seen."""
    known = {}
    if store_path(settings).exists():
        with opened_store(store_path(settings)) as store:
            known = store.problems()
    lake = lake_without_engine(settings)
    failing = {
        key_of(name, each): failure_of(name, each)
        for name, table in lake.tables.items()
        for each in (*verdicts(lake, table), *table_verdicts(lake, table))
    }
    others = {
        key: each
        for key, each in known.items()
        if key[0] not in lake.tables or key[1] not in check_names(lake.table(key[0]))
    }
    return [
        {
            "table": key[0],
            "check": key[1],
            "day": key[2],
            "severity": each.severity,
            "seen": known[key].seen if key in known else None,
            "found": each.text,
        }
        for key, each in sorted((failing | others).items())
    ]


def _print(rows: list[dict[str, Any]]) -> None:
    cells = []
    for row in rows:
        days = ", ".join(row["days"][:SHOWN_DAYS])
        more = row["days_total"] - min(SHOWN_DAYS, len(row["days"]))
        sinks = ", ".join(f"{name}: {state}" for name, state in row["sinks"].items())
        told = [row[name] for name in ("at", "kind", "severity", "table", "check")]
        cells.append([*told, days + (f" and {more} more" if more else ""), row["owner"], sinks])
    console().print(table(("at", "kind", "severity", "table", "check", "days", "owner", "sinks"), cells))
    say(f"{counted(len(rows), 'alert')}, newest first; all of them are in logs/alerts.jsonl under the root.")
