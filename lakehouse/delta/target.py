"""A table as a commit needs to know it, and what one commit says beside its files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakehouse.lazy import T


@dataclass(frozen=True)
class Target:
    """A Delta table as a commit needs to know it: where it is, and what its files may hold."""

    path: Path
    schema: T.StructType
    partition_by: tuple[str, ...]
    required: Collection[str] = ()
    pii: Collection[str] = ()
    extra_columns: Collection[str] = ()  # columns the files may hold beyond the schema
    description: str = ""

    @property
    def day_column(self) -> str:
        """The column whose dates are replaced."""
        return self.partition_by[0]


@dataclass(frozen=True)
class Commit:
    """What one commit says beside its files: transactions by application id, and facts for the history."""

    transactions: Mapping[str, int] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
