"""`lakehouse explain-row`: where a row comes from, down to the landed file and line, proven by computing it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any

import typer
from pyspark.sql import types as T
from rich.text import Text
from rich.tree import Tree

from lakehouse.build.plan import neighbours
from lakehouse.catalog import get_table, lake_with_engine, tables
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, console, engine_output_aside, iso, print_json, table
from lakehouse.commands.inspect.report import write_page
from lakehouse.contracts import Table
from lakehouse.contracts.lineage import sources
from lakehouse.errors import CHECKS_FAILED, OK, UsageError
from lakehouse.lineage.provenance import Step, Tracer
from lakehouse.quarantine.aside import HIDDEN, shown_row
from lakehouse.read.lake import table_path
from lakehouse.read.rows import column_names, matching_rows
from lakehouse.read.targets import quarantine_schema
from lakehouse.records.day_record import DayRecord
from lakehouse.settings import Settings, get_settings
from lakehouse.texts import counted, days_text, maker_text, near, program

MOST_MATCHES = 20


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "explain-row",
        cls=Command,
        epilog=examples(
            "lakehouse explain-row gold.user_features user_id=17841 feature_date=2011-08-31",
            "lakehouse explain-row silver.orders order_id=536365 --json",
            "lakehouse explain-row silver.transactions_quarantine _source_row=17 event_date=2011-03-04",
        ),
    )(explain_row)


def explain_row(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="A table, or its quarantine: silver.orders_quarantine.")],
    filters: Annotated[
        list[str], typer.Argument(metavar="COLUMN=VALUE", help="Which row; its key's columns are enough.")
    ],
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most rows shown of each table; --json has all.")] = 5,
    *,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the way of the row as a page, too.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what published a row and which rows, files and lines it is made of, and prove it by computing it again.

    Ends with 1 where the row does not come out the same. Personal data is never shown.
    """
    settings, contract = get_settings(), get_table(name.removesuffix("_quarantine"))
    quarantined = name.endswith("_quarantine")
    row = _the_row(settings, contract, quarantined, filters)
    with engine_output_aside(settings):
        lake = lake_with_engine(settings)
        step = Tracer(lake).trace(contract, [row], quarantined=quarantined)
    if html is not None:
        from lakehouse.report.explained import render_explained

        write_page(html, render_explained(as_data(step)))
    if as_json:
        print_json(as_data(step))
    else:
        console().print(_tree(step, None, limit))
    raise typer.Exit(OK if _proven(step) else CHECKS_FAILED)


def _proven(step: Step) -> bool:
    return not step.differences and all(_proven(each) for each in step.inputs)


def _the_row(settings: Settings, contract: Table, quarantined: bool, filters: Sequence[str]) -> Mapping[str, Any]:
    """The one row that the filters name."""
    name = contract.quarantine_id if quarantined else contract.id
    path = table_path(settings.root, name)
    columns = column_names(path)
    if not columns:
        raise UsageError(
            f"{name} was never built in {settings.root}. Build it: {program()} backfill --select '+{contract.id}' "
            "--from DAY --to DAY"
        )
    wanted = _wanted(contract, name, columns, filters)
    day = wanted.get(contract.day_column)
    # One more than are shown, which tells whether there are more.
    found = matching_rows(path, wanted, [day] if day else None, MOST_MATCHES + 1)
    # What is personal is not repeated: errors end up in logs.
    asked = " ".join(f"{c}=…" if c in contract.pii else each for c, each in zip(wanted, filters, strict=False))
    if not found:
        hint = _elsewhere(settings, contract, wanted, asked) if contract.rules and not quarantined else ""
        look = f' Look at its rows: {program()} sql "select * from {name} limit 5"'  # noqa: S608 - a text for people
        raise UsageError(f"{name} has no row with {asked}.{hint or look}")
    if len(found) > 1:
        number, more = _several(contract, found, wanted)
        raise UsageError(f"{number} rows of {name} have {asked}. Which one? Add columns of these: {more}.")
    return found[0]


def _several(contract: Table, found: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any]) -> tuple[str, str]:
    """Show the rows; returns how many there are, and the columns that would tell them apart."""
    number = f"more than {MOST_MATCHES}" if len(found) > MOST_MATCHES else str(len(found))
    return number, ", ".join(c for c in _print_matches(contract, found) if c not in wanted)


