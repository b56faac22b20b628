"""Which quarantined rows a command is about: the arguments that `lakehouse quarantine …` commands share."""

from __future__ import annotations

from datetime import date
from typing import Annotated

import typer

from lakehouse.catalog import get_table, tables
from lakehouse.commands.console import parse_day
from lakehouse.contracts import Table
from lakehouse.errors import UsageError
from lakehouse.records.ledger import Wanted
from lakehouse.records.quarantined import quarantined_rows
from lakehouse.settings import get_settings
from lakehouse.texts import near

TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="The table whose quarantine it is about.")]
DayOption = Annotated[
    date | None, typer.Option("--day", parser=parse_day, metavar="DAY", help="Only this day, YYYY-MM-DD.")
]
RuleOption = Annotated[str | None, typer.Option("--rule", metavar="RULE", help="Only rows that broke this rule.")]
CodeOption = Annotated[
    str | None,
    typer.Option("--code-version", metavar="CODE", help="Only rows judged last by this code version of the table."),
]


def chosen_table(name: str) -> Table:
    """The table of that name, or whose quarantine has that name.

    Raises:
        UsageError: where it has no row rules.
        UnknownTableError: with the nearest names.
    """
    contract = get_table(name.removesuffix("_quarantine"))
    if not contract.rules:
        raise UsageError(f"{contract.id} has no row rules, so it has no quarantine.")
    return contract


def wanted_rows(contract: Table | None, rule: str | None, day: date | None, code: str | None) -> Wanted:
    """The rows asked for; a rule is looked for in the table's own, or in those of all tables.

    A rule that the contract had once may still have rows in quarantine, so it is accepted where there are such rows.

    Args:
        contract: of the one table that is meant; None: all tables.
        rule: only rows that break it; None: any.
        day: only rows of this daily partition; None: any.
        code: only rows that code of this version judged last; None: any.

    Raises:
        UsageError: for a rule that no such table has.
    """
    if rule is not None:
        looked_at = [contract] if contract else list(tables().values())
        known = {each.name: None for table in looked_at for each in table.rules}
        root = get_settings().root
        if rule not in known and not any(
            rule in each.rules for table in looked_at for each in quarantined_rows(root, table)
        ):
            text = f"{contract.id} has no rule {rule!r}" if contract else f"No table has a rule {rule!r}"
            raise UsageError(f"{text}.{near(rule, known)} Rules: {', '.join(known)}.")
    return Wanted(rule, day, code)
