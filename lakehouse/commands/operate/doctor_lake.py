"""What `lakehouse doctor` looks at in the lake itself: its folders, its files, and what is written beside its code.

What takes packages is imported late: one may be missing, and doctor is to say so.
"""

from __future__ import annotations

from lakehouse import store
from lakehouse.commands.operate.doctor_remote import ProblemError
from lakehouse.errors import LakehouseError
from lakehouse.settings import LAYERS, Settings
from lakehouse.texts import counted

MANY_SMALL_FILES = 10_000  # more than a night or two of upkeep leave behind
_CANDIDATE = "__candidate"  # in the names of folders beside a table's


def known_tables(settings: Settings) -> str:
    """Whether every table under the root has a file: what was renamed or removed keeps its rows, people's included.

    Args:
        settings: where the lakehouse is.

    Raises:
        ProblemError: a folder is of no table, or is the quarantine of one that has no rules any more.
    """
    from lakehouse.catalog import declared

    known = {name for each in declared().values() for name in (each.id, *([each.quarantine_id] if each.rules else []))}
    found = [(f"{layer}.{name}", store.names(settings.root / "tables" / layer / name)) for layer in LAYERS
             for name in store.names(settings.root / "tables" / layer)]  # fmt: skip
    tables = [name for name, inside in found if "_delta_log" in inside]
    if strange := [name for name in tables if name.partition(_CANDIDATE)[0] not in known]:
        raise ProblemError(
            f"{counted(len(strange), 'folder')} of no table: {', '.join(strange)}",
            "No command but forget looks after them. Give the table its file back, or remove what nobody needs from "
            f"{settings.root / 'tables'}.",
        )
    return f"{counted(len(tables), 'folder')}, each of a table"


def tidiness(settings: Settings, *, many: int = MANY_SMALL_FILES) -> str:
    """Small files and log entries of every table that was built, in words.

    Args:
        settings: where the lakehouse is.
        many: small files that the tables may have together.

    Raises:
        ProblemError: there are more, or a log cannot be read.
    """
    from lakehouse.catalog import tables
    from lakehouse.versions.upkeep import layouts, untidy

    try:
        found = {name: untidy(each.path) for name, each in layouts(settings.root, tables().values(), ops=True).items()}
    except LakehouseError as error:
        raise ProblemError(str(error), "Fix that table first.") from None
    waiting = {name: each.small for name, each in found.items() if each.partitions}
    if sum(waiting.values()) > many:
        listed = ", ".join(f"{name} {number}" for name, number in sorted(waiting.items()))
        raise ProblemError(
            f"small files to merge: {listed}", "The job upkeep merges them at night; now: lakehouse compact"
        )
    entries = max((each.entries for each in found.values()), default=0)
    return f"{sum(each.files for each in found.values())} files, at most {entries} log entries to sum up in a table"


def landed_files(settings: Settings) -> str:
    """Whether every landed file is one that a table reads: a name that no pattern fits is passed over by every run."""
    from lakehouse.catalog import landings
    from lakehouse.commands.summary import files_never_read, what_to_do_with_strays
    from lakehouse.sources.landing import never_read

    if strays := never_read(settings.root, landings().values()):
        raise ProblemError(files_never_read(strays), what_to_do_with_strays(settings))
    return "every file is read by a table"


def lineage() -> str:
    """Whether the lineage that pages show is of the present transforms."""
    from lakehouse.catalog import declared

    try:
        found = {name: each for name, each in declared().items() if each.taken is None}
        old = [name for name, each in found.items() if not each.derived_now]
        refused = [name for name, each in found.items() if each.derived and each.derived.refused]
    except LakehouseError as error:
        raise ProblemError(str(error), "Fix that file first.") from None
    if old:
        raise ProblemError(f"of other code: {', '.join(old)}", "Derive it from the present code: lakehouse schema lock")
    declared_only = f", as declared for {', '.join(refused)}" if refused else ""
    return f"derived for {len(found) - len(refused)} of {len(found)} tables{declared_only}"
