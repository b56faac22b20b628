"""How commands speak: data and JSON on standard output, everything else on standard error; arguments they share."""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import IO, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lakehouse.runs.engine_log import engine_log
from lakehouse.settings import Settings

_WIDE = 100_000  # columns; what is piped to another program is never cut
_ROOMY = 100


def parse_day(text: str | date) -> date:
    """A day of the command line; an option's default is one already."""
    if isinstance(text, date):
        return text
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a day; expected YYYY-MM-DD, such as 2011-01-04") from None


FromDay = Annotated[date | None, typer.Option("--from", parser=parse_day, metavar="DAY", help="First day, YYYY-MM-DD.")]
ToDay = Annotated[
    date | None, typer.Option("--to", parser=parse_day, metavar="DAY", help="Last day, inclusive, YYYY-MM-DD.")
]
Selection = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        "-s",
        metavar="SELECTION",
        help='Tables, in Dagster\'s grammar: key:"gold/*"+, group:silver, tag:pii; or a name: gold.user_features. '
        "More than once: what any of them selects. Default: all.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show the run's log instead of a progress bar.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def console() -> Console:
    """Standard output: as wide as the terminal, or as needed where it is not one."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else _WIDE, soft_wrap=False, highlight=False)


def say(text: str = "") -> None:
    """A line for people, on standard error."""
    Console(file=sys.stderr, highlight=False, soft_wrap=True).print(text, markup=False)


def print_json(value: Any, *, lines: bool = False) -> None:
    """Print a value as JSON: dates and times in ISO 8601, decimals as strings, so that no digit is lost.

    Args:
        value: what to print.
        lines: on one line at once, for those who read one value after the other.
    """
    text = json.dumps(value, indent=None if lines else 2, default=json_value, ensure_ascii=False)
    sys.stdout.write(text + "\n")
    if lines:
        sys.stdout.flush()


def json_value(value: Any) -> Any:
    """The JSON form of what `json` does not know."""
    match value:
        case datetime():
            return iso(value)
        case date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case timedelta():
            return value.total_seconds()
        case bytes():
            return value.hex()
        case set() | frozenset():
            return sorted(value)
    return str(value)


def iso(moment: datetime) -> str:
    """A point in time as ISO 8601 in UTC; one without a zone is UTC already."""
    known = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return known.isoformat().replace("+00:00", "Z")


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[str] = (), title: str = ""
) -> Table:
    """A table whose cells are shown as they are, without markup.

    Args:
        columns: headings.
        rows: cells; None is shown empty.
        right: headings of the columns to align at the right.
        title: a line above.
    """
    made = Table(title=title or None, title_justify="left", title_style="bold", header_style="bold", box=None)
    made.pad_edge, made.padding = False, (0, 1 if console().width < _ROOMY else 2, 0, 0)
    for position, name in enumerate(columns):
        number = name in right
        made.add_column(
            Text(name), justify="right" if number else "left", no_wrap=number or position == 0, overflow="fold"
        )
    for row in rows:
        made.add_row(*[cell(value) for value in row])
    return made


def cell(value: Any) -> Text:
    """One value as people read it."""
    match value:
        case Text():
            return value
        case None:
            return Text("")
        case bool():
            return Text("yes" if value else "no")
        case int():
            return Text(f"{value:,}")
        case datetime():
            return Text(iso(value))
    return Text(str(value))


@dataclass(frozen=True)
class OwnTerminal:
    """The terminal as it was before an engine's output was led away from it; None where there is none."""

    progress: Console | None


def _log(settings: Settings) -> IO[bytes]:
    """The engine's log, or for who may only read under the root a file that is gone with this process."""
    try:
        return engine_log(settings).open("ab", buffering=0)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return tempfile.TemporaryFile(buffering=0)


@contextmanager
def engine_output_aside(settings: Settings, *, verbose: bool = False) -> Iterator[OwnTerminal]:
    """Lead what the engine and Dagster print (the JVM's warnings, step output) into `<root>/logs/engine.log`.

    It is done on file descriptors, because the JVM inherits those. Standard output stays clean for data and the
    terminal for the progress bar, which gets a descriptor of its own.

    Args:
        settings: where the root is.
        verbose: leave everything on standard error instead.
    """
    own: IO[str] | None = None
    sys.stdout.flush()
    sys.stderr.flush()
    if os.isatty(2):
        own = os.fdopen(os.dup(2), "w", buffering=1)
    saved_out, saved_err = os.dup(1), os.dup(2)
    try:
        if not verbose:
            with _log(settings) as log:
                os.dup2(log.fileno(), 2)
        os.dup2(2, 1)
        yield OwnTerminal(Console(file=own, force_terminal=True) if own and not verbose else None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(saved_out, 1)
        os.dup2(saved_err, 2)
        for descriptor in (saved_out, saved_err):
            os.close(descriptor)
        if own:
            own.close()
