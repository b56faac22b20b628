"""What `lakehouse backfill --stale` wrote, or would write, beside a fixed look-back, for people."""

from __future__ import annotations

from lakehouse.build.lookback import Rewritten
from lakehouse.commands.console import console, table
from lakehouse.texts import counted


def print_rewritten(found: Rewritten, verb: str) -> None:
    """Print the comparison; nothing where no day before the newest arrival is concerned.

    Args:
        found: the figures.
        verb: `rewritten`, or `to rewrite` before it is done.
    """
    if not found.beside or not found.beside[-1].look_back:
        return
    rows = [("exactly the stale days", found.days, _size(found.bytes), 0)]
    rows += [
        (f"a look-back of {counted(each.look_back, 'day')}", each.days, _size(each.bytes), each.missed_days)
        for each in found.beside
    ]
    columns = (verb, "days of tables", "size", "stale days missed")
    console().print(table(columns, rows, right=columns[1:], title=f"Newest arrival: {found.newest_arrival}"))


def _size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:,.1f} kB"  # noqa: PLR2004 - a tenth of a megabyte
