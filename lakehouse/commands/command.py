"""What every command shares: how errors end it, and examples below its help."""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from lakehouse.commands.console import say
from lakehouse.environment import misspelt
from lakehouse.errors import (
    BROKEN,
    INTERRUPTED,
    USAGE,
    ContractError,
    GeneratorError,
    HistoryGoneError,
    LakehouseError,
    SettingsError,
    UnknownTableError,
    UsageError,
    what_led_to,
)
from lakehouse.orchestration.run_tags import because
from lakehouse.settings import Settings, get_settings
from lakehouse.store.disk import root_problem
from lakehouse.texts import program

# What the machine refuses, whatever the code: rights, a disk that is read-only or full, a root that is no folder.
_NOT_OURS = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.ENAMETOOLONG,
}  # fmt: skip


class Command(TyperCommand):
    """A command whose errors are a sentence on standard error and an exit code of `lakehouse.errors`."""

    looks_at_root = True
    """Whether it ends at once where there can be no root; `doctor` tells of it among its other findings."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        _quiet_warnings()
        try:
            if self.looks_at_root:
                check_root()
            _tell_misspelt()
            with because(self._told(ctx)):
                return super().invoke(ctx)
        except LakehouseError as error:
            say(f"Error: {error}")
            raise typer.Exit(exit_code(error)) from None
        except KeyboardInterrupt:
            say("Interrupted.")
            raise typer.Exit(INTERRUPTED) from None
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except OSError as error:
            if error.errno is None or error.errno not in _NOT_OURS or error.filename is None:
                raise _unforeseen(error) from None
            path, why = os.fsdecode(error.filename), os.strerror(error.errno).lower()
            say(f"Error: {path}: {why}. `lakehouse doctor` checks the folders and says what to do.")
            raise typer.Exit(BROKEN) from None
        except Exception as error:  # noqa: BLE001  # whatever it is, it ends with the documented exit code
            raise _unforeseen(error) from None

    def _told(self, ctx: Any) -> str:
        """The command as the runs it makes tell it: with the flags that are set, and no values, which may be secret."""
        path, step = [str(ctx.info_name)], ctx.parent
        while step is not None and step.parent is not None:
            path.insert(0, str(step.info_name))
            step = step.parent
        flags = [each.opts[0] for each in self.params if getattr(each, "is_flag", False) and ctx.params.get(each.name)]
        return " ".join(["lakehouse", *path, *flags])


class LookingCommand(Command):
    """A command that reads logs and no more: it does not import what table files need, where they are as they were."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        from lakehouse.catalog import looking_only

        with looking_only():
            return super().invoke(ctx)


def _unforeseen(error: Exception) -> typer.Exit:
    if told := _full_disk(error):
        say(f"Error: no space left on a disk ({told}). Free space, then run the same command again.")
        return typer.Exit(BROKEN)
    if told := silent_database(error):
        say(
            f"Error: Dagster's database does not answer: {told}. Its address is in "
            f"{get_settings().dagster_home / 'dagster.yaml'}. Once it answers, run the same command again."
        )
        return typer.Exit(BROKEN)
    traceback.print_exception(error, file=sys.stderr)
    say(f"Error: this should not have happened ({type(error).__name__}). `lakehouse doctor` checks the set-up.")
    return typer.Exit(BROKEN)


def _full_disk(error: Exception) -> str:
    """What is free under the root, where a full disk is to blame: errors of writes and of SQLite name no file."""
    from lakehouse import store
    from lakehouse.build.space import is_full

    try:
        root = get_settings().root
        free = store.free_bytes(root) >> 20
    except (SettingsError, OSError):
        return ""
    # SQLite says no more than that, where there is no space for what it keeps beside a database.
    beside = not free and "disk I/O error" in str(error)
    return f"{free} MiB are free under {root}" if beside or is_full(error) else ""


def silent_database(error: BaseException) -> str:
    """What a server that keeps Dagster's state says, or the way to it; empty where it is not to blame."""
    if (known := sys.modules.get("sqlalchemy.exc")) is None:
        return ""
    for each in what_led_to(error):
        # SQLite has no server: its errors are of files.
        if isinstance(each, known.OperationalError) and not isinstance(each.orig, sqlite3.Error):
            return str(each.orig).strip().partition("\n")[0].rstrip(".")
    return ""


def _quiet_warnings() -> None:
    """Leave out Dagster's notices that a parameter is still in beta: they are for those who write assets."""
    warnings.filterwarnings("ignore", message=r"(?s).*is currently in (beta|preview)")
    warnings.filterwarnings("ignore", message=r"(?s).*supersed")


def _tell_misspelt() -> None:
    """A misspelt variable would else be a setting that is not set, such as another root, without a word."""
    try:
        own_file = get_settings().own_file
    except SettingsError:  # the command says so, if it needs settings
        return
    for name, meant in misspelt(Settings.model_fields, Path(".env"), own_file).items():
        say(f"{name} is no setting, and nothing reads it. Did you mean {meant}?")


def check_root() -> None:
    """See that there is a root, or that there can be one: a mistyped one would else look like an empty lakehouse.

    Raises:
        SettingsError: there cannot.
    """
    try:
        root = get_settings().root
    except SettingsError:  # the command says so, if it needs settings
        return
    if problem := root_problem(root):
        raise SettingsError(
            f"LAKEHOUSE_ROOT: {problem}. Set it to a folder, or to one that can be made; "
            f"`{program()} doctor` checks the folders and says what to do."
        )


def exit_code(error: LakehouseError) -> int:
    """2 where the command line, the settings or a table file have to change, else 3."""
    usage = UsageError | ContractError | UnknownTableError | SettingsError | GeneratorError | HistoryGoneError
    return USAGE if isinstance(error, usage) else BROKEN


def examples(*lines: str) -> str:
    """The examples below a command's help, one a line."""
    return "\n\n".join(["Examples:", *(line.replace("[", r"\[") for line in lines)])
