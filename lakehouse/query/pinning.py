"""Which version of each table a query reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from deltalake import DeltaTable

from lakehouse.delta.layout import table_path
from lakehouse.delta.log import readable_at
from lakehouse.errors import UsageError
from lakehouse.query.checked_query import TableUse
from lakehouse.texts import near, program
from lakehouse.versions.moments import parse_moment, version_at

Pinned = Sequence[tuple[TableUse, int | None]]
"""The tables of a query, each with the version to read; None: the newest, or what the query itself says."""


def check_built(root: Path, uses: Sequence[TableUse]) -> None:
    """Refuse a query over a table that is not there.

    Args:
        root: of the lakehouse.
        uses: the tables that the query reads.

    Raises:
        UsageError: with the command that builds it.
    """
    for use in uses:
        # Names are known by their folders; here it is seen whether the log has an entry: a killed commit left none.
        if not DeltaTable.is_deltatable(str(table_path(root, use.table))):
            source = use.table.removesuffix("_quarantine")
            raise UsageError(
                f"{use.table} was never built in {root}. Land files (lakehouse land --help), then: "
                f"{program()} backfill --select '+{source}' --from DAY --to DAY"
            )


def pinned(root: Path, uses: Sequence[TableUse], as_of: Sequence[str], known: Collection[str]) -> Pinned:
    """The version that each use of a table reads, with its own `VERSION AS OF` or by what is said for all.

    Args:
        root: of the lakehouse.
        uses: the tables that the query reads.
        as_of: one time for all tables, and versions of single ones, as `silver.orders=3`.
        known: names of all tables.

    Raises:
        UsageError: for what is neither a time nor a table's version, or was before the table's first commit.
        HistoryGoneError: where a vacuum has removed files of the version.
    """
    moment, versions = _asked(as_of, known)
    if unused := sorted(versions.keys() - {use.table for use in uses}):
        raise UsageError(f"--as-of names {', '.join(unused)}, which the query does not read.")
    found: list[tuple[TableUse, int | None]] = []
    for use in uses:
        path = table_path(root, use.table)
        version = _version(path, use, moment, versions)
        if version is not None:
            readable_at(path, version)
        found.append((use, version))
    return found


def _asked(as_of: Sequence[str], known: Collection[str]) -> tuple[datetime | None, dict[str, int]]:
    moment: datetime | None = None
    versions: dict[str, int] = {}
    for text in as_of:
        name, equals, number = text.partition("=")
        if not equals:
            if moment is not None:
                raise UsageError("Give one time in --as-of; versions of tables (silver.orders=3) may be several.")
            moment = parse_moment(text)
        elif name not in known:
            raise UsageError(f"--as-of {text}: there is no table {name}.{near(name, known)}")
        elif not number.isdigit():
            raise UsageError(f"--as-of {text}: {number!r} is no version; expected a number such as {name}=3")
        else:
            versions[name] = int(number)
    return moment, versions


def _version(path: Path, use: TableUse, moment: datetime | None, versions: Mapping[str, int]) -> int | None:
    if use.option is not None:  # what the query says of this table counts more than what is said for all
        given = use.value or ""
        return int(given) if use.option == "versionAsOf" and given.isdigit() else None
    if use.table in versions:
        return versions[use.table]
    return version_at(path, use.table, moment) if moment is not None else None
