"""`lakehouse materialize` and `lakehouse backfill`: days of tables through Dagster, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import date
from typing import TYPE_CHECKING, Annotated

import typer

from lakehouse.commands.build.backfills import Daemon, NoWait
from lakehouse.commands.build.lookback import print_rewritten
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import (
    AsJson,
    FromDay,
    ToDay,
    UsageError,
    console,
    counted,
    days_text,
    print_json,
    quiet_warnings,
    say,
    table,
)
from lakehouse.commands.selection import Selection, check_days, in_order, last_partition, select_tables
from lakehouse.orchestration.chunks import Chunk, asked_for, one_by_one
from lakehouse.orchestration.pieces import Piece, pieces_of
from lakehouse.settings import Settings, get_settings

if TYPE_CHECKING:
    from lakehouse.build.lookback import Rewritten

Force = Annotated[bool, typer.Option("--force", help="Build days again whose inputs and code have not changed.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show the run's log instead of a progress bar.")]
FailedOnly = Annotated[
    bool,
    typer.Option(
        "--failed-only", help="Only days whose newest run failed, broke or was cancelled; by default of all time."
    ),
]
Touched = Annotated[
    bool,
    typer.Option(
        "--touched",
        help="Exactly the days whose inputs or code have changed since they were published, in every table that "
        "depends on them: late files, corrected days, restored versions. Dates are optional.",
    ),
]
Outdated = Annotated[
    bool, typer.Option("--outdated", help="Only days built by code older than today's, and what depends on them.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only list the partitions to build and those unchanged; write nothing.")
]
Slices = Annotated[
    int,
    typer.Option(
        "--slices",
        min=1,
        metavar="N",
        help="Stage heavy tables (those whose contract says slice_by) in N slices, one after the other: less memory, "
        "and a killed build goes on with those that were staged. Other tables are built whole.",
        show_default=False,
    ),
]
DaysPerRun = Annotated[
    int | None,
    typer.Option(
        "--days-per-run", min=1, metavar="N", help="Cut the range into runs of at most N days.", show_default=False
    ),
]
AtOnce = Annotated[
    int,
    typer.Option(
        "--at-once",
        min=1,
        metavar="N",
        help="Execute up to N runs at the same time, each in a process with an engine of its own; without "
        "--days-per-run the range is cut into N parts.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "materialize",
        cls=Command,
        epilog=examples(
            "lakehouse materialize --from 2011-01-04 --to 2011-01-04",
            "lakehouse materialize --select gold.user_features --from 2011-01-04 --to 2011-01-20",
        ),
    )(materialize)
    app.command(
        "backfill",
        cls=Command,
        epilog=examples(
            "lakehouse backfill --from 2010-12-01 --to 2011-08-31",
            "lakehouse backfill --select 'key:\"silver/*\"+' --from 2011-01-04 --to 2011-01-20 --dry-run",
            "lakehouse backfill --from 2010-12-01 --to 2011-08-31 --days-per-run 30 --at-once 3",
            "lakehouse backfill --failed-only",
            "lakehouse backfill --touched --dry-run",
            "lakehouse backfill --select gold.user_features --from 2010-12-01 --to 2011-08-31 --slices 8",
            "lakehouse backfill --from 2010-12-01 --to 2011-08-31 --daemon --no-wait",
        ),
    )(backfill)


def materialize(
    selection: Selection = None,
    first: FromDay = None,
    last: ToDay = None,
    *,
    force: Force = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Build days of tables (all, unless selected) in one Dagster run; days that are up to date are left alone."""
    settings = get_settings()
    first, last = check_days(settings, first, last or first)
    quiet_warnings()
    _run(settings, [Chunk(Piece(tuple(select_tables(selection)), first, last))], 1, force, as_json, verbose)


