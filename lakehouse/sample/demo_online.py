"""`lakehouse demo-online`: a Redis, features of the lake in it, one user read, and the parity certificate."""

from __future__ import annotations

from typing import Annotated

import typer

from lakehouse.catalog import get_table, lake_with_engine, lake_without_engine, tables
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import FromDay, ToDay, engine_output_aside, say
from lakehouse.commands.operate.online import certify, show, told
from lakehouse.commands.progress import Terminal
from lakehouse.commands.summary import print_summary
from lakehouse.contracts.features import feature_tables
from lakehouse.contracts.graph import all_upstream
from lakehouse.errors import CHECKS_FAILED
from lakehouse.online import server
from lakehouse.online.address import redis_url, shown
from lakehouse.online.load import lake_now, load
from lakehouse.online.parity import verify
from lakehouse.online.store import opened
from lakehouse.orchestration.pieces import Piece
from lakehouse.read.lake import table_path
from lakehouse.read.rows import top_rows
from lakehouse.runs.running import run_pieces
from lakehouse.runs.selection import check_days, fit_days
from lakehouse.sample.demo import Exports, check_here, land_days
from lakehouse.settings import get_settings
from lakehouse.spark.warm import begin_early
from lakehouse.texts import program

TABLE, ENTITY, KEY, MOST = "gold.user_features", "user", "user_id", "rolling_7d_transaction_count"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "demo-online",
        cls=Command,
        epilog=examples(
            "lakehouse demo-online",
            "lakehouse demo-online --source exports/ --from 2011-08-25 --to 2011-08-31 --user 17841",
        ),
    )(demo_online)


def demo_online(
    user: Annotated[str | None, typer.Option(help="Who is read; else who bought most.")] = None,
    source: Exports = None,
    first: FromDay = None,
    last: ToDay = None,
) -> None:
    """Start Redis, load the features of the lake, read one user, and compare what is served with Delta.

    Features are built first where there are none, or where a folder is named: of its days, else of sample data.
    """
    settings = get_settings()
    check_here(TABLE)
    begin_early(settings)
    if settings.redis_url is None:
        server.start(settings)
    url = redis_url(settings)
    say(f"Redis is up at {shown(url)}.")
    names = [each.id for each in feature_tables(tables().values(), ENTITY)]
    if source is not None or not lake_without_engine(settings).snapshot(TABLE).exists:
        first, last = land_days(settings, source, first, last)
        settings = fit_days(settings, say)
        first, last = check_days(settings, first, last)
        wanted = set(names).union(*(all_upstream(tables(), get_table(name)) for name in names))
        pieces = [Piece(tuple(name for name in tables() if name in wanted), first, last)]
        report = run_pieces(settings, pieces, listener=Terminal(settings))
        print_summary(report, settings)
    now, lake = lake_now(settings.last_day), lake_with_engine(settings)
    for name in names:
        with engine_output_aside(settings):
            done = load(lake, url, get_table(name), now)
        told(done)
    day = max(lake_without_engine(settings).snapshot(TABLE).rows_by_day("feature_date"))
    if user is None:
        [best] = top_rows(
            table_path(settings.root, TABLE), [KEY, MOST], days=[day], order_by=[(MOST, "descending")], limit=1
        )
        user = str(best[KEY])
    say(f"{ENTITY} {user} as a reader gets them ({program()} online show {ENTITY} {user}):")
    show(ENTITY, [user])
    with opened(url) as store:
        found = [verify(lake_without_engine(settings), store, get_table(name), now) for name in names]
    for each in found:
        certify(each)
    say(f"Next: {program()} online serve, {program()} online verify --all, {program()} redis stop")
    if not all(each.passed for each in found):
        raise typer.Exit(CHECKS_FAILED)
