"""Quarantines in Dagster's pages: each is an asset that builds observe, and two jobs decide about its rows."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any

from dagster import (
    AssetKey,
    AssetObservation,
    AssetSpec,
    Config,
    DagsterInstance,
    Failure,
    MetadataValue,
    OpExecutionContext,
    TableRecord,
    job,
    op,
)
from pydantic import Field

from lakehouse.catalog import get_table, tables
from lakehouse.contracts import Table
from lakehouse.errors import LakehouseError
from lakehouse.orchestration.metadata import asset_key, legible
from lakehouse.quarantine.aside import shown_rows
from lakehouse.quarantine.replay import discard
from lakehouse.records.depth import Depth, depth_of
from lakehouse.records.ledger import Wanted
from lakehouse.records.quarantined import quarantined_rows
from lakehouse.settings import get_settings

GROUP = "quarantine"
SAMPLE_ROWS = 5
STOP_SECONDS = 60  # most that a command takes to end its builds
MOST_SHOWN = 8  # columns of a sample
COUNTED = ("rows", "discarded")


def quarantine_key(table: Table) -> AssetKey:
    """The asset key of a table's quarantine."""
    return asset_key(table.quarantine_id)


def quarantine_assets() -> list[AssetSpec]:
    """The quarantine of each table with row rules: its table's builds write and observe it."""
    return [
        AssetSpec(
            quarantine_key(table),
            deps=[asset_key(table.id)],
            group_name=GROUP,
            owners=[table.owner],
            kinds={"deltalake"},
            tags={"layer": GROUP},
            description=f"Rows of {table.id} that broke a row rule, with every rule, their file and line. "
            f"The jobs quarantine_replay and quarantine_discard decide about them.",
            metadata={"dagster/table_name": table.quarantine_id},
        )
        for table in tables().values()
        if table.rules
    ]


def observed(
    table: Table, depth: Depth, told: Mapping[str, Any] | None = None, days: Sequence[date] | None = None
) -> AssetObservation:
    """What is in a quarantine: rows by rule, age, and some rows without personal data.

    Args:
        table: whose quarantine.
        depth: what is in it.
        told: further metadata, such as what a decision came to.
        days: those that the rows are of which are shown; None: any.
    """
    metadata = {**_figures(table, depth), **(told or {})}
    if depth.rows and (records := _sample(table, days)):
        metadata["sample"] = MetadataValue.table(records)
    return AssetObservation(quarantine_key(table), metadata=legible(metadata))


def news(
    instance: DagsterInstance, table: Table, depth: Depth, days: Sequence[date] | None = None
) -> AssetObservation | None:
    """An observation of a quarantine, where the newest one shows another; of one that was always empty, none.

    Rows are read only where it is needed: a stream asks every few seconds.
    """
    records = instance.fetch_observations(quarantine_key(table), limit=1).records
    before = records[0].asset_observation if records else None
    told = {name: value.value for name, value in before.metadata.items()} if before else {}
    is_news = _counts(legible(_figures(table, depth))) != _counts(told)
    return observed(table, depth, days=days) if is_news else None


def _counts(told: Mapping[str, object]) -> dict[str, object]:
    """The rows of a quarantine, by rule and decided about; what is zero is left out, so that a new rule is no news."""
    return {name: number for name, number in told.items() if number and (name in COUNTED or name.startswith("rows/"))}


def _figures(table: Table, depth: Depth) -> dict[str, Any]:
    by_rule = {rule.name: depth.by_rule.get(rule.name, 0) for rule in table.rules} | dict(depth.by_rule)
    return {
        "rows": depth.rows,
        "age_days": round(depth.age.total_seconds() / 86400, 2),
        "discarded": depth.discarded,
        # Every rule each time: a line that is zero is a line as well.
        **{f"rows/{rule}": number for rule, number in by_rule.items()},
    }


def _sample(table: Table, days: Sequence[date] | None) -> list[TableRecord]:
    rows = shown_rows(get_settings().root, table, days=days, limit=SAMPLE_ROWS)
    filled = [name for name in (rows[0] if rows else ()) if any(row[name] is not None for row in rows)]
    return [TableRecord({name: _plain(row[name]) for name in filled[:MOST_SHOWN]}) for row in rows]


def _plain(value: Any) -> str | int | float | bool | None:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


class Chosen(Config):
    """Which rows of which quarantine, and who decides about them."""

    table: str = Field(description="Table whose quarantine it is about, such as silver.transactions")
    who: str = Field(description="Who decides; kept in the ledger for ever")
    days: list[str] = Field([], description="Only rows of these days, YYYY-MM-DD; none: all days")
    rule: str = Field("", description="Only rows that broke this rule; empty: all")


class Discard(Chosen):
    """Rows that nobody will fix are taken out of every count; they stay as evidence."""

    reason: str = Field(description="Why; kept in the ledger for ever. No personal data")
    undo: bool = Field(False, description="Let rows that were discarded count again")


class Replay(Chosen):
    """The days of the rows are built again, then the stale days downstream."""

    force: bool = Field(False, description="Build days again whose inputs and code have not changed")


