"""A Delta table's columns follow its contract: new nullable ones are added, every other difference is refused by name.

Files that were written before know nothing of a new column, and every reader takes it for null there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from deltalake import CommitProperties, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError

from lakehouse import store
from lakehouse.delta.attempts import PATIENCE, tries
from lakehouse.delta.log_writer import fsync_entries
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import Snapshot, fresh_snapshot, table_name
from lakehouse.errors import PublishConflictError, SchemaMismatchError
from lakehouse.lazy import T

_ANEW = (
    "Only new columns that may be null are added to a table that has data. Undo the change of the contract (or run the "
    "newer code, if this one is older than the table), or build the table anew: by a candidate, which keeps its "
    "history, where docs/how-to/change-columns.md says so; else move its {folders} away, or give the changed table a "
    "new name, and backfill it."
)


def evolve(
    path: Path, schema: T.StructType, partition_by: tuple[str, ...], required: Collection[str], snapshot: Snapshot
) -> Snapshot:
    """The table's snapshot, after adding the contract's new columns in a commit of their own, where there are any.

    One commit adds all of them, so a crash leaves the table as it was or wider by columns of nulls. Of two runs that
    do it at once, the second finds it done.

    Args:
        path: folder of the table.
        schema: the contract's columns.
        partition_by: the contract's partition columns.
        required: columns that are never null.
        snapshot: the table as it is.

    Raises:
        SchemaMismatchError: for a column that is gone, has another type, or must not be null where rows have none.
        PublishConflictError: where other writers won every attempt.
    """
    for number in tries(PATIENCE):
        if number > 1:
            snapshot = open_snapshot(path)
        # At each try: another run may have added the columns, or an older program may be at work on the table.
        missing = new_columns(path, schema, partition_by, snapshot)
        _refuse_nulls(path, missing, required, snapshot)
        if not missing:
            return snapshot
        failed: Exception | None = None
        try:
            _add(path, snapshot.version, schema, missing)
        except (CommitFailedError, DeltaError, OSError) as error:
            failed = error  # or its answer was lost: only the log can tell
        began, snapshot = snapshot.version, open_snapshot(path)
        fsync_entries(path, range(began + 1, snapshot.version + 1))
        if not new_columns(path, schema, partition_by, snapshot):
            return snapshot
        # Nobody else committed and still it was refused: it was no race, so trying again would not help.
        if failed is not None and (snapshot.version == began or not isinstance(failed, CommitFailedError)):
            raise failed
    raise PublishConflictError(
        f"{table_name(path)}: other runs committed during each attempt to add columns ({', '.join(missing)}), for "
        f"{PATIENCE:g} s. Run it again."
    )


def _add(path: Path, version: int, schema: T.StructType, names: Collection[str]) -> None:
    """One commit on a version, without tries of delta-rs's own: whoever comes between is looked at first."""
    # Delta-rs adds columns to the version it has opened, so it must be the one that was looked at.
    own = fresh_snapshot(path, version).delta
    assert own is not None
    own.alter.add_columns(
        [each for each in Schema.from_json(schema.json()).fields if each.name in names],
        commit_properties=CommitProperties(
            custom_metadata={"lakehouse.columns_added": ", ".join(names)}, max_commit_retries=0
        ),
        post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False),
    )


def same_columns(path: Path, schema: T.StructType, partition_by: tuple[str, ...], snapshot: Snapshot) -> None:
    """Refuse a table whose columns are not exactly the contract's, in whatever order.

    Args:
        path: folder of the table, for the message.
        schema: the contract's columns.
        partition_by: the contract's partition columns, in their order.
        snapshot: the table.

    Raises:
        SchemaMismatchError: with the columns that differ.
    """
    if missing := new_columns(path, schema, partition_by, snapshot):
        raise SchemaMismatchError(_text(path, [f"{name} is not in the table" for name in missing]))


def same_types(path: Path, schema: T.StructType, snapshot: Snapshot) -> None:
    """Refuse to read a table in which a column of the contract has another type; it may lack or have further ones.

    Args:
        path: folder of the table, for the message.
        schema: the contract's columns.
        snapshot: the table.

    Raises:
        SchemaMismatchError: with the columns and both types.
    """
    assert snapshot.schema is not None
    if wrong := _retyped(_types(snapshot.schema), _types(Schema.from_json(schema.json()))):
        raise SchemaMismatchError(_text(path, wrong))


def new_columns(path: Path, schema: T.StructType, partition_by: tuple[str, ...], snapshot: Snapshot) -> list[str]:
    """The contract's columns that the table lacks.

    Args:
        path: folder of the table, for the message.
        schema: the contract's columns.
        partition_by: the contract's partition columns, in their order.
        snapshot: the table.

    Raises:
        SchemaMismatchError: with every other difference.
    """
    assert snapshot.schema is not None
    stored, wanted = _types(snapshot.schema), _types(Schema.from_json(schema.json()))
    wrong = _retyped(stored, wanted)
    wrong += [f"{name} is in the table and not in the contract" for name in stored if name not in wanted]
    if snapshot.partition_by != partition_by:
        wrong.append(
            f"the partition columns are {', '.join(snapshot.partition_by) or 'none'} in the table and "
            f"{', '.join(partition_by) or 'none'} in the contract"
        )
    if wrong:
        raise SchemaMismatchError(_text(path, wrong))
    return [name for name in wanted if name not in stored]


def stored_schema(snapshot: Snapshot) -> T.StructType:
    """The columns of a table as its log has them."""
    return T.StructType.fromJson(json.loads(snapshot.schema.to_json())) if snapshot.schema else T.StructType()


def _refuse_nulls(path: Path, missing: Collection[str], required: Collection[str], snapshot: Snapshot) -> None:
    """A column that must not be null cannot be promised over rows that have none, as far as the log tells."""
    rows = snapshot.live.rows
    wrong = [f"{n} is new and never null, but {rows} rows are without it" for n in missing if n in required and rows]
    # A null that the log has ever seen may have gone since: the files of now decide.
    likely = sorted((set(required) - set(missing)) & snapshot.null_columns)
    nulls = {name: sum(each or 0 for each in snapshot.nulls(name).values()) for name in likely}
    wrong += [
        f"{name} is never null in the contract, but null in {number} of {rows} rows"
        for name, number in nulls.items()
        if number
    ]
    if wrong:
        raise SchemaMismatchError(_text(path, wrong))


def _text(path: Path, wrong: Collection[str]) -> str:
    beside = path.with_name(f"{path.name}_quarantine")  # it has the same columns, and would be refused next
    folders = f"folders {path} and {beside}" if store.exists(beside) else f"folder {path}"
    return f"{table_name(path)} does not have the columns of its contract: {'; '.join(wrong)}. " + _ANEW.format(
        folders=folders
    )


def _retyped(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} is {_name(stored[name])} in the table and {_name(kind)} in the contract"
        for name, kind in wanted.items()
        if name in stored and stored[name] != kind
    ]


def _types(schema: Schema) -> Mapping[str, Any]:
    return {each.name: each.type for each in schema.fields}


def _name(kind: Any) -> str:
    return str(getattr(kind, "type", kind))
