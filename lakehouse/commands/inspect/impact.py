"""`lakehouse impact`: what depends on a table, a column, a row rule or a landed field. Starts no engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from lakehouse.catalog import tables
from lakehouse.checks.audit import check_names
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, console, print_json, say, table
from lakehouse.contracts import Table
from lakehouse.contracts.lineage import Source
from lakehouse.errors import UnknownTableError, UsageError
from lakehouse.lineage.impact import Affected
from lakehouse.lineage.impact import impact as find
from lakehouse.texts import counted, near


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "impact",
        cls=Command,
        epilog=examples(
            "lakehouse impact silver.transactions.amount",
            "lakehouse impact silver.transactions",
            "lakehouse impact landing.events.email --json",
            "lakehouse impact silver.transactions.purchase_amount_positive",
        ),
    )(impact)


def impact(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="table, table.column, table.rule, or landing.source.field."),
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """List every column, rule, check and owner that depends on a table, column, rule or landed field, transitively.

    A rule decides which rows are published, so all columns of its table depend on it.
    """
    known = tables()
    asked, whole = _asked(name, known)
    found = find(known, asked)
    checks = {each: list(_checks(known[each], found, whole)) for each in dict.fromkeys(a.table for a in found)}
    if as_json:
        print_json(
            {
                "asked": name,
                "columns": [asdict(each) for each in found],
                "tables": [{"table": each, "owner": known[each].owner, "checks": checks[each]} for each in checks],
            }
        )
        return
    columns = ("column", "depends", "on", "rules", "checks", "owner")
    words = {"asked": "", "value": "by value", "groups": "by grouping"}
    rows = [
        (
            f"{each.table}.{each.column}", words[each.how], _via(each), ", ".join(each.rules), ", ".join(each.checks),
            each.owner,
        )
        for each in found
    ]  # fmt: skip
    console().print(table(columns, rows))
    owners = {known[each].owner for each in checks}
    say(
        f"{counted(len(found), 'column')} of {counted(len(checks), 'table')} ({', '.join(sorted(owners))}); "
        + "; ".join(f"{each} is checked by {', '.join(names)}" for each, names in checks.items() if names)
    )


def _of_table(contract: Table, part: str) -> tuple[set[Source], bool]:
    """What a column or rule of a table stands for."""
    if part in contract.columns:
        return {(contract.id, part)}, False
    rules = [each.name for each in contract.rules]
    if part in rules:
        return {(contract.id, column) for column in contract.columns}, True
    hint = near(part, [*contract.columns, *rules])
    raise UsageError(f"{contract.id} has no column or rule {part!r}.{hint} Columns: {', '.join(contract.columns)}.")


def _asked(name: str, known: Mapping[str, Table]) -> tuple[set[Source], bool]:
    """The columns that a name stands for, and whether it stands for whole rows."""
    owner, _, last = name.rpartition(".")
    if name in known:
        return {(name, column) for column in known[name].columns}, True
    if owner in known:
        return _of_table(known[owner], last)
    landed = {f"landing.{t.landing.source}": t.landing.columns for t in known.values() if t.landing is not None}
    if name in landed:
        return {(name, column) for column in landed[name]}, False
    if owner in landed:
        if last in landed[owner]:
            return {(owner, last)}, False
        raise UsageError(
            f"{owner} has no field {last!r}.{near(last, landed[owner])} Fields: {', '.join(landed[owner])}."
        )
    names = [*known, *landed]
    raise UnknownTableError(f"There is no {name!r}.{near(name, names)} Known: {', '.join(names)}, and their columns.")


def _checks(contract: Table, found: Sequence[Affected], whole: bool) -> dict[str, None]:
    """The checks that can change: all of a table whose rows do, else those that speak of its columns."""
    mine = [each for each in found if each.table == contract.id]
    regrouped = whole or any(each.how == "groups" for each in mine)
    named = list(check_names(contract)) if regrouped else []
    return dict.fromkeys([*named, *(check for each in mine for check in each.checks)])


def _via(each: Affected) -> str:
    return ", ".join(f"{source}.{column}" for source, column in each.via)
