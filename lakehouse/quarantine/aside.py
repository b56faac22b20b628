"""Quarantined rows as they may be shown to people: reasons and history, and no personal data."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from lakehouse.checks.drift import told_fields
from lakehouse.contracts import Table
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.staged import FAILED_RULES
from lakehouse.read.lake import table_path
from lakehouse.read.promote import RESCUED
from lakehouse.records.identity import identified
from lakehouse.records.ledger import Wanted
from lakehouse.records.quarantined import QuarantinedRow, quarantined_rows
from lakehouse.store import cells

HIDDEN = ("_raw", "_rescued")  # may hold what the columns of a row hide


def shown_row(row: Mapping[str, Any], pii: Collection[str]) -> dict[str, Any]:
    """A row as people may see it: without personal data and raw text; of other fields only their names."""
    # Of a line that is broken, any value may stand under any column: what is one's own, under one that is shown.
    broken = bool(pii) and row.get("_error") is not None
    hidden = {*pii, *HIDDEN, *(name for name in row if broken and not name.startswith("_"))}
    shown = {name: value for name, value in row.items() if name not in hidden}
    return shown | ({RESCUED: told_fields(row[RESCUED])} if row.get(RESCUED) is not None else {})


def shown_rows(
    root: Path,
    contract: Table,
    *,
    days: Sequence[date] | None = None,
    rule: str | None = None,
    limit: int = 20,
    code: str | None = None,
    gone: bool = False,
) -> list[dict[str, Any]]:
    """Quarantined rows as they may be shown: reasons first, history last, and no personal data.

    Args:
        root: of the lakehouse.
        contract: the table's.
        days: only these; None: all.
        rule: only rows that break it; None: any.
        limit: rows, at most.
        code: only rows that code of this version set aside; None: any.
        gone: rows that are not in quarantine any more too.
    """
    snapshot = open_snapshot(table_path(root, contract.quarantine_id))
    if snapshot.schema is None:
        return []
    hidden = {*contract.pii, "_raw", FAILED_RULES}
    columns = [FAILED_RULES, *[f.name for f in snapshot.schema.fields if f.name not in hidden]]
    known = {
        (each.day, each.row): each
        for each in quarantined_rows(root, contract, days)
        if each.fits(Wanted(rule, code_version=code)) and each.discarded == gone
    }
    rows: list[dict[str, Any]] = []
    by_day = sorted(snapshot.by_day(contract.day_column).items())
    of_days = [(day, files) for day, files in by_day if days is None or day in days]
    for day, file in ((day, file) for day, files in of_days for file in sorted(files, key=lambda each: each.path)):
        # Files are read until there are enough rows: what is shown is a first look, never the whole quarantine.
        if len(rows) >= limit:
            break
        read, ids = identified(contract, snapshot, file, columns)
        chosen = [(position, known[day, row]) for position, row in enumerate(ids) if (day, row) in known]
        for position, each in chosen[: limit - len(rows)]:
            (row,) = cells.rows(read.select(columns).slice(position, 1))
            rows.append(_shown(row, each, contract.pii))
    return rows


def _shown(row: Mapping[str, Any], each: QuarantinedRow, pii: Collection[str]) -> dict[str, Any]:
    return {
        **dict.fromkeys(row),  # in their order; a column that is shown in other words is null otherwise
        **shown_row(row, pii),
        FAILED_RULES: ", ".join(row[FAILED_RULES] or ()),
        "_code_version": each.code_version,
        "_first_failed": each.first,
        "_last_failed": each.last,
        "_retries": max(each.times - 1, 0),
    }