def backfill(  # noqa: PLR0913 - a command's options
    context: typer.Context,
    selection: Selection = None,
    first: FromDay = None,
    last: ToDay = None,
    *,
    failed_only: FailedOnly = False,
    touched: Touched = False,
    outdated: Outdated = False,
    force: Force = False,
    days_per_run: DaysPerRun = None,
    at_once: AtOnce = 1,
    dry_run: DryRun = False,
    slices: Slices = 1,
    daemon: Daemon = False,
    no_wait: NoWait = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Build a range of days, good days first-class: a bad day fails by name and does not stop the others.

    A gapless range is one Dagster run on one Spark session, unless it is cut. Days that are published from the same
    inputs and code are left alone, so the same command again goes on where the last one ended. Every day is audited
    before it is published.
    """
    from lakehouse.catalog import tables
    from lakehouse.commands.daemon import launch
    from lakehouse.commands.plans import forecast, plan_days

    settings = get_settings()
    quiet_warnings()
    if slices > 1:
        context.with_resource(_in_slices(select_tables(selection), slices))
    if failed_only + touched + outdated > 1 or (force and (touched or outdated)):
        raise UsageError("--failed-only, --touched and --outdated each choose the days; give one of them, no --force.")
    if no_wait and not daemon:
        raise UsageError("--no-wait is for --daemon: without it, this process builds the days.")
    if daemon and (days_per_run or at_once > 1):
        raise UsageError("The daemon goes by LAKEHOUSE_BACKFILL_DAYS and its queue: no --days-per-run, no --at-once.")
    if touched or outdated:
        if days_per_run or at_once > 1:
            raise UsageError("--touched and --outdated decide table by table: no --days-per-run and no --at-once.")
        within = (first or settings.first_day, last or last_partition())
        wait = not no_wait if daemon else None
        _run_stale(settings, select_tables(selection), within, outdated, dry_run, as_json, verbose, daemon_wait=wait)
        return
    if failed_only:
        names = select_tables(selection)
        wanted = _unfinished(settings, names, first, last)
    else:
        first, last = check_days(settings, first, last)
        names = select_tables(selection)
        wanted = {name: set(Piece((), first, last).days) for name in names}
    chunks = asked_for(wanted, tables(), days_per_run, at_once)
    if dry_run:
        _print_plan(settings, names, wanted, one_by_one(chunks), force, as_json)
        return
    if not chunks:
        say("Nothing to do: no day of these tables is left over from a failed or cancelled run.")
        if as_json:
            print_json({"exit_code": 0, "seconds": 0, "dagster_seconds": 0, "runs": [], "tables": []})
        return
    if daemon:
        launch(settings, names, wanted, force=force, wait=not no_wait, as_json=as_json)
        return
    plans = plan_days(settings, names, wanted, force=force, pieces=one_by_one(chunks))
    say(forecast(plans, len(chunks), at_once))
    _run(settings, chunks, at_once, force, as_json, verbose, backfill=True)


def _in_slices(names: Sequence[str], slices: int) -> AbstractContextManager[None]:
    """While it is on, every run that is recorded asks for slices; says which tables that is for."""
    from lakehouse.catalog import tables
    from lakehouse.orchestration.slices import new_runs_in_slices

    sliced = [name for name in names if tables()[name].layout.slice_by]
    whole = [name for name in names if name not in sliced]
    if not sliced:
        raise UsageError(f"--slices: none of {', '.join(whole)} can be cut; their contracts have no slice_by.")
    say(f"In {slices} slices: {', '.join(sliced)}." + (f" Built whole: {', '.join(whole)}." if whole else ""))
    return new_runs_in_slices(slices)


def _run_stale(
    settings: Settings,
    names: Sequence[str],
    within: tuple[date, date],
    outdated: bool,
    dry_run: bool,
    as_json: bool,
    verbose: bool,
    daemon_wait: bool | None,
) -> None:
    from lakehouse.build.lookback import versions, would_write, written_since
    from lakehouse.commands.daemon import launch
    from lakehouse.commands.plans import lake_without_engine, stale_by_table
    from lakehouse.commands.runs import run_stale
    from lakehouse.commands.summary import print_summary

    in_order(*within)
    lake = lake_without_engine(settings)
    wanted = stale_by_table(lake, names, within, outdated=outdated)
    if dry_run:
        would = None if outdated else would_write(lake, wanted)
        _print_plan(settings, names, wanted, pieces_of(wanted, names), False, as_json, would)
        return
    if daemon_wait is not None and any(wanted.values()):
        launch(settings, names, wanted, force=False, wait=daemon_wait, as_json=as_json)
        return
    only, before = wanted if outdated else None, versions(lake, names)
    report = run_stale(settings, names, within=within, only=only, backfill=True, verbose=verbose)
    runs = {run.run_id for run in report.runs}
    written = None if outdated else written_since(lake_without_engine(settings), before, runs)
    if as_json:
        print_json(report.as_json() | ({"rewritten": written.as_json()} if written else {}))
    elif not report.runs:
        say("Nothing to do: every day is published from the inputs and the code that are there now.")
    else:
        print_summary(report, settings)
        if written:
            print_rewritten(written, "rewritten")
    raise typer.Exit(report.exit_code)


def _run(
    settings: Settings,
    chunks: Sequence[Chunk],
    at_once: int,
    force: bool,
    as_json: bool,
    verbose: bool,
    *,
    backfill: bool = False,
) -> None:
    from lakehouse.commands.build.at_once import run_chunks
    from lakehouse.commands.runs import run_pieces
    from lakehouse.commands.summary import print_summary

    if at_once > 1 and len(chunks) > 1:
        report = run_chunks(settings, chunks, at_once, force=force, verbose=verbose)
    else:
        report = run_pieces(settings, one_by_one(chunks), force=force, backfill=backfill, verbose=verbose)
    if as_json:
        print_json(report.as_json())
    else:
        print_summary(report, settings)
    raise typer.Exit(report.exit_code)


def _unfinished(
    settings: Settings, names: Sequence[str], first: date | None, last: date | None
) -> dict[str, set[date]]:
    in_order(first, last)
    if not (settings.dagster_home / "dagster.yaml").exists():
        return {}
    from lakehouse.commands.runs import close_abandoned
    from lakehouse.orchestration.instance import opened_instance, unfinished_days

    with opened_instance(settings) as instance:
        close_abandoned(instance)
        return unfinished_days(instance, names, first=first, last=last)


def _print_plan(
    settings: Settings,
    names: Sequence[str],
    wanted: dict[str, set[date]],
    pieces: Sequence[Piece],
    force: bool,
    as_json: bool,
    would: Rewritten | None = None,
) -> None:
    from lakehouse.commands.plans import plan_days

    plans = plan_days(settings, names, wanted, force=force, pieces=pieces)
    if as_json:
        runs = [{"from": piece.first, "to": piece.last, "tables": list(piece.tables)} for piece in pieces]
        days = [
            {"table": p.table, "build": p.build, "unchanged": p.unchanged}
            | {"expected_seconds": p.estimate.seconds, "expected_rows": p.estimate.rows}
            for p in plans
        ]
        print_json({"runs": runs, "tables": days} | ({"to_rewrite": would.as_json()} if would else {}))
        return
    rows = [
        (
            p.table,
            len(p.build),
            len(p.unchanged),
            p.estimate.rows or "?",
            _about(p.estimate.seconds),
            days_text(p.build),
        )
        for p in plans
    ]
    columns = ("table", "to build", "unchanged", "rows, about", "sec, about", "days to build")
    console().print(table(columns, rows, right=columns[1:-1]))
    if would:
        print_rewritten(would, "to rewrite")
    total = sum(len(p.build) for p in plans)
    known = [p.estimate.seconds for p in plans if p.build and p.estimate.seconds is not None]
    takes = f", in about {sum(known):.0f} s as builds before it went" if known else ""
    told = f"{counted(total, 'partition')} would be built in {counted(len(pieces), 'run')}{takes}"
    say(f"Dry run: {told}; nothing was written.")


def _about(expected: float | None) -> str:
    return "?" if expected is None else f"{expected:.1f}"
