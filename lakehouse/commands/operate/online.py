"""`lakehouse online`: features in Redis, loaded from Delta, shown, compared and served."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import date, datetime
from typing import Annotated, Any

import typer

from lakehouse.catalog import get_table, lake_with_engine, lake_without_engine, tables
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, FromDay, ToDay, console, engine_output_aside, parse_day, print_json, say
from lakehouse.commands.console import table as shown_table
from lakehouse.contracts import Table
from lakehouse.contracts.features import feature_tables
from lakehouse.days import days_between
from lakehouse.errors import CHECKS_FAILED, OnlineDownError, OnlineError, OnlineRefusedError, UsageError
from lakehouse.online.address import redis_url, shown
from lakehouse.online.client import OnlineClient
from lakehouse.online.load import Loaded, lake_now, load, rebuild
from lakehouse.online.parity import SAMPLE, Certificate, verify
from lakehouse.online.sets import feature_sets
from lakehouse.online.store import opened
from lakehouse.settings import Settings, get_settings
from lakehouse.texts import counted, program

PORT = 8600
Names = Annotated[list[str] | None, typer.Argument(metavar="TABLE", help="Tables with features; else all.")]
AsOf = Annotated[
    date | None,
    typer.Option(
        "--as-of", parser=parse_day, metavar="DAY", help="The end of this day is taken for now; else the lake's."
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    about = "Features online: the newest row of each entity, in Redis."
    family = typer.Typer(no_args_is_help=True, help=about, rich_markup_mode="rich")
    named = "gold.user_features"
    for name, function, lines in (
        ("load", load_them, ("lakehouse online load", f"lakehouse online load {named} --as-of 2011-08-31")),
        ("rebuild", rebuild_them, (f"lakehouse online rebuild {named}",)),
        ("show", show, ("lakehouse online show user 17841", "lakehouse online show user 17841 --json")),
        ("verify", verify_them, ("lakehouse online verify", "lakehouse online verify --all")),
        ("serve", serve, ("lakehouse online serve", f"lakehouse online serve --port {PORT}")),
    ):
        family.command(name, cls=Command, epilog=examples(*lines))(function)
    app.add_typer(family, name="online")


def load_them(names: Names = None, *, as_of: AsOf = None, first: FromDay = None, last: ToDay = None) -> None:
    """Put the newest usable row of each entity into Redis, and take out what Delta has no more.

    To load again does no harm, and goes on where a load broke off. With --from or --to only rows of these days are put
    in, where they are newer than what is there, and nothing is taken out.
    """
    settings = get_settings()
    if (first is None) != (last is None):
        raise UsageError("--from and --to go together: the first and the last day whose rows are put in.")
    only = None if first is None or last is None else days_between(first, last)
    now = _now(settings, as_of)
    lake, url = lake_with_engine(settings), redis_url(settings)

    _load_each(
        settings, names, lambda table, note: load(lake, url, table, now, whole=as_of is None, only=only, told=note)
    )


def rebuild_them(names: Names = None, *, as_of: AsOf = None) -> None:
    """Forget what Redis has of tables and load them from nothing; meanwhile their rows are missing."""
    settings = get_settings()
    now = _now(settings, as_of)
    lake, url = lake_with_engine(settings), redis_url(settings)

    _load_each(settings, names, lambda table, note: rebuild(lake, url, table, now, whole=as_of is None, told=note))


def show(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="Whom the rows are about, such as user.")],
    key: Annotated[list[str], typer.Argument(metavar="ID", help="Values of the key columns, in their order.")],
    *,
    as_of: AsOf = None,
    as_json: AsJson = False,
) -> None:
    """Show all features of one entity, as a reader gets them: each with its status and where its row is from."""
    settings = get_settings()
    sets = feature_sets(tables())
    found = {name: each for name, each in sets.items() if each.entity == entity}
    if not found:
        known = sorted({each.entity for each in sets.values()})
        raise UsageError(f"No table has features of {entity!r}. There are those of: {', '.join(known)}.")
    columns = next(iter(found.values())).key
    if len(columns) != len(key):
        raise UsageError(f"{entity} is meant by {', '.join(columns)}: expected {len(columns)} values, got {len(key)}.")
    moment = _now(settings, as_of).timestamp()
    client = OnlineClient(redis_url(settings), found, lambda: moment)
    [vector] = client.get_online_features([dict(zip(columns, key, strict=True))], list(found))
    client.close()
    rows = [
        (
            name, each.status, each.value, each.row and each.row.event_time, each.row and each.row.delta_version,
            each.row and each.row.code_version,
        )
        for name, each in vector.items()
    ]  # fmt: skip
    names = ("feature", "status", "value", "event_time", "delta_version", "code_version")
    if as_json:
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        console().print(shown_table(names, rows, right=("value", "delta_version")))


def verify_them(
    names: Names = None,
    *,
    sample: Annotated[int, typer.Option(min=1, help="Entities of each table whose rows are compared.")] = SAMPLE,
    whole: Annotated[bool, typer.Option("--all", help="Compare all of them.")] = False,
    as_of: AsOf = None,
    as_json: AsJson = False,
) -> None:
    """Compare what is served with Delta, as known then and now, without an engine; ends with 1 where it differs."""
    settings = get_settings()
    now, lake = _now(settings, as_of), lake_without_engine(settings)
    found: list[Certificate] = []
    with opened(redis_url(settings)) as store:
        refused = _each(names, lambda each: found.append(verify(lake, store, each, now, None if whole else sample)))
    if as_json:
        print_json([{**asdict(each), "passed": each.passed} for each in found])
    else:
        for each in found:
            certify(each)
    _tell(refused)
    if not all(each.passed for each in found):
        raise typer.Exit(CHECKS_FAILED)


def serve(*, port: Annotated[int, typer.Option(min=1, max=65535, help="Port of this machine alone.")] = PORT) -> None:
    """Serve features over HTTP on 127.0.0.1 until Ctrl-C, without login. See /docs, /health and /metrics."""
    import uvicorn

    from lakehouse.online.service import service

    settings = get_settings()
    url = redis_url(settings)
    app = service(url, feature_sets(tables()), lambda: lake_now(settings.last_day).timestamp())
    say(f"Features of {shown(url)} at http://127.0.0.1:{port}/docs, for this machine only. Ctrl-C ends it.")
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)


def told(done: Loaded) -> None:
    """Say what a load came to."""
    rows = done.put
    say(
        f"{done.table}, Delta version {done.delta_version}: {counted(rows.written, 'row')} written, {rows.same:,} "
        f"there already, {rows.older:,} older than what is there, {done.removed:,} removed, {done.expired:,} expired "
        f"({done.seconds:.1f} s)."
    )
    if done.other_code:
        say(
            f"  {counted(len(done.other_code), 'day')} made by other code than the present were left out "
            f"({done.other_code[0]} … {done.other_code[-1]}). Build them again: {program()} backfill --older-code "
            f"--select {done.table}"
        )
    if done.superseded:
        say("  A load of a later version has begun meanwhile: its rows stand.")


def certify(found: Certificate) -> None:
    """Print a certificate."""
    word = "PASSED" if found.passed else "FAILED"
    say(
        f"Parity of {found.table}: {word}. {found.entities:,} entities in Delta (version {found.delta_version}), "
        f"{found.online:,} online, {found.missing:,} missing, {found.extra:,} too many; {found.sampled:,} compared, "
        f"{found.values:,} values, {found.mismatched:,} entities differ."
    )
    if found.gone:
        say(f"  {counted(found.gone, 'row')} carry a version that cannot be read any more: compared with the newest.")
    for each in found.mismatches:
        say(f"  {each.text()}")


def _now(settings: Settings, as_of: date | None) -> datetime:
    return lake_now(as_of or settings.last_day)


def _each(names: list[str] | None, act: Callable[[Table], object]) -> list[str]:
    """Act on each table; why some of them could not be acted on: they have no rows yet, say, or are not served."""
    refused = []
    for table in _chosen(names):
        try:
            act(table)
        except (OnlineDownError, OnlineRefusedError):
            raise  # as all others would
        except OnlineError as error:
            refused.append(str(error))
    return refused


def _load_each(
    settings: Settings, names: list[str] | None, act: Callable[[Table, Callable[[str], object]], Loaded]
) -> None:
    """Load each table, and say what that came to."""

    def one(table: Table) -> None:
        notes: list[str] = []
        with engine_output_aside(settings):  # what is said in there goes into the engine's log
            done = act(table, notes.append)
        for note in notes:
            say(note)
        told(done)

    _tell(_each(names, one))


def _tell(refused: list[str]) -> None:
    if refused:
        raise OnlineError("\n".join(refused))


def _chosen(names: list[str] | None) -> list[Table]:
    found: list[Any] = [get_table(name) for name in names or ()] or feature_tables(tables().values())
    if not found:
        raise UsageError("No table has features: @table(features=Features(…)) says that one does.")
    return found
