"""The `lakehouse` command: `lakehouse --help` lists what it does.

Exit codes: 0 done, 1 checks failed, 2 usage, 3 execution error, 130 interrupted.
"""

from __future__ import annotations

import copy
import importlib
import os
import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import CompletionItem, TyperCommand, TyperGroup

from lakehouse import __doc__ as about
from lakehouse.commands.listed import COMMANDS
from lakehouse.errors import BROKEN


class _Commands(dict[str, Any]):
    """The commands by name; a command's module is imported when somebody asks for the command, not for its name."""

    def __getitem__(self, name: str) -> Any:
        if (made := super().__getitem__(name)) is None:
            family = typer.Typer(rich_markup_mode="rich")
            _imported(COMMANDS[name].module).add_to(family)
            made = self[name] = typer.main.get_group(family).commands[name]
        return made

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in COMMANDS else default

    def items(self) -> Any:
        return {name: self[name] for name in self}.items()

    def values(self) -> Any:
        return {name: self[name] for name in self}.values()


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(f"lakehouse.{module}")
    except Exception as error:  # noqa: BLE001 - no command has begun that could say so
        traceback.print_exc()
        kind = type(error).__name__
        typer.echo(f"Error: this should not have happened ({kind}). `lakehouse doctor` checks the set-up.", err=True)
        raise typer.Exit(BROKEN) from None


class _Group(TyperGroup):
    """All commands, imported one by one as they are used; their list is written from kept sentences."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**{**attrs, "commands": _Commands(dict.fromkeys(COMMANDS))})

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - as Typer calls it
        """Their names, in the order of the list."""
        return list(self.commands)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """What may follow `lakehouse`, from the kept sentences: a shell asks at each key and waits."""
        listed = [
            CompletionItem(name, help=each.about) for name, each in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*listed, *super(TyperGroup, self).shell_complete(ctx, incomplete)]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the whole program."""
        listed = copy.copy(self)
        listed.commands = {name: TyperCommand(name, help=each.about) for name, each in COMMANDS.items()}
        TyperGroup.format_help(listed, ctx, formatter)


app = typer.Typer(
    name="lakehouse",
    cls=_Group,
    help=f"{about}\n\nSettings are LAKEHOUSE_* environment variables or a .env file (see .env.example).",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 done, 1 checks failed, 2 usage, 3 execution error, 130 interrupted.",
)


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
    # Arrow's own allocator keeps what threads that have ended freed: a stream would grow by megabytes a turn.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if sys.argv[1:2] not in ([], ["--help"], ["--version"]):  # these write nothing, and settings take time to load
        _keep_private()
    app()


def _keep_private() -> None:
    from lakehouse.errors import SettingsError
    from lakehouse.settings import get_settings
    from lakehouse.store.disk import keep_private

    try:
        keep_private(get_settings().root)
    except SettingsError:  # the command says so
        os.umask(0o077)


if __name__ == "__main__":
    main()
