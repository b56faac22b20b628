"""Who was forgotten: the ledger `ops.erasures`, which knows people only as HMACs, and files they come back in.

The key of these HMACs is kept beside the others under the root and is never rotated: nobody could compute them anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from lakehouse.contracts import Table
from lakehouse.delta.opening import open_snapshot
from lakehouse.errors import SettingsError
from lakehouse.lazy import T
from lakehouse.read.lake import table_path
from lakehouse.records.ops import add_rows, ops_target, rows_about
from lakehouse.settings import Settings
from lakehouse.sources.landing import LandingFile, content_of, rewrite
from lakehouse.sources.people import Person, person_hmac
from lakehouse.sources.people_in_lines import Lines
from lakehouse.store import parquet
from lakehouse.users import operator

ERASURES = "ops.erasures"
BEGUN, DONE = "begun", "done"


@lru_cache(maxsize=1)
def schema() -> T.StructType:
    """The columns of the ledger."""
    return T.StructType(
        [
            T.StructField("day", T.DateType(), metadata={"comment": "UTC date of the entry"}),
            T.StructField(
                "id", T.StringType(), metadata={"comment": "Of the erasure; it has a begun and a done entry"}
            ),
            T.StructField("at", T.TimestampType()),
            T.StructField("who", T.StringType(), metadata={"comment": "User of the operating system"}),
            T.StructField("state", T.StringType(), metadata={"comment": "begun, or done: the scan found nothing"}),
            T.StructField("people", T.ArrayType(T.StringType()), metadata={"comment": "HMACs of the id and addresses"}),
            T.StructField("counts", T.MapType(T.StringType(), T.LongType())),
        ]
    )


@dataclass(frozen=True)
class Erasure:
    """One entry of the ledger."""

    id: str
    state: str
    people: tuple[str, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    who: str = ""
    at: datetime | None = None


def hmac_key(settings: Settings) -> bytes:
    """The key of the HMACs of forgotten people.

    Raises:
        SettingsError: it is somebody else's to read; without it, a build would bring those people back.
    """
    # A key of its own, which is never rotated: who was forgotten under an old key must be known under all.
    path = settings.pii_key_file.with_name("forgotten.key")
    try:
        return settings.kept_key(path)
    except PermissionError as error:
        raise SettingsError(
            f"{path} is not yours to read. People were forgotten here, and only with it are they left out of what is "
            f"built. Its owner lets the group read it: chmod g+x {path.parent} && chmod g+r {path}"
        ) from error


def erasures(root: Path) -> list[Erasure]:
    """The whole ledger, oldest first."""
    made = [
        Erasure(row["id"], row["state"], tuple(row["people"]), dict(row["counts"] or ()), row["who"], row["at"])
        for row in rows_about(open_snapshot(table_path(root, ERASURES)))
    ]
    return sorted(made, key=lambda each: (str(each.at), each.state))


def note(root: Path, entry: Erasure) -> None:
    """Append an entry; the same one twice is one."""
    at = datetime.now(UTC)
    # The transaction is the state of this erasure: a repeat after a kill writes no second entry.
    row = {
        "id": entry.id,
        "at": at,
        "who": operator(),
        "state": entry.state,
        "people": list(entry.people),
        "counts": list(entry.counts.items()),
    }
    target = ops_target(root, ERASURES, schema(), "Who was forgotten, by HMAC")
    add_rows(target, str(at.date()), [row], {f"{entry.state}/{entry.id}": 1})


def forgotten(root: Path) -> frozenset[str]:
    """The HMACs of everybody who was forgotten, or whose erasure has begun."""
    return frozenset(each_hmac for each in erasures(root) for each_hmac in each.people)


def forgotten_in(settings: Settings, table: Table, files: Iterable[Path]) -> dict[str, set[str]]:
    """Ids of forgotten people, and tokens of their addresses, in staged files, by column of the table.

    Args:
        settings: where the ledger and the key of its HMACs are.
        table: the contract; its `person` says where ids are, its `tokens` where tokens are.
        files: paths of staged files.
    """
    hmacs, columns = forgotten(settings.root), (*table.privacy.person, *table.privacy.tokens)
    if not hmacs or not columns:
        return {}
    key, found = hmac_key(settings), {column: set[str]() for column in columns}
    for path in files:
        read = parquet.read(path, list(found))
        for column, ids in found.items():
            texts = {text for text in read[column].to_pylist() if text is not None}
            ids |= {text for text in texts if person_hmac("user", text, key) in hmacs}
    return found


def take_out_forgotten(settings: Settings, table: Table, files: Iterable[LandingFile]) -> int:
    """Take forgotten people out of landed files before they are read; returns how many files that changed.

    Files may be put into the landing zone by anything, so this is where they are read, not where they are landed.

    Args:
        settings: where the ledger and the key of its HMACs are.
        table: the contract; nothing happens to one that no files land for.
        files: landed files of its source.

    Raises:
        SourceError: a file was landed again meanwhile.
    """
    hmacs = forgotten(settings.root)
    if not hmacs or table.landing is None:
        return 0
    key, lines = hmac_key(settings), Lines(table.landing, table.privacy.person)
    changed = 0
    for file in files:
        content = content_of(file.path)
        if content is None:
            continue
        left = content  # one person after the other: lines may name several
        for kind, text in lines.people(content):
            if person_hmac(kind, text, key) in hmacs:
                person = Person(text) if kind == "user" else Person(None, frozenset({text}))
                left, _, _ = lines.without(left, person)
        if left != content:
            rewrite(file, left)
            changed += 1
    return changed
