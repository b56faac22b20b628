"""`lakehouse quarantine list` and `show`: what was set aside, by table, rule and day, and the rows themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Annotated, Any

import typer

from lakehouse.catalog import tables
from lakehouse.commands.change import quarantine_decisions
from lakehouse.commands.command import LookingCommand, examples
from lakehouse.commands.console import AsJson, console, print_json, say, table
from lakehouse.commands.inspect.quarantine_options import CodeOption, DayOption, RuleOption, chosen_table, wanted_rows
from lakehouse.contracts import Table
from lakehouse.delta.staged import FAILED_RULES
from lakehouse.quarantine.aside import shown_rows
from lakehouse.records.quarantined import QuarantinedRow, quarantined_rows
from lakehouse.settings import Settings, get_settings
from lakehouse.texts import age_text, counted, program

TableOption = Annotated[str | None, typer.Option("--table", "-t", metavar="TABLE", help="Only this table.")]
DiscardedOption = Annotated[bool, typer.Option("--discarded", help="Rows that were discarded, instead of the others.")]
MOST_COLUMNS = 8  # more than these are shown one below the other on a terminal


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    family = typer.Typer(
        no_args_is_help=True, help="Rows that broke a rule and were set aside.", rich_markup_mode="rich"
    )
    family.command(
        "list",
        cls=LookingCommand,
        epilog=examples(
            "lakehouse quarantine list",
            "lakehouse quarantine list --table silver.transactions --rule currency_known --json",
        ),
    )(list_)
    family.command(
        "show",
        cls=LookingCommand,
        epilog=examples(
            "lakehouse quarantine show silver.transactions",
            "lakehouse quarantine show silver.transactions --day 2011-03-04 --rule currency_known --limit 5",
        ),
    )(show)
    quarantine_decisions.add_to(family)
    app.add_typer(family, name="quarantine")


def list_(
    name: TableOption = None,
    rule: RuleOption = None,
    day: DayOption = None,
    code: CodeOption = None,
    *,
    gone: DiscardedOption = False,
    as_json: AsJson = False,
) -> None:
    """Count quarantined rows by table, day and rule, and since when; a row that broke two rules counts for each."""
    settings = get_settings()
    chosen = [chosen_table(name)] if name else [each for each in tables().values() if each.rules]
    found: list[dict[str, Any]] = []
    total = 0
    for each in chosen:
        wanted = wanted_rows(each if name else None, rule, day, code)
        rows = [row for row in quarantined_rows(settings.root, each) if row.fits(wanted) and row.discarded == gone]
        total += len(rows)
        found += _groups(each, rows)
    if as_json:
        print_json(found)
        return
    if not found:
        say("No such row was discarded." if gone else "No such row is in quarantine.")
        return
    _print_groups(found)
    if gone:
        say(f"{counted(total, 'row')} discarded. Who, when and why: {program()} quarantine ledger")
        return
    say(f"{counted(total, 'row')} in quarantine. Once the cause is fixed: {program()} quarantine replay TABLE")


def _print_groups(found: Sequence[dict[str, Any]]) -> None:
    now = datetime.now(UTC)
    columns = ("table", "day", "rule", "rows", "since", "code")
    cells = [
        (e["table"], e["day"], e["rule"], e["rows"], f"{age_text(now - e['first_failed'])} ago", e["code_version"])
        for e in found
    ]
    console().print(table(columns, cells, right=("rows",)))


def _groups(contract: Table, rows: Sequence[QuarantinedRow]) -> list[dict[str, Any]]:
    """Rows counted by day, broken rule and the code that judged them; a row that broke two rules is in two groups."""
    groups: dict[tuple[date, str, str], list[QuarantinedRow]] = {}
    for row in rows:
        for broken in row.rules:
            groups.setdefault((row.day, broken, row.code_version), []).append(row)
    return [
        {
            "table": contract.id,
            "day": day,
            "rule": broken,
            "rows": len(group),
            "first_failed": min(row.first for row in group),
            "code_version": judged_by,
        }
        for (day, broken, judged_by), group in sorted(groups.items())
    ]


def show(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="The table whose quarantine to show.")],
    day: DayOption = None,
    rule: RuleOption = None,
    code: CodeOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most rows.")] = 20,
    *,
    gone: DiscardedOption = False,
    as_json: AsJson = False,
) -> None:
    """Show quarantined rows with every rule each one broke, the file and line it came from, and its history.

    _first_failed and _last_failed are when builds found it to break rules, _retries is how often it failed again,
    _code_version is the code that judged it last. Personal data is never shown.
    """
    settings, contract = get_settings(), chosen_table(name)
    wanted = wanted_rows(contract, rule, day, code)
    days = [day] if day else None
    rows = shown_rows(settings.root, contract, days=days, rule=rule, limit=limit, code=code, gone=gone)
    if as_json:
        print_json(rows)
        return
    if not rows:
        say(f"No such row is in the quarantine of {contract.id}.")
        return
    _print_rows(rows)
    broken = {name for row in rows for name in row["_failed_rules"].split(", ")}
    for each in contract.rules:
        if each.name in broken:
            say(f"{each.name}: {each.describes}")
    kept = quarantined_rows(settings.root, contract)
    such = sum(each.fits(wanted) and each.discarded == gone for each in kept)
    say(f"{counted(len(rows), 'row')} of {such:,} such in {contract.quarantine_id}. Personal data is never shown.")


def _print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    # A column without any value says nothing, unless that is what is wrong with it.
    columns = [c for c in rows[0] if any(row[c] is not None or c in str(row["_failed_rules"]) for row in rows)]
    out = console()
    if out.is_terminal and len(columns) > MOST_COLUMNS:
        for row in rows:
            out.print(table(("", ""), [(c, row[c]) for c in columns if row[c] is not None]), end="\n\n")
    else:
        out.print(table(columns, [[row[c] for c in columns] for row in rows]))


def depth(settings: Settings, contract: Table, days: Sequence[date] | None = None) -> Counter[tuple[date, str]]:
    """Rows in a table's quarantine by day and broken rule, without discarded ones; reads no row.

    Args:
        settings: where the lakehouse is.
        contract: the table's.
        days: only these; None: all.
    """
    found = [each for each in quarantined_rows(settings.root, contract, days) if not each.discarded]
    return Counter((each.day, rule) for each in found for rule in each.rules)


def offending(contract: Table, row: Mapping[str, Any]) -> str:
    """The values that a row's broken rules speak of, as far as the rules' names say."""
    named = [c for c in contract.columns if c in row and c in row[FAILED_RULES]]
    return ", ".join(f"{c}={'null' if row[c] is None else row[c]}" for c in named) or str(row.get("_error") or "")
