"""`lakehouse report`: one page about all tables, to be read offline, printed and sent. Starts no engine."""

from __future__ import annotations

import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from lakehouse.catalog import lake_without_engine
from lakehouse.commands.command import LookingCommand, examples
from lakehouse.commands.console import FromDay, Selection, ToDay, say
from lakehouse.errors import UsageError
from lakehouse.orchestration.outcomes import outcomes
from lakehouse.runs.selection import in_order, in_the_lake, select_tables
from lakehouse.settings import get_settings
from lakehouse.texts import program

STDOUT = Path("-")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "report",
        cls=LookingCommand,
        epilog=examples("lakehouse report", "lakehouse report --select group:gold --from 2011-06-01 --out gold.html"),
    )(report)


def report(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Where to; - is standard output. Default: <root>/report.html."
        ),
    ] = None,
    selection: Selection = None,
    first: FromDay = None,
    last: ToDay = None,
) -> None:
    """Write one HTML page: days, checks, quarantine, figures, freshness, lineage and cost of every table.

    It holds figures only, no row and no personal data, and loads nothing from anywhere. `lakehouse dev` serves it too.
    """
    from lakehouse.report.page import page

    settings = get_settings()
    in_order(first, last)
    in_the_lake(first, last, settings)
    names = select_tables(selection)
    if out is None and not settings.root.is_dir():
        raise UsageError(f"There is no lakehouse in {settings.root}. Make one: {program()} demo; or say --out FILE.")
    of_runs = outcomes(settings, names)
    made = page(lake_without_engine(settings), names, datetime.now(UTC), of_runs, (first, last))
    if out == STDOUT:
        sys.stdout.write(made)
        return
    target = out or settings.root / "report.html"
    write_page(target, made)
    say(f"{len(names)} tables, {len(made.encode()) / 1e6:.1f} MB.")
    sys.stdout.write(f"{target}\n")


def write_page(target: Path, page: str) -> None:
    """Write a page whole or not at all: a reader may have the last one open.

    Raises:
        UsageError: where there cannot be such a file.
    """
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        draft.write_text(page, encoding="utf-8")
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise UsageError(f"{target} cannot be written: {error.strerror}. Choose another file.") from None
