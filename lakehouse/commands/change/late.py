"""`lakehouse late`: how late rows come, which wait because they came too late, and taking those in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Any

import typer

from lakehouse.build.late import accept, accepted_through, late_rows
from lakehouse.build.stale import all_stale_days, known_days
from lakehouse.catalog import get_table, lake_without_engine
from lakehouse.checks.statistics import lateness, percentile
from lakehouse.commands.command import Command, LookingCommand, examples
from lakehouse.commands.console import AsJson, FromDay, ToDay, console, print_json, say, table
from lakehouse.commands.progress import Terminal
from lakehouse.commands.summary import print_summary
from lakehouse.contracts import Table
from lakehouse.days import is_between
from lakehouse.errors import UsageError
from lakehouse.read.lake import Lake
from lakehouse.records.history import latest_records
from lakehouse.runs.selection import in_order, select_tables
from lakehouse.settings import get_settings
from lakehouse.texts import counted, days_text
from lakehouse.users import operator

SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "most": 1.0}


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    family = typer.Typer(no_args_is_help=True, help="Rows that arrive after their day.", rich_markup_mode="rich")
    family.command("show", cls=LookingCommand, epilog=examples("lakehouse late show", "lakehouse late show --json"))(
        show
    )
    family.command(
        "apply",
        cls=Command,
        epilog=examples(
            "lakehouse late apply silver.transactions --from 2011-01-04 --to 2011-01-04 --reason 'agreed with finance'"
        ),
    )(apply)
    app.add_typer(family, name="late")


def show(first: FromDay = None, last: ToDay = None, *, as_json: AsJson = False) -> None:
    """Say how many days late rows arrive in each landed table, and what waits for being later than allowed.

    Read from the figures that commits keep and from quarantine; days of `--from` and `--to` are arrival days of landed
    tables, event days of the others.
    """
    lake = lake_without_engine(get_settings())
    found = [_lateness(lake, each, first, last) for each in lake.tables.values() if each.landing]
    late = {
        each.id: {day: n for day, (n, _) in late_rows(lake, each).items() if is_between(day, first, last)}
        for each in lake.tables.values()
        if each.allowed_lateness is not None and not each.landing
    }
    if as_json:
        print_json(
            {"landed": found, "waiting": [{"table": t, "day": d, "rows": n} for t in late for d, n in late[t].items()]}
        )
        return
    _print(found, late)


def _print(found: Sequence[dict[str, Any]], late: Mapping[str, Mapping[date, int]]) -> None:
    columns = ("table", "rows", "of earlier days", "dated after arrival", *(f"{name}, days" for name in SHARES))
    console().print(table(columns, [list(each.values()) for each in found], right=columns[1:]))
    for name, by_day in late.items():
        if by_day:
            rows = counted(sum(by_day.values()), "row")
            say(f"{name}: {rows} came later than allowed and wait, of {days_text(sorted(by_day))}.")
        else:
            say(f"{name}: no row waits for being late.")


def _with_lateness(name: str) -> Table:
    contract = get_table(name)
    if contract.allowed_lateness is None or contract.landing:
        raise UsageError(f"{contract.id} allows any lateness: its contract sets no allowed_lateness.")
    return contract


def apply(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="Whose late rows to take in.")],
    first: FromDay = None,
    last: ToDay = None,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the table's history.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be taken in.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take in rows that came later than allowed: their days, and all that depends on them, are built again."""
    in_order(first, last)
    settings, contract = get_settings(), _with_lateness(name)
    if not reason.strip():
        raise UsageError("A reason is needed: reported numbers will change.")
    lake = lake_without_engine(settings)
    late = {day: each for day, each in late_rows(lake, contract).items() if is_between(day, first, last)}
    rows = counted(sum(n for n, _ in late.values()), "late row")
    names = select_tables([f"{contract.id}+"])
    # A command that was killed may have taken rows in and not have built all that reads them: the next one does.
    days = set(late) if late or dry_run else _taken_before(lake, contract, names, first, last)
    if dry_run or not days:
        say(f"{rows} of {contract.id} would be taken in." if late else f"No row of {contract.id} waits for being late.")
        if as_json:
            print_json([{"day": day, "rows": n, "last_arrival": arrival} for day, (n, arrival) in late.items()])
        return
    if late:
        facts = {"lakehouse.reason": reason, "lakehouse.by": operator()}
        accept(lake, contract, {day: arrival for day, (_, arrival) in late.items()}, facts)
        say(f"{contract.id} takes in {rows}.")
    else:
        told = days_text(sorted(days))
        say(f"No row of {contract.id} waits for being late; what reads those of {told}, taken in before, is built.")
    from lakehouse.runs.running import run_stale

    report = run_stale(settings, names, only={contract.id: days}, listener=Terminal(settings))
    if as_json:
        print_json(report.as_json())
    else:
        print_summary(report, settings)
    raise typer.Exit(report.exit_code)


def _taken_before(
    lake: Lake, contract: Table, names: Sequence[str], first: date | None, last: date | None
) -> set[date]:
    """The days whose late rows an earlier command took in; none where all the named tables are up to date."""
    known = {day for day in known_days(lake, contract) if is_between(day, first, last)}
    taken = set(accepted_through(contract, lake.snapshot(contract.quarantine_id), known))
    return taken if taken and any(all_stale_days(lake, lake.table(each)) for each in names) else set()


def _lateness(lake: Lake, contract: Table, first: date | None, last: date | None) -> dict[str, Any]:
    together: Counter[int] = Counter()
    for day, record in latest_records(lake.settings.root, contract.id).items():
        if is_between(day, first, last):
            kept = record.figures.get("event_days", {})
            together += lateness(day, {date.fromisoformat(text): rows for text, rows in kept.items()})
    found: dict[str, Any] = {"table": contract.id, "rows": together.total()}
    found["earlier"] = sum(n for days, n in together.items() if days > 0)
    found["ahead"] = sum(n for days, n in together.items() if days < 0)
    return found | {name: percentile(together, share) for name, share in SHARES.items()}
