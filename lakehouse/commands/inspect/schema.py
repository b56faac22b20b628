"""`lakehouse schema`: the versions of every table's columns, whether the contracts follow from them, and lineage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from lakehouse.catalog import declared, get_table
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, console, print_json, say, table
from lakehouse.contracts import Table
from lakehouse.contracts.derived import Derived, lineage_file, read_lineage, write_lineage
from lakehouse.contracts.lineage import lineage_mistakes, lost_sources
from lakehouse.contracts.mistakes import unless
from lakehouse.contracts.schema_versions import (
    Version,
    changes,
    lock_file,
    locked,
    problems,
    read_lock,
    unlocked,
    write_lock,
)
from lakehouse.errors import CHECKS_FAILED, ContractError, UsageError
from lakehouse.lineage.derive import derive, not_given
from lakehouse.settings import get_settings
from lakehouse.texts import counted, program

Name = Annotated[str, typer.Argument(metavar="TABLE", help="A table, such as silver.transactions.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    family = typer.Typer(
        no_args_is_help=True, help="Versions of the tables' columns, and what may change.", rich_markup_mode="rich"
    )
    family.command("check", cls=Command, epilog=examples("lakehouse schema check", "lakehouse schema check --json"))(
        check
    )
    family.command("lock", cls=Command, epilog=examples("lakehouse schema lock"))(lock)
    family.command(
        "history",
        cls=Command,
        epilog=examples("lakehouse schema history bronze.events", "lakehouse schema history silver.orders --json"),
    )(history)
    app.add_typer(family, name="schema")


def check(*, as_json: AsJson = False) -> None:
    """Compare every contract with its locked versions; ends with 1 where one does not follow from them."""
    found = _compared()
    told = [text for each in found for text in each["problems"]]
    if as_json:
        print_json(found)
    else:
        columns = ("table", "version", "locked", "compatibility")
        rows = [[*[each[c] for c in columns], "no" if each["problems"] else "yes"] for each in found]
        console().print(table((*columns, "as locked"), rows, right=("version", "locked")))
        for text in told or [f"{counted(len(found), 'contract')} as locked."]:
            say(text)
    if told:
        raise typer.Exit(CHECKS_FAILED)


def _compared() -> list[dict[str, Any]]:
    """Each contract beside its locked versions, and locked tables that are no more."""
    held, known = read_lock(), declared()
    wrong = {each.id: problems(each, held.get(each.id, ())) for each in known.values()}
    for text in unlocked(known.values(), held):
        name = text.partition(":")[0]
        if not wrong.get(name):  # what is incompatible cannot be locked
            wrong[name] = [text]
    lacking = _lacking(known)
    for each in known.values():
        wrong[each.id] = wrong[each.id] or [*lacking.get(each.id, ()), *_underived(each)]
    return [
        {
            "table": name,
            "version": known[name].schema_version if name in known else None,
            "locked": held[name][-1].number if held.get(name) else None,
            "compatibility": known[name].compatibility if name in known else None,
            "problems": texts,
        }
        for name, texts in wrong.items()
    ]


def _underived(each: Table) -> list[str]:
    """Whether the lineage that is kept is that of the code; what a database gives is derived from no code."""
    lost = lost_sources(each, declared())
    if each.taken is not None or (each.derived_now and not lost):
        return []
    told = "was derived from other code" if each.derived else "is not derived yet"
    if each.derived_now:
        told = f"names {', '.join(lost)}, which is no column any more"
    return [f"{each.id}: its lineage {told}. Run `lakehouse schema lock` and commit the file."]


def _lacking(known: Mapping[str, Table]) -> dict[str, list[str]]:
    """Where tables that take messages have columns that their transforms do not give."""
    found = {}
    for name, columns in not_given(known.values()).items():
        expected, got = "columns that the transform gives", f"{', '.join(columns)}, which it does not"
        do = f"Read it from the messages (columns= of Topic), or take it out of {known[name].model.__name__}."
        found[name] = [f"{name}: {each}" for each in unless(not columns, "model", expected, got, do)]
    return found


def _say_change(name: str, before: list[Version], after: list[Version]) -> None:
    if not after:
        say(f"{name} is no table any more and was taken out.")
    elif before != after:
        told = [str(each) for each in changes(before[-1].columns, after[-1].columns)] if before else []
        say(f"{name} version {after[-1].number}: {'; '.join(told) or counted(len(after[-1].columns), 'column')}")


def lock() -> None:
    """Write down new versions of the contracts and the lineage of new transforms, for the commit with the change."""
    held = read_lock()
    lineage = read_lineage(lineage_file(get_settings().tables))
    try:
        made = locked(declared().values(), held)
        derived = _derived(lineage)
    except ContractError as error:
        say(str(error))
        raise typer.Exit(CHECKS_FAILED) from None
    same = all(list(held.get(name, ())) == versions for name, versions in made.items()) and len(made) == len(held)
    if same and derived == lineage:
        say("Nothing to lock: every contract is as locked.")
        return
    for name in sorted({*made, *held}):
        _say_change(name, list(held.get(name, ())), made.get(name, []))
    for name, each in derived.items():
        if each != lineage.get(name):
            say(f"{name}: {_told(each)}")
    if not same:
        write_lock(made)
    write_lineage(derived, lineage_file(get_settings().tables))
    say(f"Commit {lock_file().name} and {lineage_file(get_settings().tables).name} together with the contracts.")


def _derived(held: Mapping[str, Derived]) -> dict[str, Derived]:
    """The lineage of all tables: derived anew where code has changed.

    Raises:
        ContractError: with whatever a table file declares that its transform does not say.
    """
    tables = {name: each for name, each in declared().items() if each.taken is None}
    lost = {name: lost_sources(each, declared()) for name, each in tables.items() if each.derived_now}
    made = {name: held[name] for name in lost if name in held and not lost[name]}
    made |= derive((each for name, each in tables.items() if name not in made), declared())
    # Of one and the same code, derived before and not now: Spark would not find the column either.
    broken = {name: texts for name, texts in lost.items() if texts and made[name].refused}
    wrong = [
        f"{name}: its transform reads {', '.join(texts)}, which is no column any more. Change {name}, too, or give the "
        "column back."
        for name, texts in broken.items()
    ]
    wrong += [
        f"{name}: {each}"
        for name in tables
        if name not in broken
        for each in lineage_mistakes(tables[name], declared(), made[name])
    ]
    wrong += [text for texts in _lacking(declared()).values() for text in texts]
    if wrong:
        raise ContractError("\n".join(["Nothing was locked.", *wrong]))
    return {name: made[name] for name in sorted(made)}


def _told(lineage: Derived) -> str:
    if lineage.refused:
        return f"lineage is as declared, else by name: it cannot be derived, since the transform has {lineage.refused}"
    return f"lineage of {counted(len(lineage.columns), 'column')} derived"


def history(name: Name, *, as_json: AsJson = False) -> None:
    """Show what changed in each version of a table's columns, newest first."""
    contract = get_table(name)
    versions = read_lock().get(contract.id, ())
    if not versions:
        raise UsageError(f"No version of {contract.id} is locked yet: {program()} schema lock")
    found: list[dict[str, Any]] = []
    for position, version in enumerate(versions):
        before = versions[position - 1].columns if position else None
        found.insert(
            0,
            {
                "version": version.number,
                "compatibility": version.compatibility,
                "changes": [] if before is None else [str(each) for each in changes(before, version.columns)],
                "columns": dict(version.columns),
            },
        )
    if as_json:
        print_json(found)
        return
    rows = [
        (each["version"], each["compatibility"], "; ".join(each["changes"]) or counted(len(each["columns"]), "column"))
        for each in found
    ]
    console().print(table(("version", "compatibility", "changed"), rows, right=("version",)))
