"""`lakehouse forget`: a person taken out of every file under the root, and the proof by a scan of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from dagster import DagsterRunStatus, RunsFilter

from lakehouse.catalog import tables
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, print_json, say
from lakehouse.commands.progress import Terminal
from lakehouse.contracts import Table
from lakehouse.errors import CHECKS_FAILED, UsageError
from lakehouse.orchestration.instance import opened_instance
from lakehouse.privacy.alone import BusyError
from lakehouse.privacy.forget import Built, Days, NobodyError, Runs, held, subject
from lakehouse.privacy.forget import forget as forget_person
from lakehouse.privacy.landed import clean_landing
from lakehouse.runs.running import close_abandoned, run_stale
from lakehouse.settings import Settings, get_settings
from lakehouse.sources.people import Person
from lakehouse.texts import counted


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "forget",
        cls=Command,
        epilog=examples(
            "lakehouse forget --user 17841 --dry-run", "lakehouse forget --user u000012 --email ann@example.com"
        ),
    )(forget)


def forget(
    user: Annotated[
        str | None, typer.Option("--user", help="Id of the person, as the tables' `privacy.person` columns hold it.")
    ] = None,
    emails: Annotated[list[str] | None, typer.Option("--email", help="An e-mail address; may be repeated.")] = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would go; write nothing.")] = False,
    as_json: AsJson = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the runs' log.")] = False,
) -> None:
    """Erase a person from landed files, tables, quarantines, history, logs and events, and scan all files for them.

    Days that held the person are built again; everybody else's rows come out the same. Files that are landed later are
    read without the person. May be killed and run again at any time. Older versions of the changed days are gone.
    """
    settings, contracts = get_settings(), tables()
    try:
        who = subject(settings, contracts, user, emails or ())
    except NobodyError as error:
        raise UsageError(str(error)) from None
    if user is not None and not any(each.privacy.person for each in contracts.values()):
        say("No table says which of its columns names a person by id, as privacy=Privacy(person=(…)) in its file does.")
        say("So no row of a table is found by --user; landed lines are, by the usual fields.")
    if dry_run:
        _rehearse(settings, contracts, who.person, as_json=as_json)
        return
    done = forget_person(settings, contracts, who, _runs(settings, contracts, verbose=verbose))
    if as_json:
        print_json({**done.counts, "hits": done.hits, "spared": list(done.spared), "back": done.back})
    else:
        say(
            f"{done.counts['landed_lines']:,} landed lines, {done.counts['rows_rewritten']:,} rows rewritten, "
            f"{done.counts['days_built']:,} days built again, {done.counts['files_removed']:,} old files removed."
        )
        say(f"Scanned {counted(done.counts['files_scanned'], 'file')}: {counted(len(done.hits), 'hit')}.")
        for name in done.hits:
            at = f", of {done.spared[name]:%Y-%m-%d %H:%M} UTC" if name in done.spared else ""
            say(f"  still named in {name}{at}")
        if done.spared:
            say("Files dated later than the removal were left, since a run may be writing them.")
            say("Once none is on, set their times (touch FILE) and run this again.")
        if done.back:
            rows = ", ".join(f"{name}: {counted(number, 'row')}" for name, number in done.back.items())
            say(f"Came back when days were built again, and would with the next build: {rows}.")
            say("What these tables read names the person by another id, which a transform turns into this one.")
            say("Forget that id, too, or land the files without it. Then run this again.")
    if done.counts["days_failed"]:
        say(f"{counted(done.counts['days_failed'], 'day')} could not be built again: lakehouse backfill --stale")
    if done.hits or done.back or done.counts["days_failed"]:
        raise typer.Exit(CHECKS_FAILED)


def _rehearse(settings: Settings, contracts: Mapping[str, Table], person: Person, *, as_json: bool) -> None:
    """Say what would go."""
    landed = clean_landing(settings.root, contracts, person, dry_run=True)
    rows = held(settings, contracts, person)
    found: list[dict[str, Any]] = [
        {"table": name, "rows": sum(days.values()), "days": len(days)} for name, days in rows.items()
    ]
    if as_json:
        lines = {"landed_files": landed.files, "landed_lines": landed.lines, "lines_edited": landed.edited}
        print_json({**lines, "tables": found})
        return
    say(f"{counted(landed.lines, 'line')} of {counted(landed.files, 'landed file')}; {landed.edited} to edit.")
    for each in found:
        say(f"  {each['table']}: {counted(each['rows'], 'row')} of {counted(each['days'], 'day')}")
    say("Dry run: nothing was written.")


def _runs(settings: Settings, contracts: Mapping[str, Table], *, verbose: bool) -> Runs:
    """How an erasure builds days and refuses runs."""

    def build(days: Days) -> Built:
        report = run_stale(settings, list(contracts), only=days, listener=Terminal(settings, verbose=verbose))
        # Half of it is done: to go on would erase old versions before what replaces them is built.
        if report.interrupted:
            raise KeyboardInterrupt
        published = frozenset((name, day) for name, table in report.tables.items() for day in table.published)
        behind = frozenset((n, day) for n, table in report.tables.items() for day in (*table.failed, *table.skipped))
        return Built(published, behind)

    return Runs(build, lambda: _refuse_runs(settings))


def _refuse_runs(settings: Settings) -> None:
    """A run that has read a day before could publish the person again, and its staged files would be removed."""
    on = [
        DagsterRunStatus.QUEUED,
        DagsterRunStatus.NOT_STARTED,
        DagsterRunStatus.STARTING,
        DagsterRunStatus.STARTED,
        DagsterRunStatus.CANCELING,
    ]
    with opened_instance(settings) as instance:
        # First those whose process is gone: they would stand in the way for ever.
        close_abandoned(instance, say)
        runs = [run.run_id[:8] for run in instance.get_runs(filters=RunsFilter(statuses=on))]
    if runs:
        raise BusyError(f"The run(s) {', '.join(runs)} are on. Wait for their end or cancel them, then run it again.")
