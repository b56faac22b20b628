"""`lakehouse quarantine`: what was set aside, by table, rule and day, and the rows themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, UsageError, console, counted, near, parse_day, print_json, say, table
from lakehouse.settings import Settings, get_settings

if TYPE_CHECKING:
    from lakehouse.contracts import Table

TableOption = Annotated[str | None, typer.Option("--table", "-t", metavar="TABLE", help="Only this table.")]
DayOption = Annotated[
    date | None, typer.Option("--day", parser=parse_day, metavar="DAY", help="Only this day, YYYY-MM-DD.")
]
RuleOption = Annotated[str | None, typer.Option("--rule", metavar="RULE", help="Only rows that broke this rule.")]
# Never shown: a raw line may hold what its columns hide.
_HIDDEN = ("_raw",)
MOST_COLUMNS = 8  # more than these are shown one below the other on a terminal


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    family = typer.Typer(
        no_args_is_help=True, help="Rows that broke a rule and were set aside.", rich_markup_mode="rich"
    )
    family.command(
        "list",
        cls=Command,
        epilog=examples("lakehouse quarantine list", "lakehouse quarantine list --table silver.transactions --json"),
    )(list_)
    family.command(
        "show",
        cls=Command,
        epilog=examples(
            "lakehouse quarantine show silver.transactions",
            "lakehouse quarantine show silver.transactions --day 2011-03-04 --rule currency_known --limit 5",
        ),
    )(show)
    app.add_typer(family, name="quarantine")


def list_(name: TableOption = None, *, as_json: AsJson = False) -> None:
    """Count quarantined rows by table, day and rule; a row that broke two rules counts for each."""
    from lakehouse.catalog import get_table, tables

    settings = get_settings()
    chosen = [_contract(name)] if name else [each for each in tables().values() if each.rules]
    found = [
        {"table": each.id, "day": day, "rule": rule, "rows": rows}
        for each in chosen
        for (day, rule), rows in sorted(depth(settings, each).items())
    ]
    if as_json:
        print_json(found)
        return
    if not found:
        say("No row is in quarantine.")
        return
    columns = ("table", "day", "rule", "rows")
    console().print(table(columns, [[each[c] for c in columns] for each in found], right=("rows",)))
    rows = sum(total_rows(settings, get_table(each.id)) for each in chosen)
    say(f"{counted(rows, 'row')} in quarantine.")


def show(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="The table whose quarantine to show.")],
    day: DayOption = None,
    rule: RuleOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most rows.")] = 20,
    *,
    as_json: AsJson = False,
) -> None:
    """Show quarantined rows, every rule each one broke, and the file and line it came from; never personal data."""
    settings, contract = get_settings(), _contract(name)
    known = [each.name for each in contract.rules]
    if rule is not None and rule not in known:
        raise UsageError(f"{contract.id} has no rule {rule!r}.{near(rule, known)} Rules: {', '.join(known)}.")
    rows = shown_rows(settings, contract, days=[day] if day else None, rule=rule, limit=limit)
    if as_json:
        print_json(rows)
        return
    if not rows:
        say(f"No such row is in the quarantine of {contract.id}.")
        return
    # A column without any value says nothing, unless that is what is wrong with it.
    columns = [c for c in rows[0] if any(row[c] is not None or c in str(row["_failed_rules"]) for row in rows)]
    out = console()
    if out.is_terminal and len(columns) > MOST_COLUMNS:
        for row in rows:
            out.print(table(("", ""), [(c, row[c]) for c in columns if row[c] is not None]), end="\n\n")
    else:
        out.print(table(columns, [[row[c] for c in columns] for row in rows]))
    total = total_rows(settings, contract)
    say(f"{counted(len(rows), 'row')} of {total:,} in {contract.quarantine_id}. Personal data is never shown.")


def depth(settings: Settings, contract: Table, days: Sequence[date] | None = None) -> Counter[tuple[date, str]]:
    """Rows in a table's quarantine by day and broken rule; reads two columns of its files."""
    import pyarrow.compute as pc

    from lakehouse.commands.rows import files_of
    from lakehouse.tables.lake import table_path
    from lakehouse.tables.staged import FAILED_RULES

    counted_rows: Counter[tuple[date, str]] = Counter()
    columns = [contract.day_column, FAILED_RULES]
    for rows in files_of(table_path(settings.root, contract.quarantine_id), columns, days):
        rules = rows[FAILED_RULES].combine_chunks()
        of_day = rows[contract.day_column].combine_chunks().take(pc.list_parent_indices(rules)).to_pylist()
        counted_rows.update(zip(of_day, pc.list_flatten(rules).to_pylist(), strict=True))
    return counted_rows


def total_rows(settings: Settings, contract: Table) -> int:
    """Rows in a table's quarantine, from its log."""
    from lakehouse.tables.lake import table_path
    from lakehouse.tables.snapshot import open_snapshot

    return sum(file.rows for file in open_snapshot(table_path(settings.root, contract.quarantine_id)).files)


def shown_rows(
    settings: Settings, contract: Table, *, days: Sequence[date] | None = None, rule: str | None = None, limit: int = 20
) -> list[dict[str, Any]]:
    """Quarantined rows as they may be shown: reasons first, and no personal data."""
    import pyarrow.compute as pc

    from lakehouse.commands.rows import column_names, files_of
    from lakehouse.tables.lake import table_path
    from lakehouse.tables.staged import FAILED_RULES

    path = table_path(settings.root, contract.quarantine_id)
    hidden = {*contract.pii, *_HIDDEN, FAILED_RULES}
    columns = [FAILED_RULES, *[name for name in column_names(path) if name not in hidden]]
    rows: list[dict[str, Any]] = []
    for found in files_of(path, columns, days):
        kept = found
        if rule is not None:
            rules = found[FAILED_RULES].combine_chunks()
            broke_it = pc.list_parent_indices(rules).filter(pc.equal(pc.list_flatten(rules), rule))
            kept = found.take(broke_it.unique())
        rows += kept.slice(0, limit - len(rows)).to_pylist()
        if len(rows) >= limit:
            break
    return [{**row, FAILED_RULES: ", ".join(row[FAILED_RULES] or ())} for row in rows]


def offending(contract: Table, row: Mapping[str, Any]) -> str:
    """The values that a row's broken rules speak of, as far as the rules' names say."""
    from lakehouse.tables.staged import FAILED_RULES

    named = [c for c in contract.columns if c in row and c in row[FAILED_RULES]]
    return ", ".join(f"{c}={'null' if row[c] is None else row[c]}" for c in named) or str(row.get("_error") or "")


def origin(row: Mapping[str, Any]) -> str:
    """The file and line a row came from."""
    return f"{row.get('_source_file') or 'unknown'}:{row.get('_source_row') or '?'}"


def _contract(name: str) -> Table:
    from lakehouse.catalog import get_table

    contract = get_table(name.removesuffix("_quarantine"))
    if not contract.rules:
        raise UsageError(f"{contract.id} has no row rules, so it has no quarantine.")
    return contract
