"""`lakehouse status`: what is published, how fresh it is, what fails, and what is in quarantine. Starts no engine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import (
    AsJson,
    age_text,
    console,
    counted,
    days_text,
    print_json,
    program,
    quiet_warnings,
    say,
    table,
)
from lakehouse.commands.selection import Selection, select_tables
from lakehouse.days import days_between
from lakehouse.settings import Settings, get_settings

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from lakehouse.contracts import Table
    from lakehouse.delta.snapshot import Snapshot
    from lakehouse.read.lake import Lake


@dataclass(frozen=True)
class Status:
    """One table.

    Attributes:
        days: partitions published, empty ones included.
        first_day, last_day: first and last day with rows.
        rows: published rows.
        version: newest commit; -1 where the table was never built.
        published_at: time of the newest commit of a run.
        checked_at: when a run last found the table up to date or made it so.
        fresh_within_hours: age of `checked_at` that breaks the SLA; `fresh` says whether it holds.
        failing_checks: by name, the days that fail it and what was found on the first of them.
        failed_days: days whose newest run did not publish them, without the next.
        ended_days: days whose newest run somebody ended; they wait until their input changes or they are launched.
        outdated_days: published days whose inputs or code have changed since.
        older_code: published days that code other than today's built, counted by code version.
        quarantined: rows in quarantine, without discarded ones.
        quarantined_since: when the oldest of them first failed.
        quarantined_by_rule: a row counts for each rule it broke.
        discarded: rows in quarantine that a person discarded.
    """

    table: str
    days: int
    first_day: date | None
    last_day: date | None
    rows: int
    version: int
    published_at: datetime | None
    checked_at: datetime | None
    fresh_within_hours: float
    fresh: bool
    failing_checks: dict[str, str]
    failed_days: list[date]
    ended_days: list[date]
    outdated_days: list[date]
    older_code: dict[str, int]
    quarantined: int
    quarantined_since: datetime | None
    quarantined_by_rule: dict[str, int]
    discarded: int


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "status",
        cls=Command,
        epilog=examples("lakehouse status", "lakehouse status --select group:gold --json"),
    )(status)


def status(
    selection: Selection = None,
    *,
    as_json: AsJson = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="End with 1 where a check fails, a day failed or a table is not fresh.")
    ] = False,
) -> None:
    """Show by table: partitions, rows, freshness, failing checks, failed and outdated days, quarantine depth."""
    settings = get_settings()
    quiet_warnings()
    found = table_states(settings, select_tables(selection))
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        _print(found, settings)
    unwell = any(each.failing_checks or each.failed_days or not each.fresh for each in found)
    raise typer.Exit(1 if strict and unwell else 0)


def table_states(settings: Settings, names: Sequence[str], now: datetime | None = None) -> list[Status]:
    """The state of each table, from its log and from Dagster's instance."""
    from lakehouse.commands.plans import lake_without_engine

    lake, moment = lake_without_engine(settings), now or datetime.now(UTC)
    if not (settings.dagster_home / "dagster.yaml").exists():
        return [_state(lake, lake.table(name), None, moment) for name in names]
    from lakehouse.orchestration.instance import opened_instance

    with opened_instance(settings) as instance:
        return [_state(lake, lake.table(name), instance, moment) for name in names]


def _state(lake: Lake, contract: Table, instance: DagsterInstance | None, now: datetime) -> Status:
    from lakehouse.build.touched import stale_days
    from lakehouse.build.verdicts import by_check, sentence, table_verdicts, verdicts
    from lakehouse.orchestration.ended import ended_days
    from lakehouse.orchestration.instance import unfinished_days
    from lakehouse.records.depth import depth_now
    from lakehouse.records.failures import depth_of
    from lakehouse.records.history import older_code

    snapshot = lake.snapshot(contract.id)
    aside = depth_now(lake.settings.root, contract, now) if contract.rules else depth_of((), now)
    failed, ended = set[date](), set[date]()
    if instance:
        failed = unfinished_days(instance, [contract.id]).get(contract.id, failed)
        ended = set(ended_days(instance, [contract.id]).by_somebody.get(contract.id, ()))
        ended &= set(stale_days(lake, contract, ended))  # a day that is up to date waits for nothing
    standing = [*verdicts(lake, contract), *table_verdicts(lake, contract, depth=aside)]
    rows = {day: number for day, number in snapshot.rows_by_day(contract.day_column).items() if number}
    likely = _materialized(instance, contract) if instance else set()
    published = published_days(snapshot, likely.union(_between(rows)))
    older = older_code(lake.settings.root, contract.id, contract.code_version, published)
    published_at = _published_at(snapshot)
    checked_at = (_checked_at(instance, contract) if instance else None) or published_at
    return Status(
        table=contract.id,
        days=len(published),
        first_day=min(rows, default=None),
        last_day=max(rows, default=None),
        rows=sum(rows.values()),
        version=snapshot.version,
        published_at=published_at,
        checked_at=checked_at,
        fresh_within_hours=contract.freshness.within / timedelta(hours=1),
        fresh=checked_at is not None and now - checked_at <= contract.freshness.within,
        failing_checks={name: sentence(found) for name, found in by_check(standing).items()},
        failed_days=sorted(failed - ended),
        ended_days=sorted(ended),
        outdated_days=stale_days(lake, contract, published),
        older_code={code: len(days) for code, days in older.items()},
        quarantined=aside.rows,
        quarantined_since=aside.oldest,
        quarantined_by_rule=dict(aside.by_rule.most_common()),
        discarded=aside.discarded,
    )


