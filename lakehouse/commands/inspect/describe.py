"""`lakehouse tables` and `describe`: what there is, and what it promises."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakehouse.catalog import get_table, tables
from lakehouse.checks.audit import check_names
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import (
    AsJson,
    console,
    print_json,
    table,
)
from lakehouse.contracts import Extract, Input, Landing, Table, Topic
from lakehouse.texts import counted

Name = Annotated[str, typer.Argument(metavar="TABLE", help="A table, such as silver.transactions.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("tables", cls=Command, epilog=examples("lakehouse tables", "lakehouse tables --json"))(tables_)
    app.command("describe", cls=Command, epilog=examples("lakehouse describe silver.transactions"))(describe)


def tables_(*, as_json: AsJson = False) -> None:
    """List the tables, inputs before what is computed from them."""
    found = [
        {
            "table": each.id,
            "layer": each.layer,
            "grain": each.grain,
            "key": list(each.key),
            "owner": each.owner,
            "inputs": [_input(source) for source in each.inputs.values()],
        }
        for each in tables().values()
    ]
    if as_json:
        print_json(found)
        return
    columns = ("table", "grain", "key", "owner", "inputs")
    rows = [[", ".join(v) if isinstance(v := each[c], list) else v for c in columns] for each in found]
    console().print(table(columns, rows))


def describe(name: Name, *, as_json: AsJson = False) -> None:
    """Show a table's contract: columns, row rules, checks and policy."""
    contract = get_table(name)
    facts: dict[str, Any] = {
        "table": contract.id,
        "description": contract.description,
        "columns": [
            {
                "name": f.name,
                "type": f.dataType.simpleString(),
                "nullable": f.name not in contract.required,
                "personal_data": f.name in contract.pii,
                "description": f.metadata.get("comment", ""),
            }
            for f in contract.schema.fields
        ],
        "rules": {rule.name: rule.describes for rule in contract.rules},
        "checks": check_names(contract),
        "policy": _policy(contract),
    }
    if as_json:
        print_json(facts)
        return
    out = console()
    out.print(facts["description"], markup=False)
    rows = [
        (
            c["name"],
            c["type"],
            "" if c["nullable"] else "never null",
            "personal" if c["personal_data"] else "",
            c["description"],
        )
        for c in facts["columns"]
    ]
    out.print(table(("column", "type", "nulls", "data", "meaning"), rows, title="\nColumns"))
    if contract.rules:
        out.print(table(("rule", "a row is quarantined unless"), facts["rules"].items(), title="\nRow rules"))
    out.print(table(("check", "what it says of a day"), facts["checks"].items(), title="\nChecks before publishing"))
    out.print(table(("policy", ""), [(k, _text(v)) for k, v in facts["policy"].items()], title="\nPolicy"))


def _input(source: Input | Landing | Extract | Topic) -> str:
    if isinstance(source, Input):
        sides = ((source.days_before, "before"), (source.days_after, "after"))
        beside = [f"{counted(days, 'day')} {side}" for days, side in sides if days]
        return source.table + (f" ({', '.join(beside)})" if beside else "")
    if isinstance(source, Extract):
        return f"table {source.relation} of {source.setting}, mode {source.mode}"
    if isinstance(source, Topic):
        return f"topic {', '.join(source.topics)} of {source.setting}"
    return f"landing/{source.source}"


def _policy(contract: Table) -> dict[str, Any]:
    volume = contract.quality.volume
    return {
        "owner": contract.owner,
        "grain": contract.grain,
        "key": list(contract.key),
        "partitioned by": list(contract.partition_by),
        "inputs": [_input(source) for source in contract.inputs.values()],
        "fresh within hours": contract.freshness.within.total_seconds() / 3600,
        "rows at least every days": contract.freshness.every.days,
        "most quarantined share of a day": contract.quarantine.max_share,
        "most nulls, share by column": dict(contract.quality.max_null_rate),
        "volume against history": f"{volume.min_ratio:g} to {volume.max_ratio:g} of the usual" if volume else None,
        "slices by": list(contract.layout.slice_by.columns) if contract.layout.slice_by else None,
        "personal data": list(contract.pii),
        "version of the columns": f"{contract.schema_version}, {contract.compatibility} compatible",
        "code version": contract.code_version,
    }


def _text(value: Any) -> str:
    match value:
        case list():
            return ", ".join(map(str, value)) or "none"
        case dict():
            return ", ".join(f"{k} {v}" for k, v in value.items()) or "none"
        case None:
            return "none"
    return str(value)
