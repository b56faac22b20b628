"""`lakehouse intake`: take what is new in databases and topics, without waiting for the daily run."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from lakehouse.build.build import build
from lakehouse.build.followers import each_built
from lakehouse.build.result import PUBLISHED, BuildResult, kept_back
from lakehouse.catalog import declared, get_table, lake_with_engine, tables
from lakehouse.commands.command import Command, examples, exit_code
from lakehouse.commands.console import AsJson, console, engine_output_aside, print_json, say, table
from lakehouse.contracts import Table
from lakehouse.errors import CHECKS_FAILED, LakehouseError, UsageError
from lakehouse.settings import get_settings
from lakehouse.texts import days_text, program


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "intake",
        cls=Command,
        epilog=examples("lakehouse intake", "lakehouse intake bronze.orders --downstream", "lakehouse intake --whole"),
    )(intake)


def intake(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="TABLE", help="Tables taken from a database or a topic; all by default."),
    ] = None,
    *,
    whole: Annotated[
        bool,
        typer.Option("--whole", help="Read every row of a database again; those that are here already are left out."),
    ] = False,
    downstream: Annotated[
        bool, typer.Option("--downstream", help="Then build the days it touched of the tables that read it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Take what is new in each database table and topic, each batch in one commit with where the next one begins.

    A source that cannot be read holds up no other.

    Exit code 1: a check failed, such as transactions that take longer than the table's lag, or kept a day back.
    """
    found, failed = _taken(_chosen(names), whole=whole, downstream=downstream)
    if as_json:
        print_json([_json(*each) for each in found])
    else:
        for each, result, days in found:
            _show(each, result, days)
    for each, why in failed:
        say(f"Error: {each.id}: {why}")
    if failed:
        raise typer.Exit(max(exit_code(why) for _, why in failed))
    if any(kept_back(built) for *_, built in found) or any(
        not outcome.passed for _, result, _ in found for outcome in result.outcomes
    ):
        raise typer.Exit(CHECKS_FAILED)


def _taken(
    tables: Sequence[Table], *, whole: bool, downstream: bool
) -> tuple[list[tuple[Table, BuildResult, dict[str, BuildResult]]], list[tuple[Table, LakehouseError]]]:
    """What was taken of each table, with what was then built of others, and why the rest could not be."""
    settings, run_id = get_settings(), f"intake-{uuid.uuid4().hex[:12]}"
    found: list[tuple[Table, BuildResult, dict[str, BuildResult]]] = []
    failed: list[tuple[Table, LakehouseError]] = []
    with engine_output_aside(settings):
        lake = lake_with_engine(settings)
        for each in tables:
            try:
                result = build(lake, each, [], run_id=run_id, force=whole)
                found.append((each, result, {}))
                # One by one: what was taken and built is told, whatever the next one meets.
                for made in each_built(lake, each, run_id) if downstream else ():
                    found[-1][-1][made.table.id] = made
            except LakehouseError as error:
                failed.append((each, error))
    return found, failed


def _chosen(names: list[str] | None) -> list[Table]:
    """The tables that are meant, each of which is taken from a source outside."""
    chosen = [get_table(name) for name in names] if names else [each for each in tables().values() if _is_set(each)]
    if wrong := [each.id for each in chosen if not each.taken]:
        raise UsageError(
            f"{', '.join(wrong)}: not taken from a database or a topic; build it with `{program()} materialize`."
        )
    if not chosen:
        unset = sorted({each.taken.setting for each in declared().values() if each.taken})
        why = f"none of their addresses is set ({', '.join(unset)})" if unset else "no table file has one"
        raise UsageError(f"No table is taken from a database or a topic: {why}.")
    return chosen


def _is_set(each: Table) -> bool:
    return each.taken is not None and get_settings().source_url(each.taken.source) is not None


def _json(source: Table, result: BuildResult, built: Mapping[str, BuildResult]) -> dict[str, Any]:
    return {
        "table": source.id,
        "version": result.version,
        **{name.removeprefix("batch/"): value for name, value in result.facts.items()},
        "checks": [{"check": o.check, "passed": o.passed, "message": o.message} for o in result.outcomes],
        "built": {name: made.with_status(PUBLISHED) for name, made in built.items()},
        "failed": kept_back(built),
    }


def _show(source: Table, result: BuildResult, built: Mapping[str, BuildResult]) -> None:
    rows = [(name.removeprefix("batch/"), value) for name, value in result.facts.items()]
    rows += [(f"check {o.check}", ("passed: " if o.passed else "FAILED: ") + o.message) for o in result.outcomes]
    rows += [(f"built {name}", days_text(made.with_status(PUBLISHED)) or "nothing") for name, made in built.items()]
    console().print(table(("batch", ""), rows, title=f"{source.id}, version {result.version}"))
    # `backfill --stale` would leave out the days without a partition: today, and those before the lake's first day.
    follow = f"{program()} intake {source.id} --downstream"
    for day, why in kept_back(built).items():
        say(f"{day} was not published: {why}. Fix the cause, then: {follow}")
    touched = result.facts.get("batch/event_days", "none")
    if touched != "none" and not built:
        say(f"Days downstream that this touched: {touched}. Next: {follow}")
