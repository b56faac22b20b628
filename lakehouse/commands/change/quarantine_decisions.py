"""`lakehouse quarantine replay`, `discard` and `ledger`: what people decide about quarantined rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, date, datetime
from typing import Annotated, Any, NoReturn

import typer

from lakehouse.build.stale import stale_days, tidied_days
from lakehouse.catalog import tables
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, Verbose, console, print_json, say, table
from lakehouse.commands.inspect.quarantine_options import (
    CodeOption,
    DayOption,
    RuleOption,
    TableArgument,
    chosen_table,
    wanted_rows,
)
from lakehouse.commands.progress import Terminal
from lakehouse.commands.summary import print_summary
from lakehouse.contracts import Table
from lakehouse.contracts.graph import all_downstream
from lakehouse.errors import UsageError
from lakehouse.orchestration.pieces import bridged, pieces_of
from lakehouse.quarantine.replay import ReplayPlan, by_rules, plan_replay, run_replay
from lakehouse.quarantine.replay import discard as discard_rows
from lakehouse.read.lake import Lake
from lakehouse.records.ledger import DISCARD, KEEP, REPLAY, REPLAYED, LedgerEntry, entries
from lakehouse.records.quarantined import quarantined_rows
from lakehouse.runs.reports import Report
from lakehouse.settings import get_settings
from lakehouse.texts import counted, days_text, program
from lakehouse.users import operator

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say which rows and days are meant; write nothing.")]


def add_to(family: typer.Typer) -> None:
    """Add the commands."""
    family.command(
        "replay",
        cls=Command,
        epilog=examples(
            "lakehouse quarantine replay silver.transactions --dry-run",
            "lakehouse quarantine replay silver.transactions --rule currency_known",
        ),
    )(replay)
    family.command(
        "discard",
        cls=Command,
        epilog=examples(
            "lakehouse quarantine discard silver.transactions --rule event_type_known --reason 'bad debt, no sale'",
            "lakehouse quarantine discard silver.transactions --day 2011-08-12 --undo --reason 'was a mistake'",
        ),
    )(discard)
    family.command(
        "ledger",
        cls=Command,
        epilog=examples("lakehouse quarantine ledger", "lakehouse quarantine ledger silver.transactions --json"),
    )(ledger)


def replay(
    name: TableArgument,
    rule: RuleOption = None,
    day: DayOption = None,
    code: CodeOption = None,
    *,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Build days again whose inputs and code have not changed: after a fix outside of the table's code.",
        ),
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Build the days of quarantined rows again, and the stale days downstream.

    Days that hold none of these rows are left alone. A day whose inputs and code are those its rows were judged by
    would come out the same: it is not built, so that a second replay changes nothing.
    """
    settings, contract = get_settings(), chosen_table(name)
    wanted = wanted_rows(contract, rule, day, code)
    lake = Lake(settings, tables(), _no_engine)
    plan = plan_replay(lake, contract, wanted, force=force)
    report, terminal = Report(), Terminal(settings, verbose=verbose)
    if plan.nothing_to_do or dry_run:
        _tell(plan, [], report, as_json, dry_run=dry_run)
        return
    if not as_json:
        _say_left_alone(plan)
        _say_stale_inputs(lake, contract)

    execute = _runs(lake, contract, report, terminal, force=force)
    ended = run_replay(lake, plan, execute, who=operator(), now=lambda: datetime.now(UTC))
    if report.runs and not as_json:
        print_summary(report, settings)
    _tell(plan, ended, report, as_json)
    raise typer.Exit(report.exit_code)


