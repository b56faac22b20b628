"""Features of Delta that a commit of whole files would break: a table that uses one is refused at once."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable

from lakehouse.errors import UnsupportedTableError

# What a commit of whole files respects. Any other feature a table has could be broken by one, so it is refused.
_SUPPORTED = {"appendOnly", "invariants", "timestampNtz", "vacuumProtocolCheck"}
# Old protocols do not list what a table uses; it shows in its configuration or in its columns.
_CONFIGURED = {
    "deletionVectors": "delta.enableDeletionVectors",
    "columnMapping": "delta.columnMapping.mode",
    "rowTracking": "delta.enableRowTracking",
    "changeDataFeed": "delta.enableChangeDataFeed",
    "checkConstraints": "delta.constraints.",
}
_DECLARED = {
    "generatedColumns": "delta.generationExpression",
    "identityColumns": "delta.identity.",
    "invariants": "delta.invariants",
}


def refuse_features(delta: DeltaTable, path: Path) -> None:
    """Go on only where every feature that the table uses is respected.

    Raises:
        UnsupportedTableError: with the others.
    """
    protocol = delta.protocol()
    used = {*(protocol.writer_features or []), *(protocol.reader_features or [])} - _SUPPORTED
    for name, value in delta.metadata().configuration.items():
        if value not in ("none", "false"):
            used |= {feature for feature, setting in _CONFIGURED.items() if name.startswith(setting)}
    columns = delta.schema().to_json()
    used |= {feature for feature, setting in _DECLARED.items() if f'"{setting}' in columns}
    if used:
        raise UnsupportedTableError(
            f"The Delta table at {path} uses {', '.join(sorted(used))}, which commits of whole files would break. "
            "Rewrite it without that feature (a plain copy into a new table) before this project writes to it."
        )
