"""`lakehouse land`: put files into the landing zone, where the bronze tables read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated

import typer

from lakehouse.build.open_days import newest_arrival
from lakehouse.catalog import get_landing
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, FromDay, ToDay, print_json, say
from lakehouse.contracts import Landing
from lakehouse.errors import SourceError, UsageError
from lakehouse.runs.selection import fit_days
from lakehouse.settings import get_settings
from lakehouse.sources import landing as zone
from lakehouse.sources.landing import Landed
from lakehouse.sources.samples import land_sample
from lakehouse.texts import counted, days_text, program

FIRST_GENERATED_DAY = date(2011, 3, 1)
SAMPLE = "Without a folder: made-up files, of a source that has a sample"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "land",
        cls=Command,
        epilog=examples(
            "lakehouse land online_retail exports/",
            "lakehouse land online_retail exports/ --from 2011-01-04 --to 2011-01-20",
            "lakehouse land events --days 14 --rows 1000 --seed 7 --from 2011-03-01",
            "lakehouse land events --days 3 --rows 500 --seed 7 --faults default,late=0.1",
            "lakehouse land events --days 3 --rows 900 --seed 7 --producers web,app=+20m,till=epoch",
        ),
    )(land)


def land(  # noqa: PLR0913 - one option each
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Whose files they are, as its table's file says.")],
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", exists=True, file_okay=False, help="Folder of the source's files."),
    ] = None,
    first: FromDay = None,
    last: ToDay = None,
    *,
    days: Annotated[int | None, typer.Option(min=1, help="Number of days.", rich_help_panel=SAMPLE)] = None,
    rows: Annotated[int | None, typer.Option(min=0, help="Lines a day.", rich_help_panel=SAMPLE)] = None,
    seed: Annotated[
        int | None, typer.Option(help="The same seed gives the same files.", rich_help_panel=SAMPLE)
    ] = None,
    faults: Annotated[
        str | None,
        typer.Option(
            help="none, default, all, or rates: duplicates=0.01,late=0.02; a preset may come first.",
            rich_help_panel=SAMPLE,
        ),
    ] = None,
    files: Annotated[
        str | None, typer.Option(help="Files a day, of each producer.", metavar="N", rich_help_panel=SAMPLE)
    ] = None,
    producers: Annotated[
        str | None,
        typer.Option(
            help="Who shares a day's lines, in files of their own; a wrong clock after =: +20m, -3h, +1d, epoch, 2038, "
            "seconds, milliseconds, mixed.",
            rich_help_panel=SAMPLE,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy a source's files into the landing zone; one that is there with the same content is left alone.

    How its files are called, the source's table says; other files are passed over.
    """
    landing = get_landing(source)
    numbers = {"days": days, "rows": rows, "seed": seed}
    texts = {"faults": faults, "files": files, "producers": producers}
    given = [name for name, value in (numbers | texts).items() if value is not None]
    if folder is None:
        options = {name: value for name, value in texts.items() if value is not None}
        landed = _made_up(landing, first, last, numbers, options)
    elif given:
        raise UsageError(f"--{given[0]} is for made-up files; {folder} has its own. Leave out one of them.")
    else:
        landed = _copied(landing, folder, first, last)
    _report(landed, as_json)


def _copied(landing: Landing, folder: Path, first: date | None, last: date | None) -> list[Landed]:
    try:
        return zone.land(folder, get_settings().root, landing, first, last)
    except SourceError as error:
        raise UsageError(str(error)) from None


def _made_up(
    landing: Landing,
    first: date | None,
    last: date | None,
    numbers: Mapping[str, int | None],
    options: Mapping[str, str],
) -> list[Landed]:
    if landing.sample is None:
        names = " or ".join(each.pattern for each in landing.names)
        raise UsageError(f"Which files? Give the folder of {landing.source}'s files, called {names}.")
    missing = [f"--{name}" for name, value in numbers.items() if value is None]
    if missing or last is not None:
        asked = f"made-up files need {' and '.join(missing)}" if missing else "made-up files take --days, not --to"
        raise UsageError(f"{landing.source}: give the folder of its files; or, {asked}.")
    days, rows, seed = (value or 0 for value in numbers.values())
    start = first or FIRST_GENERATED_DAY
    return land_sample(landing, get_settings().root, start, days, rows, seed, options)


def _report(files: Sequence[Landed], as_json: bool) -> None:
    settings = get_settings()
    # A lake whose days are those of its files, or one that begins. Where days were built, their range is somebody's.
    if settings.own_file.exists() or not (settings.root / "tables").exists():
        fit_days(settings, say)
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
    newest = newest_arrival(get_landing(files[0].source), datetime.now(UTC))
    ready = [day for day in days if day <= newest]
    if len(ready) < len(days):
        say(f"Files of {days_text(sorted(set(days).difference(ready)))} are built once their day is over (UTC).")
    if ready:
        say(f"Next: {program()} backfill --from {min(ready)} --to {max(ready)}")
