"""`lakehouse materialize` and `lakehouse backfill`: days of tables through Dagster, in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any

import typer

from lakehouse.build.lookback import Rewritten, versions, would_write, written_since
from lakehouse.build.verdicts import refused_days
from lakehouse.catalog import lake_without_engine, tables
from lakehouse.commands.build.backfills import Daemon, NoWait
from lakehouse.commands.build.daemon_backfill import launch
from lakehouse.commands.build.lookback import print_rewritten
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import (
    AsJson,
    FromDay,
    Selection,
    ToDay,
    Verbose,
    console,
    print_json,
    say,
    table,
)
from lakehouse.commands.progress import Terminal
from lakehouse.commands.summary import print_summary, say_what_no_run_builds
from lakehouse.errors import UsageError
from lakehouse.orchestration.chunks import Chunk, asked_for, one_by_one
from lakehouse.orchestration.ended import unfinished_days
from lakehouse.orchestration.instance import instance_to_read, opened_instance
from lakehouse.orchestration.pieces import Piece, pieces_of
from lakehouse.orchestration.slices import MOST_SLICES
from lakehouse.query.names import built_names
from lakehouse.runs.executing import Asked
from lakehouse.runs.plans import DayPlan, forecast, plan_days, stale_by_table
from lakehouse.runs.reports import Report
from lakehouse.runs.running import close_abandoned, run_pieces, run_stale
from lakehouse.runs.selection import check_days, in_order, last_partition, select_tables
from lakehouse.settings import Settings, get_settings
from lakehouse.spark.warm import begin_early
from lakehouse.texts import counted, days_text, program

# Words of earlier releases: scripts go on working with them, and no help lists them.
_FORMER = {"touched": "stale", "outdated": "older-code"}

Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Build days again whose inputs and code have not changed; one whose landed files are gone becomes empty.",
    ),
]
FailedOnly = Annotated[
    bool,
    typer.Option(
        "--failed-only", help="Only days whose newest run failed, broke or was cancelled; by default of all time."
    ),
]
Stale = Annotated[
    bool,
    typer.Option(
        "--stale",
        help="Exactly the days whose inputs or code have changed since they were published, in every table that "
        "depends on them: late files, corrected days, restored versions. Dates are optional.",
    ),
]
OlderCode = Annotated[
    bool,
    typer.Option(
        "--older-code",
        help="Only days built by older code, what depends on them, and what they read that was never built.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only list the partitions to build and those unchanged; write nothing.")
]
Slices = Annotated[
    int,
    typer.Option(
        "--slices",
        min=1,
        max=MOST_SLICES,
        metavar="N",
        help="Stage heavy tables (their contract says layout.slice_by) in N slices, one after the other: less memory, "
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
        context_settings={"token_normalize_func": lambda word: _FORMER.get(word, word)},
        epilog=examples(
            "lakehouse backfill --from 2010-12-01 --to 2011-08-31",
            "lakehouse backfill --select 'key:\"silver/*\"+' --from 2011-01-04 --to 2011-01-20 --dry-run",
            "lakehouse backfill --from 2010-12-01 --to 2011-08-31 --days-per-run 30",
            "lakehouse backfill --failed-only",
            "lakehouse backfill --stale --dry-run",
            "lakehouse backfill --select gold.user_features --from 2010-12-01 --to 2011-08-31 --slices 8",
            "lakehouse backfill --from 2010-12-01 --to 2011-08-31 --daemon --no-wait",
        ),
    )(backfill)


@dataclass(frozen=True)
class _Way:
    """How days are built and told of, as the command line says it."""

    asked: Asked
    days_per_run: int | None = None
    dry_run: bool = False
    daemon: bool = False
    wait: bool = True
    as_json: bool = False
    verbose: bool = False


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
    way = _Way(Asked(force=force), as_json=as_json, verbose=verbose)
    _run(settings, [Chunk(Piece(tuple(select_tables(selection)), first, last))], way)


def backfill(  # noqa: PLR0913 - a command's options
    selection: Selection = None,
    first: FromDay = None,
    last: ToDay = None,
    *,
    failed_only: FailedOnly = False,
    stale: Stale = False,
    older_code: OlderCode = False,
    force: Force = False,
    days_per_run: DaysPerRun = None,
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
    settings, names = get_settings(), select_tables(selection)
    if slices > 1:
        _say_slices(names, slices)
    asked = Asked(force=force, backfill=True, slices=slices)
    way = _Way(asked, days_per_run, dry_run, daemon, not no_wait, as_json, verbose)
    _check_choice(way, failed_only=failed_only, stale=stale, older_code=older_code)
    _check_cuts(way, stale=stale or older_code)
    if stale or older_code:
        within = (first or settings.first_day, last or last_partition())
        _build_stale(settings, names, within, way, by_code=older_code)
        return
    if failed_only:
        wanted = _unfinished(settings, names, first, last, look=dry_run)
    else:
        first, last = check_days(settings, first, last)
        wanted = {name: set(Piece((), first, last).days) for name in names}
    _build_days(settings, names, wanted, way)


def _check_choice(way: _Way, *, failed_only: bool, stale: bool, older_code: bool) -> None:
    """Refuse two ways to choose days at once, and to wait for nobody."""
    if failed_only + stale + older_code > 1 or (way.asked.force and (stale or older_code)):
        raise UsageError("--failed-only, --stale and --older-code each choose the days; give one of them, no --force.")
    if not way.wait and not way.daemon:
        raise UsageError("--no-wait is for --daemon: without it, this process builds the days.")


def _say_slices(names: Sequence[str], slices: int) -> None:
    """Say which tables are cut into slices, and which are built whole all the same."""
    sliced = [name for name in names if tables()[name].layout.slice_by]
    whole = [name for name in names if name not in sliced]
    if not sliced:
        raise UsageError(f"--slices: none of {', '.join(whole)} can be cut; their contracts have no layout.slice_by.")
    say(f"In {slices} slices: {', '.join(sliced)}." + (f" Built whole: {', '.join(whole)}." if whole else ""))


def _check_cuts(way: _Way, *, stale: bool) -> None:
    """Refuse to cut the range where somebody else decides which runs there are."""
    if not way.days_per_run:
        return
    if way.daemon:
        raise UsageError("The daemon goes by LAKEHOUSE_BACKFILL_DAYS: no --days-per-run.")
    if stale:
        raise UsageError("--stale and --older-code decide table by table: no --days-per-run.")


def _build_days(settings: Settings, names: Sequence[str], wanted: Mapping[str, set[date]], way: _Way) -> None:
    """Build the days asked for: here, by the daemon, or only list them."""
    chunks = asked_for(wanted, tables(), way.days_per_run)
    if way.dry_run:
        pieces = one_by_one(chunks)
        _print_plan(plan_days(settings, names, wanted, force=way.asked.force, pieces=pieces), pieces, way)
    elif not chunks:
        say("Nothing to do: no day of these tables is left over from a failed or cancelled run.")
        if way.as_json:
            print_json({"exit_code": 0, "seconds": 0, "dagster_seconds": 0, "runs": [], "tables": []})
    elif way.daemon:
        launch(settings, names, wanted, asked=way.asked, wait=way.wait, as_json=way.as_json)
    else:
        # Planned from logs before the engine starts, so that a mistyped range is seen while it costs nothing.
        plans = plan_days(settings, names, wanted, force=way.asked.force, pieces=one_by_one(chunks))
        if any(plan.build for plan in plans):
            begin_early(settings.for_backfill())
        say(forecast(plans, len(chunks)))
        _run(settings, chunks, way)


def _build_stale(
    settings: Settings, names: Sequence[str], within: tuple[date, date], way: _Way, *, by_code: bool
) -> None:
    """Build the stale days, or those alone that older code built: here, by the daemon, or only list them."""
    in_order(*within)
    lake = lake_without_engine(settings)
    wanted = stale_by_table(lake, names, within, by_code=by_code)
    if way.dry_run:
        pieces = pieces_of(wanted, names)
        would = None if by_code else would_write(lake, wanted)
        _print_plan(plan_days(settings, names, wanted, pieces=pieces), pieces, way, would)
        return
    if way.daemon and any(wanted.values()):
        launch(settings, names, wanted, asked=way.asked, wait=way.wait, as_json=way.as_json)
        return
    # Before the runs: what is rewritten is told by which versions are there afterwards and were not before.
    only, before = wanted if by_code else None, versions(lake, names)
    terminal = Terminal(settings, verbose=way.verbose)
    report = run_stale(settings, names, within=within, only=only, asked=way.asked, listener=terminal)
    runs = {run.run_id for run in report.runs}
    written = None if by_code else written_since(lake_without_engine(settings), before, runs)
    _tell_stale(report, written, settings, way)
    raise typer.Exit(report.exit_code)


def _tell_stale(report: Report, written: Rewritten | None, settings: Settings, way: _Way) -> None:
    if way.as_json:
        print_json(report.as_json() | ({"rewritten": written.as_json()} if written else {}))
    elif not report.runs:
        say(_nothing_to_do(settings))
        say_what_no_run_builds(settings)
    else:
        print_summary(report, settings)
        if written and not report.interrupted:
            print_rewritten(written, "rewritten")
        say_what_no_run_builds(settings)


def _nothing_to_do(settings: Settings) -> str:
    """Why no day is stale: a root that was never built, as by a wrong LAKEHOUSE_ROOT, is not one that is up to date."""
    if built_names(settings):
        return "Nothing to do: every day is published from the inputs and the code that are there now."
    return (
        f"Nothing to do: nothing was built yet in {settings.root}, and no day has landed there that could be built. "
        f"Land files ({program()} land --help), or choose another root (LAKEHOUSE_ROOT)."
    )


def _run(settings: Settings, chunks: Sequence[Chunk], way: _Way) -> None:
    terminal = Terminal(settings, verbose=way.verbose)
    report = run_pieces(settings, one_by_one(chunks), asked=way.asked, listener=terminal)
    if way.as_json:
        print_json(report.as_json())
    else:
        print_summary(report, settings)
        say_what_no_run_builds(settings)
    raise typer.Exit(report.exit_code)


def _unfinished(
    settings: Settings, names: Sequence[str], first: date | None, last: date | None, *, look: bool
) -> dict[str, set[date]]:
    in_order(first, last)
    # Nothing was ever run here, and to look would make Dagster's folder.
    if not (settings.dagster_home / "dagster.yaml").exists():
        return {}
    lake = lake_without_engine(settings)
    refused = {name: refused_days(lake, lake.table(name)) for name in names}
    with (instance_to_read if look else opened_instance)(settings) as instance:
        close_abandoned(instance, say)
        return unfinished_days(instance, names, first=first, last=last, refused=refused)


def _plan_json(plans: Sequence[DayPlan], pieces: Sequence[Piece], would: Rewritten | None) -> dict[str, Any]:
    runs = [{"from": piece.first, "to": piece.last, "tables": list(piece.tables)} for piece in pieces]
    days = [
        {"table": p.table, "build": p.build, "unchanged": p.unchanged}
        | {"expected_seconds": p.estimate.seconds, "expected_rows": p.estimate.rows}
        for p in plans
    ]
    return {"runs": runs, "tables": days} | ({"to_rewrite": would.as_json()} if would else {})


def _print_plan(plans: Sequence[DayPlan], pieces: Sequence[Piece], way: _Way, would: Rewritten | None = None) -> None:
    if way.as_json:
        print_json(_plan_json(plans, pieces, would))
        return
    columns = ("table", "to build", "unchanged", "rows, about", "sec, about", "days to build")
    console().print(table(columns, [_cells(each) for each in plans], right=columns[1:-1]))
    if would:
        print_rewritten(would, "to rewrite")
    total = sum(len(p.build) for p in plans)
    known = [p.estimate.seconds for p in plans if p.build and p.estimate.seconds is not None]
    takes = f", in about {sum(known):.0f} s as builds before it went" if known else ""
    told = f"{counted(total, 'partition')} would be built in {counted(len(pieces), 'run')}{takes}"
    say(f"Dry run: {told}; nothing was written.")


def _cells(plan: DayPlan) -> tuple[str | int, ...]:
    seconds = plan.estimate.seconds
    about = "?" if seconds is None else f"{seconds:.1f}"
    return (
        plan.table, len(plan.build), len(plan.unchanged), plan.estimate.rows or "?", about, days_text(plan.build)
    )  # fmt: skip
