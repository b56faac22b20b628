"""`lakehouse history` and `lakehouse restore`: choose an older version of a table, and go back to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Any

import typer

from lakehouse.build.stale import stale_days
from lakehouse.catalog import get_table, lake_without_engine
from lakehouse.commands.command import Command, LookingCommand, examples
from lakehouse.commands.console import AsJson, FromDay, ToDay, console, print_json, say, table
from lakehouse.days import days_between
from lakehouse.delta.log import TableVersion, versions
from lakehouse.errors import UsageError
from lakehouse.read.lake import Lake, table_path
from lakehouse.runs.plans import stale_downstream
from lakehouse.runs.selection import in_order
from lakehouse.settings import Settings, get_settings
from lakehouse.texts import counted, days_text, program, short_run
from lakehouse.users import operator
from lakehouse.versions.moments import parse_moment, version_at
from lakehouse.versions.restore import Restore, plan_restore
from lakehouse.versions.restore import restore as restore_table

Name = Annotated[str, typer.Argument(metavar="TABLE", help="A table, such as silver.transactions.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the history.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "history",
        cls=LookingCommand,
        epilog=examples("lakehouse history gold.user_features", "lakehouse history silver.orders --limit 5"),
    )(history)
    app.command(
        "restore",
        cls=Command,
        epilog=examples(
            "lakehouse restore silver.transactions --version 12 --dry-run",
            "lakehouse restore silver.transactions --as-of 2026-11-20T10:00 --reason 'bad deploy'",
            "lakehouse restore silver.transactions --version 12 --from 2011-03-04 --to 2011-03-05",
        ),
    )(restore)


def history(
    name: Name,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Newest commits to show.")] = 20,
    *,
    as_json: AsJson = False,
) -> None:
    """List a table's versions, newest first: what each commit did, its days and rows, and whether it can be read.

    A version whose files a vacuum has removed can neither be read nor restored whole.
    """
    source = get_table(name.removesuffix("_quarantine"))
    settings = get_settings()
    found = versions(table_path(settings.root, name if name.endswith("_quarantine") else source.id), limit)
    if not found:
        raise UsageError(_never_built(settings, source.id))
    said = [_as_json(each) for each in found]
    if as_json:
        print_json(said)
        return
    _print_versions(said)
    readable = [e for e in said if e["readable"]]
    # What one may go back to: the newest before the one that is read anyway, and not the empty table at the beginning.
    example = next((e for e in readable[1:] if e["rows"] != 0), next(iter(readable), None))
    if example is not None:
        # A quarantine goes back with its table, and not alone.
        back = f"   Go back: {program()} restore {name} --version N" if name == source.id else ""
        say(f"Read one: {program()} sql … --as-of {name}={example['version']}{back}")


def _print_versions(said: Sequence[Mapping[str, Any]]) -> None:
    """A table of versions, and below it who restored or swapped, and why."""
    columns = ("version", "time", "operation", "run", "code", "days", "rows before", "rows", "readable")
    rows = [
        (
            e["version"], e["time"].replace(microsecond=0), e["operation"], short_run(e["run_id"] or ""),
            e["code_version"], days_text(e["days"], 2),
            *("?" if e[n] is None else e[n] for n in ("rows_before", "rows")),
            "yes" if e["readable"] else f"no: {counted(e['files_gone'], 'file')} gone",
        )
        for e in said
    ]  # fmt: skip
    console().print(table(columns, rows, right=("version", "rows before", "rows")))
    for e in said:
        if e["by"]:
            why = f": {e['reason']}" if e["reason"] else ""
            what = f" to version {e['restored_version']}" if e["restored_version"] is not None else ""
            say(f"Version {e['version']}: {e['operation']}{what} by {e['by']}{why}")


def _as_json(version: TableVersion) -> dict[str, Any]:
    entry, facts = version.entry, version.entry.facts
    restored = facts.get("lakehouse.restored_version")
    inputs = facts.get("lakehouse.inputs")
    return {
        "version": entry.version,
        "time": entry.time,
        "operation": entry.operation,
        "run_id": facts.get("lakehouse.run_id"),
        "code_version": facts.get("lakehouse.code_version"),
        "inputs": json.loads(inputs) if isinstance(inputs, str) else inputs or {},
        "days": sorted(version.days) if entry.changes_rows else [],
        "rows_before": version.rows_before,
        "rows": version.rows,
        "readable": version.readable,
        "files_gone": version.gone,
        "restored_version": None if restored is None else int(restored),
        "by": facts.get("lakehouse.by") or facts.get("lakehouse.who"),  # as the first commits of late rows have it
        "reason": facts.get("lakehouse.reason"),
    }


def restore(
    name: Name,
    version: Annotated[int | None, typer.Option("--version", min=0, help="Whose content comes back.")] = None,
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="TIME", help="Or: what it held at that time, UTC.")
    ] = None,
    first: FromDay = None,
    last: ToDay = None,
    reason: Reason = "",
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change; write nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put a table and its quarantine, or some days of them, back to what an older version holds.

    One commit a table; nothing is copied and nothing is lost: the version before can be restored in turn. Starts no
    engine. Says which days of which tables are stale afterwards.
    """
    settings = get_settings()
    contract = get_table(name)
    lake = lake_without_engine(settings)
    newest = lake.snapshot(contract.id)
    if newest.version < 0:
        raise UsageError(_never_built(settings, contract.id))
    chosen = _chosen(lake, contract.id, version, as_of)
    days = _days(first, last)
    plan = plan_restore(lake, contract, chosen, days)
    done = plan
    if not dry_run:
        done = restore_table(lake, plan, by=operator(), reason=reason)
    stale = {} if dry_run else stale_downstream(settings, contract.id)
    behind = [] if dry_run else _behind(settings, done)
    if as_json:
        print_json({**_restored(done), "dry_run": dry_run, "behind": behind, "stale": stale})
        return
    _say_restored(done, dry_run=dry_run)
    if behind:
        _say_behind(contract.id, behind)
    if not dry_run:
        say_stale(contract.id, stale)


