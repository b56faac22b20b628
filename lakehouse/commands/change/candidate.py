"""`lakehouse candidate`: build a table anew beside the live one, compare the two, and swap."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Any

import typer

from lakehouse.build.result import BuildResult
from lakehouse.build.stale import known_days
from lakehouse.catalog import get_table, lake_with_engine, lake_without_engine
from lakehouse.commands.change.undo import Name, Reason, say_stale
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import (
    AsJson,
    FromDay,
    ToDay,
    console,
    engine_output_aside,
    print_json,
    say,
    table,
)
from lakehouse.contracts import Table
from lakehouse.days import days_between
from lakehouse.errors import CHECKS_FAILED, HistoryGoneError, UsageError
from lakehouse.read.lake import Lake
from lakehouse.runs.plans import stale_downstream
from lakehouse.runs.selection import check_days, last_partition
from lakehouse.settings import Settings, get_settings
from lakehouse.texts import CANDIDATE_RUN, counted, days_text, program
from lakehouse.users import operator
from lakehouse.versions.candidate import Candidate, build_candidate, drop_candidate, open_candidate
from lakehouse.versions.candidate import swap as swap_tables
from lakehouse.versions.compare import Comparison
from lakehouse.versions.compare import compare as compare_tables
from lakehouse.versions.overtaken import days_alone, overtaken_days


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    family = typer.Typer(
        no_args_is_help=True,
        rich_markup_mode="rich",
        help="A new version of a table beside the live one: build, compare, swap; a canary of changed logic.",
    )
    name = "silver.transactions"
    family.command(
        "build",
        cls=Command,
        epilog=examples(
            f"lakehouse candidate build {name}", f"lakehouse candidate build {name} --from 2011-03-01 --to 2011-03-31"
        ),
    )(build)
    family.command("compare", cls=Command, epilog=examples(f"lakehouse candidate compare {name} --sample 20"))(compare)
    family.command(
        "swap", cls=Command, epilog=examples(f"lakehouse candidate swap {name} --reason 'rounding half up'")
    )(swap)
    family.command("drop", cls=Command, epilog=examples(f"lakehouse candidate drop {name}"))(drop)
    app.add_typer(family, name="candidate")


def build(name: Name, first: FromDay = None, last: ToDay = None, *, as_json: AsJson = False) -> None:
    """Build a table by today's code into folders of its own; nobody reads it by name. Default: its whole history.

    The same checks apply as for the table itself: days that fail are not part of the candidate, and the command ends
    with 1. Days that are built from the same inputs and code already are left alone.
    """
    settings = get_settings()
    contract = get_table(name)
    with engine_output_aside(settings):
        lake = lake_with_engine(settings)
        days = _days(settings, lake, contract, first, last)
        result = build_candidate(lake, contract, days, run_id=f"{CANDIDATE_RUN}{uuid.uuid4().hex[:12]}")
    failed = {day: result.days[day].reason for day in result.with_status("failed")}
    if as_json:
        print_json(_built(result, failed))
    else:
        _say_built(contract, result, failed)
    if failed:
        raise typer.Exit(CHECKS_FAILED)


def _built(result: BuildResult, failed: Mapping[date, str]) -> dict[str, Any]:
    return {
        "table": result.table.id,
        "code_version": result.table.code_version,
        "published": result.with_status("published"),
        "unchanged": result.with_status("unchanged"),
        "failed": {str(day): why for day, why in failed.items()},
        "rows": sum(each.metrics.rows for each in result.days.values() if each.status != "failed"),
        "quarantined": sum(each.metrics.quarantined for each in result.days.values()),
    }


def _say_built(contract: Table, result: BuildResult, failed: Mapping[date, str]) -> None:
    said = _built(result, failed)
    rows = [(n, len(said[n]), days_text(said[n])) for n in ("published", "unchanged")]
    rows.append(("failed", len(failed), days_text(failed)))
    console().print(table(("candidate", "days", ""), rows, right=("days",)))
    for day, why in failed.items():
        say(f"{contract.id} {day} is not part of the candidate: {why}")
    say(
        f"{counted(said['rows'], 'row')}, {said['quarantined']:,} in quarantine, by code {contract.code_version}. "
        f"Next: {program()} candidate compare {contract.id}"
    )


def compare(
    name: Name,
    sample: Annotated[int, typer.Option("--sample", min=0, help="Most differing rows to show.")] = 10,
    *,
    as_json: AsJson = False,
) -> None:
    """Compare the candidate with the live table in one pass: rows, keys, columns, sums and nulls.

    Ends with 1 if they differ. Personal data is compared, and never shown.
    """
    settings = get_settings()
    contract = get_table(name)
    lake = lake_with_engine(settings)
    candidate = open_candidate(lake, contract)
    # Of no day everything is equal, and "the same" would be taken for a proof.
    if not candidate.days:
        raise UsageError(f"The candidate of {contract.id} has no day that passed its audit.")
    with engine_output_aside(settings):
        found = compare_tables(lake, candidate, sample=sample)
    overtaken = _overtaken(lake, candidate)
    if as_json:
        print_json({**_compared(found), "overtaken": overtaken})
    else:
        _say_compared(contract, found)
        _say_next(contract, found, overtaken, days_alone(lake.snapshot(contract.id), candidate))
    raise typer.Exit(0 if found.same else CHECKS_FAILED)


def _compared(found: Comparison) -> dict[str, Any]:
    return {
        "same": found.same,
        "days": len(found.days),
        "rows_live": found.rows[0],
        "rows_candidate": found.rows[1],
        "only_live": found.only_live,
        "only_candidate": found.only_candidate,
        "changed": found.changed,
        "columns": dict(found.columns),
        "columns_added": list(found.added),
        "columns_removed": list(found.removed),
        "columns_retyped": list(found.retyped),
        "quarantined_live": found.quarantined[0],
        "quarantined_candidate": found.quarantined[1],
        "days_differing": {str(day): list(counts) for day, counts in found.by_day.items()},
        "metrics": {name: dict(each) for name, each in found.metrics.items()},
        "sample": [dict(row) for row in found.sample],
    }


def _say_compared(contract: Table, found: Comparison) -> None:
    out = console()
    rows: list[tuple[Any, ...]] = [
        ("rows", *found.rows),
        ("rows in quarantine", *found.quarantined),
        ("rows that only it has", found.only_live, found.only_candidate),
    ]
    for column, each in found.metrics.items():
        for figure in ("sum", "nulls"):
            values = (each.get(f"live_{figure}"), each.get(f"candidate_{figure}"))
            if str(values[0]) != str(values[1]):  # NaN is NaN
                rows.append((f"{figure} of {column}", *map(str, values)))
    out.print(table(("", "live", "candidate"), rows, right=("live", "candidate")))
    if found.columns:
        columns = ("column", "rows that differ")
        out.print(table(columns, list(found.columns.items()), right=columns[1:]), end="\n\n")
    for row in found.sample:
        out.print(", ".join(f"{k}={_value(v)}" for k, v in row.items() if v is not None), markup=False, soft_wrap=True)
    for word, names in (("added", found.added), ("removed", found.removed), ("of another type", found.retyped)):
        if names:
            say(f"Columns {word}: {', '.join(names)}")
    if found.same:
        say(f"The candidate of {contract.id} is the same on {counted(len(found.days), 'day')}.")
        return
    where = f", on {days_text(found.by_day)}" if found.by_day else ""  # only their columns may differ
    say(
        f"{counted(found.changed, 'row')} with other values, {found.only_live:,} only live, {found.only_candidate:,} "
        f"only in the candidate{where}."
    )


def _overtaken(lake: Lake, candidate: Candidate) -> list[date]:
    try:
        return overtaken_days(lake.snapshot(candidate.table.id), candidate)
    except HistoryGoneError:  # the swap says so, and what leads on
        return []


def _say_next(contract: Table, found: Comparison, overtaken: Sequence[date], alone: Sequence[date]) -> None:
    """What leads on, so that a swap is not refused: `alone` are days that only the live table has."""
    if alone and (columns := [*found.retyped, *found.removed]):
        say(
            f"{', '.join(columns)} of days that only the live table has would not fit. Next: {program()} candidate "
            f"build {contract.id} --from {alone[0]} --to {alone[-1]}, and compare again."
        )
    elif overtaken:  # a swap would be refused, and what differs may be what was published since
        say(
            f"The live table has published {days_text(overtaken)} since the candidate's were built. Next: "
            f"{program()} candidate build {contract.id} --from {overtaken[0]} --to {overtaken[-1]}, and compare again."
        )
    elif not found.same:
        say(f"Next: {program()} candidate swap {contract.id}, or drop.")


def _value(value: Any) -> str:
    # A column of maps has dicts of its own.
    differs = isinstance(value, dict) and value.keys() == {"live", "candidate"}
    return f"{value['live']} → {value['candidate']}" if differs else str(value)


def swap(
    name: Name,
    reason: Reason = "",
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Replace days that were published after the candidate's were built, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put the candidate in the live table's place: one commit for readers, nothing copied. Starts no engine.

    The candidate stays until it is dropped, and the table's version before can be restored: that swaps back.
    """
    settings = get_settings()
    contract = get_table(name)
    done = swap_tables(lake_without_engine(settings), contract, by=operator(), reason=reason, force=force)
    stale = stale_downstream(settings, contract.id)
    if as_json:
        facts = {"days": done.days, "kept": done.kept, "rows_before": done.rows_before, "rows": done.rows}
        print_json({"table": contract.id, **facts, "before": done.before, "committed": done.committed, "stale": stale})
        return
    if done.committed is None:
        say(f"{contract.id} holds the candidate's files already; nothing was written.")
    else:
        say(
            f"{contract.id}: {counted(len(done.days), 'day')} swapped, {done.rows_before:,} rows before, {done.rows:,} "
            f"now. Version {done.committed}; back again: {program()} restore {contract.id} --version {done.before}"
        )
    if done.kept:
        say(f"Kept as they are, since the candidate does not have them: {days_text(done.kept)}")
    say_stale(contract.id, stale)
    say(f"When you are sure: {program()} candidate drop {contract.id}")


def drop(name: Name) -> None:
    """Remove the candidate's folders; the live table is not touched, whatever was swapped."""
    contract = get_table(name)
    found = drop_candidate(lake_without_engine(get_settings()), contract)
    say(f"The candidate of {contract.id} is removed." if found else f"{contract.id} has no candidate.")


def _days(settings: Settings, lake: Lake, contract: Table, first: date | None, last: date | None) -> Sequence[date]:
    """The range asked for; by default from the first to the last day that has input or was published."""
    if first is None and last is None:
        known = [day for day in known_days(lake, contract) if settings.first_day <= day <= last_partition()]
        if not known:
            raise UsageError(f"{contract.id} has neither input nor rows. Land files first: {program()} land --help")
        first, last = min(known), max(known)
    begin, end = check_days(settings, first, last)
    return days_between(begin, end)