@op(description="Take quarantined rows out of every count, with a reason")
def discard_rows(context: OpExecutionContext, config: Discard) -> None:
    """One entry of the ledger for each day asked for, or one for all."""
    table, days = _asked(config)
    reason = " ".join(config.reason.split())
    if not reason:
        raise Failure("A discard needs a reason that others will understand later.", allow_retries=False)
    counted, entries = 0, []
    for day in days:
        wanted = Wanted(config.rule or None, day)
        entry = discard(
            get_settings().root, table, wanted, who=config.who, at=datetime.now(UTC), reason=reason, undo=config.undo
        )
        if entry is not None:
            counted += entry.rows
            entries.append(entry.id)
    what = "counted_again" if config.undo else "discarded_now"
    _tell(context, table, {what: counted, "who": config.who, "reason": reason, "ledger": ", ".join(entries) or "none"})


@op(description="Build the days of quarantined rows again")
def replay_rows(context: OpExecutionContext, config: Replay) -> None:
    """By `lakehouse quarantine replay`, in a process of its own: its builds are runs that start an engine."""
    table, days = _asked(config)
    outcome: dict[str, int] = {}
    runs: list[str] = []
    for day in days:
        said = _replayed(table, day, config)
        runs += [run["run_id"] for run in said["runs"]["runs"]]
        for entry in said["replays"]:
            for name, number in entry["outcome"].items():
                outcome[name] = outcome.get(name, 0) + number
    told = {f"replayed/{name.replace(' ', '_')}": number for name, number in outcome.items()}
    _tell(context, table, {**told, "who": config.who, "runs": ", ".join(runs) or "none: nothing has changed"})


def _replayed(table: Table, day: date | None, config: Replay) -> dict[str, Any]:
    asked = ["--rule", config.rule] if config.rule else []
    asked += ["--day", str(day)] if day else []
    asked += ["--force"] if config.force else []
    command = [sys.executable, "-m", "lakehouse.cli", "quarantine", "replay", table.id, "--json"]
    # The ledger asks the system who the user is, and the system asks LOGNAME first.
    environment = os.environ | {"LAKEHOUSE_ROOT": str(get_settings().root), "LOGNAME": config.who}
    code, said, errors = _run([*command, *asked], environment)
    again = "Nothing is lost or doubled: launch the same job again, it goes on with it."
    if code < 0:
        how = f"Its process was killed by {signal.Signals(-code).name}"
        raise Failure(f"The replay of {table.id} did not come to its end. {how}. {again}", allow_retries=False)
    try:
        found: dict[str, Any] = json.loads(said)
    except json.JSONDecodeError:
        last = errors.strip().splitlines()[-1:] or ["it said nothing"]
        raise Failure(f"The replay of {table.id} broke: {last[0]}", allow_retries=False) from None
    if code > 1:
        raise Failure(f"The replay of {table.id} did not come to its end. {again}", allow_retries=False)
    return found


def _run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str, str]:
    """A command's exit code and what it says; it is interrupted as this process is."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            said, errors = process.communicate()
        except BaseException:
            # Killed, it could not end its builds: they would look as if they went on, then as if a fault had ended
            # them. Interrupted, it ends them as somebody's decision.
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=STOP_SECONDS)
            process.kill()
            raise
        return process.returncode, said, errors


def _asked(config: Chosen) -> tuple[Table, Sequence[date | None]]:
    """The table and the days of a form, or what is wrong with it."""
    try:
        table = get_table(config.table.strip().removesuffix("_quarantine"))
        days = {_day(text) for text in config.days}
    except LakehouseError as error:
        raise Failure(str(error), allow_retries=False) from None
    if not table.rules:
        raise Failure(f"{table.id} has no row rules, so it has no quarantine.", allow_retries=False)
    if config.rule:
        _check_rule(table, config.rule)
    # The daemon runs this: the name of its own account would say nothing of who has decided.
    if not config.who.strip():
        raise Failure("Say who decides: the ledger keeps it for ever.", allow_retries=False)
    return table, sorted(days) or [None]


def _check_rule(table: Table, rule: str) -> None:
    names = [each.name for each in table.rules]
    # Rows may wait that a rule set aside which the contract has dropped since: they are chosen by its name as well.
    if rule not in names and not any(rule in each.rules for each in quarantined_rows(get_settings().root, table)):
        raise Failure(f"{table.id} has no rule {rule!r}. Rules: {', '.join(names)}.", allow_retries=False)


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise Failure(f"{text!r} is not a day; expected YYYY-MM-DD, such as 2011-01-04.", allow_retries=False) from None


def _tell(context: OpExecutionContext, table: Table, told: Mapping[str, Any]) -> None:
    depth = depth_of(quarantined_rows(get_settings().root, table), datetime.now(UTC))
    context.log_event(observed(table, depth, told))


@job(description="Build the days of a table's quarantined rows again, and what depends on them")
def quarantine_replay() -> None:
    """See `Replay`."""
    replay_rows()


@job(description="Take quarantined rows of a table out of every count, with a reason, or let them count again")
def quarantine_discard() -> None:
    """See `Discard`."""
    discard_rows()


QUARANTINE_JOBS = (quarantine_replay, quarantine_discard)