def _print_matches(contract: Table, found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Show what tells rows apart; returns those columns, personal ones included, whose values are not shown."""
    naming = [c for c in (*contract.key, *contract.partition_by, "_source_file", "_source_row") if c in found[0]]
    shown = [c for c in dict.fromkeys(naming) if c not in contract.pii]
    console().print(table(shown, [[row[c] for c in shown] for row in found[:MOST_MATCHES]]))
    return list(dict.fromkeys(naming))


def _elsewhere(settings: Settings, contract: Table, wanted: Mapping[str, Any], asked: str) -> str:
    """Where a row is that is not published: in quarantine, or on the day of its key's first row; empty if nowhere."""
    day = wanted.get(contract.day_column)
    side = table_path(settings.root, contract.quarantine_id)
    # A quarantine keeps rows as they came: a column that the transform makes may not be there.
    if set(wanted) <= set(column_names(side)) and matching_rows(side, wanted, [day] if day else None, 1):
        return f" It is in quarantine: {program()} explain-row {contract.quarantine_id} {asked}"
    return _first_of_its_key(contract, settings, wanted) if day and set(contract.key) <= set(wanted) else ""


def _first_of_its_key(contract: Table, settings: Settings, wanted: Mapping[str, Any]) -> str:
    """Where a row's key is on a day beside its own, a row there came first: how to see that row."""
    near = neighbours(contract, wanted[contract.day_column])
    key = {name: wanted[name] for name in contract.key}
    for name in (contract.id, contract.quarantine_id) if near else ():
        path = table_path(settings.root, name)
        if set(key) <= set(column_names(path)) and (found := matching_rows(path, key, near, 1)):
            day = found[0][contract.day_column]
            asked = " ".join(f"{c}=…" if c in contract.pii else f"{c}={value}" for c, value in key.items())
            return (
                f" A row of {day} has its key and came first, so it was left out as a repeat: {program()} explain-row "
                f"{name} {asked} {contract.day_column}={day}"
            )
    return ""


def _wanted(contract: Table, name: str, columns: Sequence[str], filters: Sequence[str]) -> dict[str, Any]:
    types = {f.name: f.dataType for f in quarantine_schema(contract).fields}
    wanted: dict[str, Any] = {}
    for each in filters:
        column, equals, text = each.partition("=")
        if not equals:
            raise UsageError(f"{each!r} is no filter; expected COLUMN=VALUE, such as {columns[0]}=…")
        if column not in columns or column not in types:
            raise UsageError(f"{name} has no column {column!r}.{near(column, columns)} Columns: {', '.join(columns)}.")
        if column in HIDDEN:
            raise UsageError(f"{name}.{column} is never shown and no filter; choose the row by another column.")
        wanted[column] = _value(column, text, types[column])
    return wanted


def _value(column: str, text: str, kind: T.DataType) -> Any:
    """A filter's text as a value of its column; empty text is null."""
    name = kind.typeName()
    # What reads the text of a column's type, and an example of it.
    known: dict[str, tuple[Callable[[str], Any], str]] = {
        "string": (str, "text"),
        "date": (date.fromisoformat, "2026-03-01"),
        "timestamp": (_moment, "2026-03-01T12:30:00"),
        "decimal": (Decimal, "12.50"),
        "long": (int, "12"),
        "integer": (int, "12"),
        "short": (int, "12"),
        "byte": (int, "12"),
        "double": (float, "12.5"),
        "boolean": (_truth, "true"),
    }
    if name not in known:
        raise UsageError(f"{column} is {name}: rows cannot be chosen by it. Choose by another column.")
    if not text:
        return None
    parse, example = known[name]
    try:
        return parse(text)
    except (ValueError, KeyError, InvalidOperation):
        raise UsageError(f"{column} is {name}; got {text!r}. Write it like {example}.") from None


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def as_data(step: Step) -> dict[str, Any]:
    """A step and what it is made of for JSON, with all rows and no personal data."""
    return {
        "table": step.name,
        "version": step.version,
        "rows": [shown(step, row) for row in step.rows],
        "count": len(step.rows),
        "places": step.places,
        "repeats_left_out": step.repeats,
        "commits": [_commit(record, step.table) for record in _distinct(step)],
        "recomputed": None if step.differences is None else "differs" if step.differences else "equal",
        "differences": step.differences or [],
        "notes": step.notes,
        "made_of": [as_data(each) for each in step.inputs],
    }


def shown(step: Step, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without personal data."""
    return shown_row(row, step.table.pii)


def _distinct(step: Step) -> list[DayRecord]:
    found = {each.version: each for each in sorted(step.commits.values(), key=lambda record: record.day)}
    return [found[version] for version in sorted(found)]


def _commit(record: DayRecord, contract: Table) -> dict[str, Any]:
    return {
        "version": record.version,
        "time": record.at,
        "operation": record.operation,
        "run_id": record.run_id,
        "code_version": record.code_version,
        "current_code": record.code_version == contract.code_version,
        "inputs": dict(record.inputs),
    }


def _tree(step: Step, above: Step | None, limit: int) -> Tree:
    made = _of_the_row(step) if above is None else _of_its_inputs(step, above, limit)
    for record in _distinct(step):
        made.add(Text(_commit_text(step, record), style="cyan"))
    if step.repeats:
        places = ", ".join(step.repeats[:limit]) + (", …" if len(step.repeats) > limit else "")
        made.add(Text(f"{counted(len(step.repeats), 'repeat')} left out: {places}"))
    for note in step.notes:
        made.add(Text(note, style="yellow"))
    made.add(_verdict(step, limit))
    for each in step.inputs:
        made.children.append(_tree(each, step, limit))
    return made


def _of_the_row(step: Step) -> Tree:
    """The row that is explained, and why it is in quarantine if it is."""
    made = Tree(Text(step.name, style="bold"), guide_style="dim")
    made.add(Text(_cells(shown(step, step.rows[0]))))
    broken = step.rows[0].get("_failed_rules") or ()
    for rule in (each for each in step.table.rules if each.name in broken):
        made.add(Text(f"in quarantine since it breaks {rule.name}: {rule.describes}", style="red"))
    return made


def _of_its_inputs(step: Step, above: Step, limit: int) -> Tree:
    """The rows of an input that the row above was made from, the first of them with the file and line of each."""
    made = Tree(Text(f"from {counted(len(step.rows), 'row')} of {step.name} at version {step.version}", style="bold"))
    columns = _told(step, above)
    for number, row in enumerate(step.rows[:limit]):
        at = f"{step.places[number]}  " if step.table.landing is not None else ""
        origin = f"  ← {step.places[number]}" if step.places and not at else ""
        made.add(Text(at + _cells({c: row[c] for c in columns}) + origin))
    if len(step.rows) > limit:
        made.add(Text(f"… {len(step.rows) - limit:,} more", style="dim"))
    return made


def _commit_text(step: Step, record: DayRecord) -> str:
    days = [day for day, each in step.commits.items() if each.version == record.version]
    is_current = record.code_version == step.table.code_version
    made = maker_text(record.run_id, record.code_version, is_current=is_current)
    verb = "published" if record.operation == "publish" else f"published by {record.operation}"
    where = f"version {record.version} at {iso(record.at.replace(microsecond=0))}"
    return f"{verb} as {where}{made}: {days_text(days)}"


def _verdict(step: Step, limit: int) -> Text:
    source = "the landed lines" if step.table.landing is not None else "these rows alone"
    if step.differences is None and step.table.taken is not None:
        return Text("kept as it was taken, which is not read again", style="dim")
    if step.differences is None:
        return Text("not computed again: its landed file is gone", style="yellow")
    if not step.differences:
        return Text(f"computed again from {source}: equal", style="green")
    more = f"; … {len(step.differences) - limit} more" if len(step.differences) > limit else ""
    told = "; ".join(step.differences[:limit]) + more
    return Text(f"computed again from {source}: DIFFERS. {told}", style="bold red")


def _told(step: Step, above: Step) -> list[str]:
    """The columns of an input row that say most about the row above: its key, and what that was computed from."""
    read = {
        column for pairs in sources(above.table, tables()).values() for name, column in pairs if name == step.table.id
    }
    hidden = {*step.table.pii, *HIDDEN}
    named = [c for c in step.table.columns if c in step.table.key or c in read]
    return [c for c in named if c not in hidden and any(row.get(c) is not None for row in step.rows)]


def _cells(row: Mapping[str, Any]) -> str:
    def text(value: Any) -> str:
        if isinstance(value, datetime):
            return iso(value)
        if isinstance(value, list):
            return ",".join(map(text, value))
        return "null" if value is None else str(value)

    return " ".join(f"{name}={text(value)}" for name, value in row.items())