def _between(days: Collection[date]) -> list[date]:
    """Every day from the first to the last: days without rows can be published as well."""
    return days_between(min(days), max(days)) if days else []


def published_days(snapshot: Snapshot, likely: Iterable[date]) -> list[date]:
    """Those of some days that a run has published, empty ones included: they have a fingerprint in the table's log."""
    from lakehouse.delta.marks import day_transaction

    return [day for day in sorted(set(likely)) if snapshot.transaction(day_transaction(day)) is not None]


def _materialized(instance: DagsterInstance, contract: Table) -> set[date]:
    from lakehouse.orchestration.report import asset_key

    return {date.fromisoformat(key) for key in instance.get_materialized_partitions(asset_key(contract.id))}


def _published_at(snapshot: Snapshot) -> datetime | None:
    from pathlib import Path

    from lakehouse.delta.log import oldest_entry, read_entry
    from lakehouse.records.history import JUDGE

    path = Path(snapshot.uri)
    last = max(snapshot.version - 20, oldest_entry(path) - 1, -1)
    for version in range(snapshot.version, last, -1):
        entry = read_entry(path, version, ())
        if "lakehouse.run_id" in entry.facts and entry.facts.get("lakehouse.operation") != JUDGE:
            return entry.time
    return None


def _checked_at(instance: DagsterInstance, contract: Table) -> datetime | None:
    from lakehouse.orchestration.report import asset_key

    event = instance.get_latest_materialization_event(asset_key(contract.id))
    return datetime.fromtimestamp(event.timestamp, UTC) if event else None


def _print(found: Sequence[Status], settings: Settings) -> None:
    now = datetime.now(UTC)
    columns = (
        "table",
        "days",
        "first",
        "last",
        "rows",
        "checked",
        "fresh",
        "checks",
        "failed",
        "outdated",
        "quarantine",
        "since",
    )
    rows = [_row(each, now) for each in found]
    console().print(table(columns, rows, right=("days", "rows", "checks", "failed", "outdated", "quarantine")))
    for each in found:
        for name, text in each.failing_checks.items():
            say(f"{each.table}: check {name} {text}" if text.startswith("fails") else f"{each.table}: {name}: {text}")
        if each.failed_days:
            say(f"{each.table}: the newest run did not publish {days_text(each.failed_days)}")
        if each.ended_days:
            say(f"{each.table}: somebody ended the run of {days_text(each.ended_days)}, which waits for a new input")
        if each.outdated_days:
            say(f"{each.table}: inputs or code have changed since {days_text(each.outdated_days)} was published")
        if each.older_code:
            told = ", ".join(f"{code} {counted(days, 'day')}" for code, days in each.older_code.items())
            say(f"{each.table}: {counted(sum(each.older_code.values()), 'day')} of older code ({told})")
        if each.quarantined_by_rule:
            rules = ", ".join(f"{rule} {number:,}" for rule, number in each.quarantined_by_rule.items())
            say(f"{each.table}: in quarantine: {rules}")
    if not any(each.version >= 0 for each in found):
        say(f"Nothing was built yet in {settings.root}. Begin with: {program()} demo")
    if any(each.older_code for each in found):
        say(f"Rebuild what older code built: {program()} backfill --outdated")
    if any(each.failed_days or each.ended_days for each in found):
        say(f"Re-run what is missing: {program()} backfill --failed-only")


def _row(each: Status, now: datetime) -> list[Any]:
    age = f"{age_text(now - each.checked_at)} ago" if each.checked_at else "never"
    late = Text("late", style="bold red")
    alarm = "bold red"
    return [
        each.table,
        each.days,
        each.first_day,
        each.last_day,
        each.rows,
        age,
        "fresh" if each.fresh else late,
        Text(f"{len(each.failing_checks)} failing", style=alarm) if each.failing_checks else "ok",
        Text(str(len(each.failed_days)), style=alarm if each.failed_days else ""),
        len(each.outdated_days),
        counted(each.quarantined, "row"),
        f"{age_text(now - each.quarantined_since)} ago" if each.quarantined_since else None,
    ]