def _runs(
    lake: Lake, contract: Table, report: Report, terminal: Terminal, *, force: bool
) -> Callable[[Collection[date]], Sequence[str] | None]:
    """What builds the days of a replay and then the stale days below; it returns the runs, None where one broke."""
    # With what runs need: whoever looks at a quarantine does not wait for it.
    from lakehouse.runs.executing import Asked
    from lakehouse.runs.running import run_pieces, run_stale

    def execute(days: Collection[date]) -> Sequence[str] | None:
        if days:
            # Days that are stale but hold none of the rows stay as they are; forced, a run builds whatever it spans.
            leave = {*stale_days(lake, contract), *tidied_days(lake, contract, days)}.difference(days)
            whole = set(days) if force else bridged(days, leave=leave)
            pieces = pieces_of({contract.id: whole}, [contract.id])
            report.add(run_pieces(lake.settings, pieces, asked=Asked(force=force), listener=terminal))
        # Only what reads the table, though more may be stale: this command was asked for these rows alone.
        readers = all_downstream(tables(), contract.id)
        if not _broke(report):
            report.add(run_stale(lake.settings, readers, listener=terminal))
        return None if _broke(report) else [run.run_id for run in report.runs]

    return execute


def discard(
    name: TableArgument,
    rule: RuleOption = None,
    day: DayOption = None,
    code: CodeOption = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept for ever. No personal data.")] = "",
    *,
    undo: Annotated[bool, typer.Option("--undo", help="Let rows that were discarded count again.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Take quarantined rows that will never be fixed out of every count; needs a reason, and is kept for ever.

    The rows stay in the quarantine table as evidence, also when their day is built again. A row that breaks a further
    rule one day counts again, and one that a changed contract finds sound is published.
    """
    settings, contract = get_settings(), chosen_table(name)
    wanted = wanted_rows(contract, rule, day, code)
    now, why = datetime.now(UTC), " ".join(reason.split())
    entry: LedgerEntry | None
    if dry_run:
        rows = [
            each for each in quarantined_rows(settings.root, contract) if each.fits(wanted) and each.discarded == undo
        ]
        entry = LedgerEntry(contract.id, KEEP if undo else DISCARD, operator(), now, by_rules(rows), wanted, reason)
    elif why:
        entry = discard_rows(settings.root, contract, wanted, who=operator(), at=now, reason=why, undo=undo)
    else:
        raise UsageError("A discard needs a reason that others will understand later: --reason '…'")
    if as_json:
        print_json({"rows": 0} if entry is None else _as_json(entry))
    elif entry is None or not entry.rows:
        say(f"Nothing to do: no such row {'was discarded' if undo else 'is in quarantine'}.")
    else:
        _say_discarded(contract, entry, undo=undo, dry_run=dry_run)


def _say_discarded(contract: Table, entry: LedgerEntry, *, undo: bool, dry_run: bool) -> None:
    what = "count again" if undo else "discarded"
    days = counted(len(entry.chosen), "day")
    if dry_run:
        say(f"Dry run: {counted(entry.rows, 'row')} of {days} would be {what} ({_counts(entry.rules)}).")
        return
    say(f"{counted(entry.rows, 'row')} of {days} {what} ({_counts(entry.rules)}), entry {entry.id} of the ledger.")
    if not undo:
        say(f"They stay in {contract.quarantine_id}: {program()} quarantine show {contract.id} --discarded")


def ledger(
    name: Annotated[str | None, typer.Argument(metavar="TABLE", help="Only this table.")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show who replayed or discarded which quarantined rows, when, why, and what came of it."""
    found = _decisions([chosen_table(name).id] if name else list(tables()))
    if as_json:
        print_json([_as_json(each) for each in found])
        return
    if not found:
        say("Nobody has replayed or discarded a quarantined row yet.")
        return
    cells = [
        (e.at.replace(microsecond=0), e.who, "replay begun" if e.action == REPLAY else e.action, e.table, _filter(e),
         len(e.chosen), e.rows, e.reason or _counts(e.outcome))
        for e in found
    ]  # fmt: skip
    columns = ("when", "who", "what", "table", "filter", "days", "rows", "why, or what came of it")
    console().print(table(columns, cells, right=("days", "rows")))


def _decisions(names: Collection[str]) -> list[LedgerEntry]:
    """The ledger's entries, the oldest first: of a replay that has ended only its end."""
    root = get_settings().root
    found = sorted((each for name in names for each in entries(root, name)), key=lambda each: each.at)
    ended = {each.id for each in found if each.action == REPLAYED}
    return [each for each in found if each.action != REPLAY or each.id not in ended]


def _no_engine() -> NoReturn:
    raise AssertionError("only the runs of a replay start an engine")


def _broke(report: Report) -> bool:
    return (
        report.interrupted or any(each.broken for each in report.tables.values()) or any(r.error for r in report.runs)
    )


def _tell(
    plan: ReplayPlan, ended: Sequence[LedgerEntry], report: Report, as_json: bool, *, dry_run: bool = False
) -> None:
    if as_json:
        print_json(
            {
                "table": plan.table.id,
                "rows": len(plan.chosen),
                "build": list(plan.build),
                "unchanged": list(plan.same),
                "landed_file_gone": list(plan.gone),
                "not_come_yet": list(plan.ahead),
                "unfinished": [each.id for each in plan.unfinished],
                "replays": [_as_json(each) for each in ended],
                "runs": report.as_json(),
            }
        )
        return
    _say_plan(plan, dry_run=dry_run)
    for entry in ended:
        still = f" by rule: {_counts(entry.still)}" if entry.still else ""
        say(f"Of {counted(entry.rows, 'row')} replayed: {_counts(entry.outcome)}.{still} (entry {entry.id})")
    if not ended and not dry_run and not plan.nothing_to_do:
        say("The replay did not come to its end; the same command goes on with it.")


def _say_plan(plan: ReplayPlan, *, dry_run: bool) -> None:
    """What would be done, or why there is nothing to do."""
    days = len({each.day for each in plan.chosen})
    held = f"{counted(len(plan.chosen), 'row')} on {counted(days, 'day')}"
    if dry_run:
        _say_left_alone(plan)
        named = f" ({days_text(plan.build)})" if plan.build else ""
        say(
            f"Dry run: {held} chosen; {counted(len(plan.build), 'day')} of {plan.table.id} would be built again"
            f"{named}, then the stale days downstream; nothing was written."
        )
    elif plan.nothing_to_do and not plan.chosen:
        say(f"Nothing to replay: no such row is in the quarantine of {plan.table.id}.")
    elif plan.nothing_to_do:
        _say_left_alone(plan)
        say(f"Nothing to replay: {held} would break the same rules again. Fix the source or the contract first.")


def _say_left_alone(plan: ReplayPlan) -> None:
    for each in plan.unfinished:
        say(f"A replay of {counted(each.rows, 'row')}, begun {each.at:%Y-%m-%d %H:%M} UTC, never ended; it is now.")
    for day in plan.gone:
        say(f"{plan.table.id} {day}: its landed file is gone, so its rows stay in quarantine; land the file again.")
    if plan.ahead:
        say(
            f"{plan.table.id} {days_text(plan.ahead)}: not come yet; a clock that is ahead has dated rows so "
            f"({program()} clocks). Replay them once it has come."
        )
    if plan.same:
        say(
            f"{plan.table.id} {days_text(plan.same)}: inputs and code are those the rows were judged by; left alone "
            "(--force builds them all the same)."
        )


def _say_stale_inputs(lake: Lake, contract: Table) -> None:
    for each in contract.upstream.values():
        if days := stale_days(lake, lake.table(each.table)):
            say(
                f"{each.table} has changed files or code for {days_text(days)}, and is read as it is published. If the "
                f"fix is there, build it first: {program()} backfill --stale --select {each.table}"
            )


def _filter(entry: LedgerEntry) -> str:
    wanted = entry.wanted
    named = {"rule": wanted.rule, "day": wanted.day, "code": wanted.code_version}
    return ", ".join(f"{key} {value}" for key, value in named.items() if value is not None) or "all"


def _counts(counted_by: Any) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in sorted(counted_by.items(), key=lambda kv: -kv[1]))


def _as_json(entry: LedgerEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "at": entry.at,
        "who": entry.who,
        "action": entry.action,
        "table": entry.table,
        "filter": {"rule": entry.wanted.rule, "day": entry.wanted.day, "code_version": entry.wanted.code_version},
        "days": sorted(entry.chosen),
        "rows": entry.rows,
        "rules": entry.rules,
        "reason": entry.reason,
        "outcome": entry.outcome,
        "still": entry.still,
        "runs": list(entry.runs),
    }
