"""`lakehouse backfills`: the backfills of Dagster's daemon: how far they are, pausing, resuming, stopping, retrying."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from dagster import DagsterInstance
from dagster._core.execution.backfill import PartitionBackfill

from lakehouse.commands.build.daemon_backfill import started
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, console, print_json, say, table
from lakehouse.errors import UsageError
from lakehouse.orchestration import backfills
from lakehouse.orchestration.backfills import (
    PAUSED_TAG,
    backfill_of,
    daemon_is_on,
    data_of,
    holds_paused_runs,
    is_over,
    newest_backfills,
    rest_of,
    runs_of,
    set_paused,
    state_of,
    target_of,
    why_broken,
)
from lakehouse.orchestration.instance import instance_to_read, opened_instance
from lakehouse.runs.daemon import DaemonClient
from lakehouse.runs.executing import asset_graph
from lakehouse.runs.reports import TableOutcome
from lakehouse.runs.watch import Watch
from lakehouse.settings import Settings, get_settings
from lakehouse.texts import counted, days_text, near, program

Id = Annotated[str, typer.Argument(metavar="ID", help="The backfill, as `backfills list` and the interface name it.")]
Daemon = Annotated[
    bool,
    typer.Option(
        "--daemon", help="Let Dagster's daemon (`lakehouse dev`) build them: several runs at once, which can be paused."
    ),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not follow it; only say its id.")]
MOST_LISTED = 20
MOST_REASONS = 20


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    family = typer.Typer(
        no_args_is_help=True,
        help="Backfills of Dagster's daemon, however they were started: here, in its interface or over GraphQL.",
        rich_markup_mode="rich",
    )
    for name, command, shown in (
        ("list", list_, ("lakehouse backfills list",)),
        ("show", show, ("lakehouse backfills show abcdefgh", "lakehouse backfills show abcdefgh --json")),
        ("pause", pause, ("lakehouse backfills pause abcdefgh",)),
        ("resume", resume, ("lakehouse backfills resume abcdefgh",)),
        ("cancel", cancel, ("lakehouse backfills cancel abcdefgh",)),
        ("retry", retry, ("lakehouse backfills retry abcdefgh", "lakehouse backfills retry abcdefgh --no-wait")),
    ):
        family.command(name, cls=Command, epilog=examples(*shown))(command)
    app.add_typer(family, name="backfills")


def list_(*, as_json: AsJson = False) -> None:
    """The newest backfills: their state, days, and how many of them are done."""
    settings = get_settings()
    if not _has_state(settings):
        found, is_on = [], False
    else:
        with instance_to_read(settings) as instance:
            found = [_brief(each) for each in newest_backfills(instance, MOST_LISTED)]
            is_on = daemon_is_on(instance)
    if as_json:
        print_json(found)
        return
    if not found:
        say(f"There is no backfill of the daemon yet. To start one: {program()} backfill --daemon --from … --to …")
        return
    columns = ("backfill", "state", "started", "tables", "days", "partitions", "done", "not built")
    rows = [
        (
            each["backfill_id"],
            each["state"],
            each["started"],
            len(each["tables"]),
            days_text(each["days"], most=2),
            each["partitions"],
            each["done"],
            each["not_built"],
        )
        for each in found
    ]
    console().print(table(columns, rows, right=("tables", "partitions", "done", "not built")))
    if not is_on and any(each["state"] == "running" for each in found):
        say(f"Dagster's daemon is off: what is running goes on once it is on ({program()} dev).")


def show(backfill_id: Id, *, as_json: AsJson = False) -> None:
    """How far a backfill is, table by table; its runs; its failed days with their reasons."""
    settings = get_settings()
    with (instance_to_read if _has_state(settings) else opened_instance)(settings) as instance:
        watch = Watch(instance, _chosen(instance, backfill_id).backfill_id)
        watch.look()
        if is_over(watch.backfill):
            watch.close()
    if as_json:
        print_json(_in_full(watch))
    else:
        _print(watch)


def pause(backfill_id: Id, *, as_json: AsJson = False) -> None:
    """Start no more runs of a backfill; those that are on end by themselves, and what they build counts.

    Its queued runs stay in the queue, held back; other runs pass them. It stays paused until it is resumed, whatever
    is restarted meanwhile.
    """
    _set_paused(backfill_id, True, as_json)


def resume(backfill_id: Id, *, as_json: AsJson = False) -> None:
    """Go on with a paused backfill where it stands: what is built is not built again."""
    _set_paused(backfill_id, False, as_json)


def cancel(backfill_id: Id, *, as_json: AsJson = False) -> None:
    """End a backfill for good, together with its runs; what is published stays. The daemon does it within a minute."""
    settings = get_settings()
    with opened_instance(settings) as instance:
        chosen = _unfinished(instance, backfill_id)
        _load_code(as_json)
        backfills.cancel(instance, chosen.backfill_id)
        chosen = _chosen(instance, chosen.backfill_id)
    if as_json:
        print_json(_brief(chosen))
    again = f"{program()} backfills retry {backfill_id}"
    say(f"Backfill {backfill_id} is {state_of(chosen)}; what it has not built can be built later: {again}")


def retry(backfill_id: Id, *, no_wait: NoWait = False, as_json: AsJson = False) -> None:
    """Build what a backfill that is over was to build and has not: failed days, what waits for them, cancelled ones."""
    settings = get_settings()
    with opened_instance(settings) as instance:
        chosen = _chosen(instance, backfill_id)
        if not is_over(chosen):
            raise UsageError(
                f"Backfill {backfill_id} is {state_of(chosen)}; it can be retried once it is over "
                "(the daemon notices within a minute)."
            )
        if state_of(chosen) == "done":
            raise UsageError(f"Backfill {backfill_id} is done: there is nothing left to build.")
        of_job = not chosen.is_asset_backfill
        rest, gone = (_left_of_job(instance, backfill_id), {}) if of_job else rest_of(chosen, asset_graph())
    client = DaemonClient(settings, say)
    # Dagster would go on with the backfill as it was: with what is gone, and, of a job's, with what it breaks over.
    by_tables = of_job or bool(gone)
    if gone:
        named = "; ".join(f"{name} {days_text(days)}" for name, days in gone.items())
        say(f"Left out, since there is no such table or day any more: {named}.")
    if by_tables and not rest:
        raise UsageError(f"There is nothing left of backfill {backfill_id} to build.")
    again = client.rest(chosen, rest) if by_tables else client.again(backfill_id)
    say(f"Backfill {again} builds what {backfill_id} has not.")
    started(settings, again, wait=not no_wait, as_json=as_json)


def _left_of_job(instance: DagsterInstance, backfill_id: str) -> backfills.Days:
    """What a backfill of a job has not built; Dagster (1.13) breaks where it is to retry one of a range of days."""
    watch = Watch(instance, backfill_id)
    watch.look()
    told = watch.report.tables
    left = {name: days - {*told[name].published, *told[name].unchanged} for name, days in watch.target.items()}
    return {name: days for name, days in left.items() if days}


def _set_paused(backfill_id: str, paused: bool, as_json: bool) -> None:
    settings = get_settings()
    with opened_instance(settings) as instance:
        chosen = _unfinished(instance, backfill_id)
        if paused and not holds_paused_runs(instance):
            raise UsageError(
                f"The run queue of {settings.dagster_home / 'dagster.yaml'} would start paused runs all the same: it "
                f"is older than pausing. Under concurrency, runs, tag_concurrency_limits it needs the entry "
                f'{{key: {PAUSED_TAG}, value: "true", limit: 0}}; or remove the file, and restart `{program()} dev`.'
            )
        _load_code(as_json)
        set_paused(instance, chosen.backfill_id, paused)
        chosen = _chosen(instance, backfill_id)
        runs = runs_of(instance, chosen.backfill_id)
        on = [run for run in runs if not run.is_finished and run.status.value != "QUEUED"]
        queued = [run for run in runs if run.status.value == "QUEUED"]
    if as_json:
        print_json(_brief(chosen) | {"runs_on": len(on), "runs_queued": len(queued)})
    tail = f"{counted(len(on), 'run')} on, {counted(len(queued), 'run')} {'held ' if paused else ''}in the queue."
    say(f"Backfill {backfill_id} is {state_of(chosen)}: {tail}")


def _load_code(as_json: bool) -> None:
    """Have code that does not load refuse the command before it has changed anything: only JSON tells of the days."""
    if as_json:
        asset_graph()


def _has_state(settings: Settings) -> bool:
    return (settings.dagster_home / "dagster.yaml").exists()


def _chosen(instance: DagsterInstance, backfill_id: str) -> PartitionBackfill:
    found = backfill_of(instance, backfill_id)
    if found is None:
        known = [each.backfill_id for each in newest_backfills(instance)]
        raise UsageError(
            f"There is no backfill {backfill_id}.{near(backfill_id, known)} `{program()} backfills list` names all."
        )
    return found


def _unfinished(instance: DagsterInstance, backfill_id: str) -> PartitionBackfill:
    found = _chosen(instance, backfill_id)
    if is_over(found):
        raise UsageError(f"Backfill {backfill_id} is over ({state_of(found)}).")
    return found


def _brief(backfill: PartitionBackfill) -> dict[str, Any]:
    """What the list says of a backfill; `done` and `not_built` as of the daemon's last look, None of a job's.

    Not built is what failed, what waited for it, and what was cancelled: Dagster counts them together. Of a backfill
    that broke it counts nothing, and nothing of it is built any more.
    """
    graph = asset_graph()
    target, data = target_of(backfill, graph), data_of(backfill, graph)
    state = state_of(backfill)
    done = not_built = None
    if data is not None:
        built = data.materialized_subset
        left = data.target_subset if state == "broken" else data.failed_and_downstream_subset
        done = built.num_partitions_and_non_partitioned_assets
        not_built = (left - built).num_partitions_and_non_partitioned_assets
    return {
        "backfill_id": backfill.backfill_id,
        "state": state,
        "started": datetime.fromtimestamp(int(backfill.backfill_timestamp), UTC),
        "title": backfill.title,
        "tables": list(target),
        "days": sorted(set().union(*target.values())),
        "partitions": sum(len(days) for days in target.values()),
        "done": done,
        "not_built": not_built,
    }


def _in_full(watch: Watch) -> dict[str, Any]:
    told = watch.report.as_json()
    for each in told["tables"]:
        each["running"] = sorted(watch.running.get(each["table"], ()))
        each["waiting"] = sorted(watch.waiting[each["table"]])
    brief = _brief(watch.backfill)
    return {key: brief[key] for key in ("backfill_id", "state", "started", "title", "days", "partitions")} | {
        "runs": told["runs"],
        "tables": told["tables"],
    }


def _print(watch: Watch) -> None:
    brief = _brief(watch.backfill)
    rows = [
        (
            name,
            len(days),
            len(report.published) + len(report.unchanged),
            len(report.failed),
            len(report.skipped),
            len(watch.running.get(name, ())),
            len(watch.waiting[name]),
        )
        for name, days in watch.target.items()
        for report in [watch.report.tables[name]]
    ]
    numbers = ("days", "done", "failed", "skipped", "running", "waiting")
    title = f"Backfill {brief['backfill_id']}: {brief['state']}, {days_text(brief['days'])}"
    console().print(table(("table", *numbers), rows, right=numbers, title=title))
    runs = [
        (run.run_id[:8], run.status.lower(), days_text(run.piece.days), len(run.piece.tables), f"{run.seconds:.0f}")
        for run in watch.report.runs
    ]
    console().print()
    console().print(table(("run", "state", "days", "tables", "sec"), runs, right=("tables", "sec")))
    for report in watch.report.tables.values():
        _say_reasons(report)
    for run in watch.report.runs:
        if run.error:
            say(f"Run {run.run_id[:8]} broke: {run.error}")
    if why := why_broken(watch.backfill):
        say(f"Dagster gave the backfill up, with its runs: {why}.")
    if brief["state"] in ("failed", "cancelled", "broken"):
        say(f"When the cause is fixed, build only what is missing: {program()} backfills retry {brief['backfill_id']}")


def _say_reasons(report: TableOutcome) -> None:
    for day, why in sorted(report.failed.items())[:MOST_REASONS]:
        say(f"{report.table} {day} failed: {why}")
    if len(report.failed) > MOST_REASONS:
        say(f"{report.table}: {len(report.failed) - MOST_REASONS} more days failed ({days_text(report.failed)})")
    for why in dict.fromkeys(report.skipped.values()):
        say(f"{report.table} {days_text(d for d, each in report.skipped.items() if each == why)} skipped: {why}")
