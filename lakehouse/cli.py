"""The `lakehouse` command: `lakehouse --help` lists what it does.

Exit codes: 0 done, 1 checks failed, 2 usage, 3 execution error, 130 interrupted.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from lakehouse import __doc__ as about
from lakehouse.commands.build import backfill, backfills, intake, land
from lakehouse.commands.change import candidate, forget, keys, late, undo
from lakehouse.commands.inspect import (
    clocks,
    describe,
    explain,
    freshness,
    impact,
    quarantine,
    query,
    ready,
    reconcile,
    report,
    schema,
    status,
)
from lakehouse.commands.operate import alerts, dev, doctor, maintain
from lakehouse.errors import SettingsError
from lakehouse.sample import demo
from lakehouse.settings import get_settings
from lakehouse.store.disk import keep_private

app = typer.Typer(
    name="lakehouse",
    help=f"{about}\n\nSettings are LAKEHOUSE_* environment variables or a .env file (see .env.example).",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 done, 1 checks failed, 2 usage, 3 execution error, 130 interrupted.",
)
FAMILIES = (
    demo,
    land,
    intake,
    backfill,
    backfills,
    query,
    ready,
    status,
    report,
    freshness,
    reconcile,
    quarantine,
    late,
    clocks,
    alerts,
    describe,
    explain,
    impact,
    schema,
    undo,
    candidate,
    maintain,
    keys,
    forget,
    doctor,
    dev,
)
for family in FAMILIES:
    family.add_to(app)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"lakehouse {version('lakehouse')}")
        except PackageNotFoundError:
            typer.echo("lakehouse (not installed)")
        raise typer.Exit


@app.callback()
def _options(
    _show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; what it writes is for its owner alone, or for the group that the root is open to."""
    try:
        keep_private(get_settings().root)
    except SettingsError:  # the command says so
        os.umask(0o077)
    app()


if __name__ == "__main__":
    main()
