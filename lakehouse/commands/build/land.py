"""`lakehouse land`: put files into the landing zone, where the bronze tables read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import (
    AsJson,
    FromDay,
    ToDay,
    UsageError,
    counted,
    parse_day,
    print_json,
    program,
    say,
)
from lakehouse.commands.selection import fit_days
from lakehouse.errors import SourceError
from lakehouse.settings import get_settings

if TYPE_CHECKING:
    from lakehouse.sources.landing import Landed

FIRST_GENERATED_DAY = date(2011, 3, 1)


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    family = typer.Typer(no_args_is_help=True, help="Put files into the landing zone.", rich_markup_mode="rich")
    family.command(
        "online_retail",
        cls=Command,
        epilog=examples(
            "lakehouse land online_retail exports/",
            "lakehouse land online_retail exports/ --from 2011-01-04 --to 2011-01-20",
        ),
    )(online_retail)
    family.command(
        "events",
        cls=Command,
        epilog=examples(
            "lakehouse land events --days 14 --rows 1000 --seed 7 --from 2011-03-01",
            "lakehouse land events --days 3 --rows 500 --seed 7 --faults default,late=0.1",
            "lakehouse land events --days 3 --rows 900 --seed 7 --producers web,app=+20m,till=epoch",
        ),
    )(events)
    app.add_typer(family, name="land")


def online_retail(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", exists=True, file_okay=False, help="Folder of YYYY-MM-DD.csv.gz exports.")
    ],
    first: FromDay = None,
    last: ToDay = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Copy the retail system's daily exports; a file that is there already with the same content is left alone."""
    from lakehouse.sources.landing import land_online_retail

    try:
        landed = land_online_retail(folder, get_settings().root, first, last)
    except SourceError as error:
        raise UsageError(str(error)) from None
    _report(landed, as_json)


def events(
    days: Annotated[int, typer.Option("--days", min=1, help="Number of days.")],
    rows: Annotated[int, typer.Option("--rows", min=0, help="Lines a day.")],
    seed: Annotated[int, typer.Option("--seed", help="Picks the shop; the same seed gives the same files.")],
    first: Annotated[
        date, typer.Option("--from", parser=parse_day, metavar="DAY", help="First arrival day, YYYY-MM-DD.")
    ] = FIRST_GENERATED_DAY,
    faults: Annotated[
        str,
        typer.Option(
            metavar="FAULTS",
            help="none, default, all, or rates: duplicates=0.01,late=0.02; a preset may come first.",
        ),
    ] = "none",
    files: Annotated[int, typer.Option("--files", min=1, help="Files a day, of each producer.")] = 1,
    producers: Annotated[
        str,
        typer.Option(
            metavar="PRODUCERS",
            help="Who shares a day's lines, in files of their own; a wrong clock after =: +20m, -3h, +1d, epoch, 2038, "
            "seconds, milliseconds, mixed.",
        ),
    ] = "",
    *,
    as_json: AsJson = False,
) -> None:
    """Generate web-shop events, the same ones for the same arguments, with faults on request."""
    from lakehouse.sources.clocks import parse_producers
    from lakehouse.sources.faults import Faults
    from lakehouse.sources.landing import land_events

    who = parse_producers(producers)
    landed = land_events(get_settings().root, first, days, rows, seed, Faults.parse(faults), files, producers=who)
    _report(landed, as_json)


def _report(landed: Iterable[Landed], as_json: bool) -> None:
    files = list(landed)
    settings = get_settings()
    if settings.own_file.exists():  # a lake whose days are those of its files
        fit_days(settings)
    root = settings.root
    if as_json:
        print_json(
            [
                {
                    "source": each.source,
                    "day": each.arrival_date,
                    "path": each.path.relative_to(root).as_posix(),
                    "bytes": each.size,
                    "outcome": each.outcome,
                }
                for each in files
            ]
        )
        return
    outcomes = Counter(each.outcome for each in files)
    told = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items())
    days = [each.arrival_date for each in files]
    size = sum(each.size for each in files) / 1e6
    folder = files[0].path.parent if len(files) == 1 else root / "landing"
    say(f"{counted(len(files), 'file')} in {folder}: {told}; {size:.1f} MB.")
    say(f"Next: {program()} backfill --from {min(days)} --to {max(days)}")
