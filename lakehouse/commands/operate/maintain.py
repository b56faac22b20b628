"""`lakehouse vacuum` and `lakehouse compact`: fewer and tidier files; no row changes. Starts no engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakehouse.catalog import get_table
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, Selection, console, print_json, say, table
from lakehouse.delta.maintenance import Compactable, Compacted, RetentionError, check_retention
from lakehouse.delta.maintenance import compact as compact_table
from lakehouse.delta.maintenance import vacuum as vacuum_table
from lakehouse.errors import BROKEN, PublishConflictError, UsageError
from lakehouse.runs.selection import select_tables
from lakehouse.settings import Settings, get_settings
from lakehouse.texts import counted
from lakehouse.versions.upkeep import layouts

if TYPE_CHECKING:
    from collections.abc import Sequence

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done; write nothing.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "vacuum",
        cls=Command,
        epilog=examples("lakehouse vacuum --dry-run", "lakehouse vacuum --select group:bronze --hours 720"),
    )(vacuum)
    app.command(
        "compact",
        cls=Command,
        epilog=examples("lakehouse compact", "lakehouse compact --select bronze.events --dry-run"),
    )(compact)


def vacuum(
    selection: Selection = None,
    hours: Annotated[
        float | None,
        typer.Option(
            "--hours",
            help="Keep what was needed at any time in these hours; default: LAKEHOUSE_UNDO_DAYS, 7 days. At least 24.",
        ),
    ] = None,
    *,
    shorten_undo: Annotated[
        bool, typer.Option("--shorten-undo", help="Allow fewer hours than LAKEHOUSE_UNDO_DAYS promises.")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove files no version of the last hours needs: replaced ones, and what crashed runs left.

    Older versions can then no longer be read. Quarantines are vacuumed with their tables, and without --select the
    tables of the lakehouse about itself too (`ops.…`).
    """
    settings = get_settings()
    kept = _kept_hours(settings, hours, shorten_undo=shorten_undo)
    layouts = _layouts(settings, selection)
    found = {name: vacuum_table(each.path, kept, dry_run=dry_run) for name, each in layouts.items()}
    if as_json:
        print_json([{"table": name, "files": list(v.files), "bytes": v.size} for name, v in found.items()])
        return
    columns = ("table", "files", "MB")
    rows = [(name, len(v.files), f"{v.size / 1e6:.1f}") for name, v in found.items()]
    console().print(table(columns, rows, right=columns[1:]))
    files = counted(sum(len(v.files) for v in found.values()), "file")
    size = sum(v.size for v in found.values()) / 1e6
    say(f"Dry run: {files} ({size:.1f} MB) would be removed." if dry_run else f"{files} removed ({size:.1f} MB).")


def _kept_hours(settings: Settings, hours: float | None, *, shorten_undo: bool) -> float:
    """For how long what is not needed any more stays; what was promised, unless somebody says that less is meant."""
    promised = settings.undo_days * 24.0
    hours = promised if hours is None else hours
    try:
        check_retention(hours)
    except RetentionError as error:
        raise UsageError(str(error)) from None
    if hours < promised and not shorten_undo:
        raise UsageError(
            f"Versions of the last {settings.undo_days} days (LAKEHOUSE_UNDO_DAYS) can be restored; with --hours "
            f"{hours:g} some of them no longer could. Leave --hours out, or say --shorten-undo if space matters more."
        )
    return hours


def compact(selection: Selection = None, *, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Merge the small files of each partition. A run that publishes meanwhile wins; compaction then starts over.

    Quarantines are compacted with their tables, and without --select the tables of the lakehouse about itself too.
    """
    settings = get_settings()
    done: dict[str, Compacted] = {}
    lost: dict[str, str] = {}
    for name, layout in _layouts(settings, selection).items():
        try:
            done[name] = compact_table(layout, dry_run=dry_run)
        except PublishConflictError as error:
            lost[name] = str(error)
    if as_json:
        print_json(
            [
                {"table": n, "files_before": c.files_before, "files_after": c.files_after, "partitions": c.partitions}
                for n, c in done.items()
            ]
        )
    else:
        columns = ("table", "partitions", "files before", "files after")
        rows = [(name, c.partitions, c.files_before, c.files_after) for name, c in done.items()]
        console().print(table(columns, rows, right=columns[1:]))
    for text in lost.values():
        say(f"Not compacted: {text}")
    if dry_run:
        say("Dry run: nothing was written.")
    if lost:
        raise typer.Exit(BROKEN)


def _layouts(settings: Settings, selection: Sequence[str] | None) -> dict[str, Compactable]:
    """The selected tables and their quarantines, as far as they were built; where all are meant, `ops.…` too."""
    return layouts(settings.root, [get_table(name) for name in select_tables(selection)], ops=not selection)
