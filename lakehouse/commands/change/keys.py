"""`lakehouse keys`: the keys that tokenise personal data: which there are, which rows carry their tokens, rotation."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import pyarrow.compute as pc
import typer

from lakehouse.catalog import tables
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, console, print_json, say, table
from lakehouse.errors import UsageError
from lakehouse.read.lake import table_path
from lakehouse.read.rows import files_of
from lakehouse.settings import Settings, get_settings, key_id
from lakehouse.texts import counted

NO_KEY = "none"  # tokens of before keys had ids


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    family = typer.Typer(
        no_args_is_help=True, help="Keys that tokenise personal data; never shown.", rich_markup_mode="rich"
    )
    family.command("list", cls=Command, epilog=examples("lakehouse keys list", "lakehouse keys list --json"))(list_)
    family.command("rotate", cls=Command, epilog=examples("lakehouse keys rotate", "lakehouse backfill --stale"))(
        rotate
    )
    family.command("drop", cls=Command, epilog=examples("lakehouse keys drop 3f9a1c2e"))(drop)
    app.add_typer(family, name="keys")


def list_(*, as_json: AsJson = False) -> None:
    """List the keys by id, and how many published rows carry a token of each."""
    settings = get_settings()
    found = _keys(settings)
    if as_json:
        print_json(found)
        return
    if not found:
        say("There is no key yet: the first run that tokenises makes one.")
        return
    columns = ("key", "state", "kept in", "rows")
    console().print(table(columns, [[each[c] for c in columns] for each in found], right=("rows",)))
    if sum(1 for each in found if each["rows"]) > 1:
        say("Tokens of different keys do not join. `lakehouse backfill --stale` tokenises with the present key.")


def rotate() -> None:
    """Make a new key; the old one is kept until `lakehouse keys drop`.

    Every day of the tables that hold tokens, and what depends on them, is then stale: `lakehouse backfill --stale`
    reads their landed files again. Until it is through, rows of two keys stand side by side.
    """
    settings = get_settings()
    old = key_id(settings.pii_key_bytes())
    new = settings.rotate_pii_key()
    say(f"New tokens carry the key {new}; {old} is kept. Next: lakehouse backfill --stale, then keys drop {old}.")


def drop(name: Annotated[str, typer.Argument(metavar="KEY", help="Id of an old key.")]) -> None:
    """Remove an old key that no published row needs any more: the end of the rotation."""
    settings = get_settings()
    found = {each["key"]: each for each in _keys(settings)}
    if name not in found or name == NO_KEY:
        raise UsageError(f"There is no key {name!r}. Keys: {', '.join(found) or 'none yet'}.")
    each = found[name]
    if each["state"] == "present":
        raise UsageError(f"{name} is the present key. `lakehouse keys rotate` makes another one first.")
    if each["rows"]:
        raise UsageError(
            f"{counted(each['rows'], 'row')} carry tokens of {name}. `lakehouse backfill --stale` tokenises them "
            "anew; days whose landed files are gone cannot be, and need the key for `lakehouse forget --email`."
        )
    path = settings.pii_key_file.with_name(f"pii-{name}.key")
    if not path.exists():
        raise UsageError(f"{name} comes from LAKEHOUSE_PII_OLD_KEYS. Take it out there.")
    path.unlink()
    say(f"{name} is gone.")


def _keys(settings: Settings) -> list[dict[str, Any]]:
    rows = tokens_by_key(settings)
    kept: dict[str, str] = {}
    present = key_id(settings.pii_key_bytes()) if settings.has_pii_key else ""
    if present:
        kept[present] = "LAKEHOUSE_PII_KEY" if settings.pii_key is not None else settings.pii_key_file.name
    for name in settings.pii_old_keys_bytes():
        aside = settings.pii_key_file.with_name(f"pii-{name}.key")
        kept[name] = aside.name if aside.exists() else "LAKEHOUSE_PII_OLD_KEYS"
    unknown = {name: "nowhere" for name in rows if name not in kept}
    return [
        {
            "key": name,
            "state": "present" if name == present else "old" if name in kept else "unknown",
            "kept in": where,
            "rows": rows.get(name, 0),
        }
        for name, where in {**kept, **unknown}.items()
    ]


def tokens_by_key(settings: Settings) -> Counter[str]:
    """Published and quarantined rows by the key of their token; reads the token columns."""
    counted_rows: Counter[str] = Counter()
    for contract in tables().values():
        for name in (contract.id, contract.quarantine_id) if contract.privacy.tokens else ():
            for rows in files_of(table_path(settings.root, name), contract.privacy.tokens):
                for column in rows.columns:
                    if column.null_count == len(column):
                        continue
                    ids = pc.replace_substring_regex(column.drop_null(), "^(?:([0-9a-f]{8}):)?.*$", r"\1")
                    for pair in pc.value_counts(ids).to_pylist():
                        counted_rows[pair["values"] or NO_KEY] += pair["counts"]
    return counted_rows
