"""A batch of what is new in a source outside: how it is read, what it tells, and where the next one begins.

`from_database` and `from_topic` plan batches, each from the end of the last one, which the table's own log tells;
`take` takes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from lakehouse.build.base import Base
from lakehouse.build.laps import Laps
from lakehouse.checks.metrics import Value
from lakehouse.delta.staged import StagedFile
from lakehouse.errors import SourceError


@dataclass(frozen=True)
class Taken:
    """What a batch tells of itself once its rows are staged.

    Attributes:
        measured: of its source and of delays, for the checks.
        transactions: where the next batch begins, as application transactions; empty where it begins where this did.
        told: the batch as its commit tells it, for programs.
        shown: the batch as its materialization shows it, for people.
    """

    measured: Mapping[str, Value | None]
    transactions: Mapping[str, int]
    told: Mapping[str, Any]
    shown: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Batch(ABC):
    """One batch, planned.

    Attributes:
        base: the table, at the version that the batch goes on from.
        run_id: recorded in the commit.
        laps: the seconds so far.
        left: messages or rows that are there and in a later batch.
    """

    base: Base
    run_id: str
    laps: Laps
    left: int = 0

    @property
    def size(self) -> int | None:
        """About how many bytes are read; None: unknown."""
        return None

    @property
    def made_as(self) -> str | None:
        """A name for the way in which its rows are made, where all that are made so have the same columns."""
        return None

    @property
    @abstractmethod
    def number(self) -> int:
        """From 1."""

    @property
    @abstractmethod
    def day(self) -> date:
        """The UTC day on which it was begun."""

    @abstractmethod
    def rows(self) -> DataFrame | None:
        """The transform's rows; None where there is nothing to read."""

    @abstractmethod
    def failed(self, error: Exception) -> SourceError | None:
        """An error of the engine in a sentence without credentials, where the source is what failed; else None."""

    def isolated(self, error: PySparkException) -> Batch:
        """The batch with those messages apart on which the table's code failed.

        Args:
            error: what computing the rows failed of; raised again where nothing can be told apart.
        """
        raise error

    @abstractmethod
    def taken(self, files: Sequence[StagedFile]) -> Taken:
        """What the batch tells, now that its rows are staged."""