def _chosen(lake: Lake, name: str, version: int | None, as_of: str | None) -> int:
    if (version is None) == (as_of is None):
        raise UsageError(f"Give --version N or --as-of TIME; `{program()} history {name}` lists the versions.")
    if version is not None:
        newest = lake.snapshot(name).version
        if version > newest:
            raise UsageError(f"{name} has no version {version}; its newest is {newest}.")
        return version
    return version_at(lake.path(name), name, parse_moment(as_of or ""))


def _days(first: date | None, last: date | None) -> list[date] | None:
    if first is None and last is None:
        return None
    if first is None or last is None:
        raise UsageError("Give both --from and --to (inclusive), or neither for the whole table.")
    in_order(first, last)
    return days_between(first, last)


def _restored(done: Restore) -> dict[str, Any]:
    back, gone = done.rows
    return {
        "table": done.table.id,
        "version": done.version,
        "committed": done.committed,
        "days": done.days,
        "rows_back": back,
        "rows_gone": gone,
        "quarantine_version": None if done.side is None else done.side.wanted.version,
        "code_versions": sorted(set(done.code_versions.values())),
    }


def _say_restored(done: Restore, *, dry_run: bool) -> None:
    name, said = done.table.id, _restored(done)
    if done.nothing:
        say(f"{name} holds what it held at version {done.version} already; nothing was written.")
        return
    now, then = (each.rows_by_day(done.table.day_column) for each in (done.main.base, done.main.wanted))
    rows = [(day, now.get(day, 0), then.get(day, 0), done.code_versions.get(day, "")) for day in done.days]
    columns = ("day", "rows now", "rows then", "code then")
    console().print(table(columns, rows, right=columns[1:3]))
    verb = "would be restored" if dry_run else "restored"
    say(f"{name}: {counted(len(done.days), 'day')} {verb} to version {done.version}.")
    if dry_run:
        say("Dry run: nothing was written.")
        return
    if done.committed is not None:
        back = f"{program()} restore {name} --version {done.main.base.version}"
        say(f"It is version {done.committed} now; back again: {back}")
    other = sorted(set(said["code_versions"]) - {done.table.code_version, ""})
    if other:
        say(
            f"These rows were made by code {', '.join(other)}; today's is {done.table.code_version}, and a run over "
            "these days would build them again with it. Put the code back first, or leave the days out."
        )


def _behind(settings: Settings, done: Restore) -> list[date]:
    """The restored days that their inputs would give other rows, so that a run over them builds them again.

    Days of other code are told apart, and start no run by themselves.
    """
    days = [day for day in done.days if done.code_versions.get(day, "") in ("", done.table.code_version)]
    # Not in the lake that planned the restore, which sees each table as it was before.
    return stale_days(lake_without_engine(settings), done.table, days)


def _say_behind(name: str, days: Sequence[date]) -> None:
    say(
        f"The inputs of {name} {days_text(days)} have changed since that version. Nothing builds these days by itself "
        "until their inputs change once more. A run over them that somebody starts builds them from the newest inputs: "
        f"{program()} backfill --stale --select {name}"
    )


def say_stale(name: str, stale: Mapping[str, Sequence[date]]) -> None:
    """Which days of which tables are not what their inputs would give, and the command that fixes it."""
    if not stale:
        say("No table that depends on it is stale.")
        return
    for each, days in stale.items():
        say(f"Stale now: {each} {days_text(days)}")
    say(f"Rebuild them: {program()} backfill --stale --select '{name}+ and not {name}'")


def _never_built(settings: Settings, name: str) -> str:
    build = f"{program()} backfill --select '+{name}' --from DAY --to DAY"
    return f"{name} was never built in {settings.root}. Build it: {build}"
