"""What Dagster shows of a table as its file declares it: columns, where they come from, and links."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from dagster import (
    BetaWarning,
    CodeReferencesMetadataValue,
    LocalFileCodeReference,
    MetadataValue,
    TableColumn,
    TableColumnConstraints,
    TableColumnDep,
    TableColumnLineage,
    TableConstraints,
    TableSchema,
)

from lakehouse.contracts import Table
from lakehouse.contracts.lineage import sources
from lakehouse.orchestration.metadata import asset_key
from lakehouse.settings import get_settings

MOST_ORIGINS = 4
CODE_REFERENCES = "dagster/code_references"


def report_link(table: Table) -> dict[str, Any]:
    """A link to the table's part of the report, where one is served."""
    url = get_settings().report_url
    return {"report": MetadataValue.url(f"{url}#{table.id}")} if url else {}


def column_schema(table: Table, upstream: Mapping[str, Table]) -> TableSchema:
    """The contract's columns for Dagster: type, description and origin, what may be null, and the rules."""
    read = sources(table, upstream)
    return TableSchema(
        columns=[
            TableColumn(
                name=f.name,
                type=f.dataType.simpleString(),
                description=_with_origin(f.metadata.get("comment", ""), read[f.name]),
                constraints=TableColumnConstraints(
                    nullable=f.name not in table.required, other=["personal data"] if f.name in table.pii else []
                ),
                tags={"pii": ""} if f.name in table.pii else {},
            )
            for f in table.schema.fields
        ],
        constraints=TableConstraints(other=[f"{rule.name}: {rule.describes}" for rule in table.rules]),
    )


def _with_origin(comment: str, read: Sequence[tuple[str, str]]) -> str:
    """A column's description, ending with the columns it is computed from; of very many the first are named."""
    named = [f"{table}.{column}" for table, column in read]
    more = f" and {len(named) - MOST_ORIGINS} more" if len(named) > MOST_ORIGINS else ""
    origin = f"From {', '.join(named[:MOST_ORIGINS])}{more}" if named else ""
    return ". ".join(part for part in (comment, origin) if part)


def code_reference(table: Table) -> dict[str, Any]:
    """A link to the table's file, which Dagster's pages open in an editor.

    Only under `dagster dev`: elsewhere the page and the file are on different machines, and the path tells of ours.
    """
    if not os.environ.get("DAGSTER_IS_DEV_CLI"):
        return {}
    lines = inspect.getsourcelines(table.transform)[1]
    file = inspect.getsourcefile(table.transform) or ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=BetaWarning)
        named = LocalFileCodeReference(file_path=file, line_number=lines, label=f"{table.layer}/{table.name}.py")
        return {CODE_REFERENCES: CodeReferencesMetadataValue(code_references=[named])}


def column_lineage(table: Table, upstream: Mapping[str, Table]) -> TableColumnLineage:
    """Which columns of other tables each column is computed from."""
    deps = {
        name: [
            TableColumnDep(asset_key=asset_key(source), column_name=column)
            for source, column in found
            if source in upstream  # landed fields are no assets
        ]
        for name, found in sources(table, upstream).items()
    }
    return TableColumnLineage(deps_by_column={k: v for k, v in deps.items() if v})
