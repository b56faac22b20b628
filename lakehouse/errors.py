"""Errors for people: each message names the culprit, what was expected, what came, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date

MOST_DAYS = 50  # named in one message

# How a command ends; scripts and schedulers go by these numbers.
OK, CHECKS_FAILED, USAGE, BROKEN, INTERRUPTED = 0, 1, 2, 3, 130


class LakehouseError(Exception):
    """Base of every error this project raises on purpose."""


class UsageError(LakehouseError):
    """What was asked for does not exist or does not fit together; the asking has to change."""


class SettingsError(LakehouseError):
    """A `LAKEHOUSE_*` setting has a value that cannot work."""


class EngineError(LakehouseError):
    """Java, the jars or the Spark engine is missing or unusable."""


class EngineLostError(EngineError, ConnectionError):
    """The engine ended while it was used; trying again starts another."""


class ContractError(LakehouseError):
    """A table file declares something that cannot be compiled."""


class SourceError(LakehouseError):
    """Input cannot be found or read: landed files, or a database."""


class GeneratorError(LakehouseError, ValueError):
    """Sample data was asked for that cannot be made."""


class SourceDownError(SourceError, ConnectionError):
    """A source cannot be reached at the moment; trying again may help."""


class OnlineError(LakehouseError):
    """The online store holds what it must not, or cannot take what it should."""


class OnlineDownError(OnlineError, ConnectionError):
    """The online store does not answer at the moment; trying again may help."""


class OnlineRefusedError(OnlineError):
    """The online store answers, and does not do what it is asked: it is full, say, or does not take the login."""


class UnknownTableError(LakehouseError):
    """A name or selection matches no table."""


class SchemaMismatchError(LakehouseError):
    """A transform or a staged file does not have the columns its contract declares."""


class UnsupportedTableError(LakehouseError):
    """A Delta table uses a feature that this writer must not touch."""


class StagedFileError(LakehouseError):
    """A staged file is missing, short, or outside the partitions being replaced."""


class DamagedLogError(LakehouseError):
    """A Delta table's log has a checkpoint that cannot be read."""


class DiskFullError(LakehouseError):
    """There was no space to write to; the last good data stays visible."""


class PublishConflictError(LakehouseError):
    """Another run published the same partitions first; its data stands whole."""


class DecidedMeanwhileError(PublishConflictError):
    """Somebody restored or swapped the table while a run computed; a run does not publish over that unasked."""


class DaemonError(LakehouseError):
    """Dagster's server or daemon does not answer, or will not do what it is asked."""


class HistoryGoneError(LakehouseError):
    """A version of a table cannot be read any more: a vacuum removed its files, or its log entries are gone."""


class UndoRefusedError(LakehouseError):
    """A restore or swap that would lose or mix up rows; nothing was written."""


class BadPartitionsError(LakehouseError):
    """Some days of a table failed their audit and were not published; what was published of them before stays."""

    def __init__(self, table: str, reasons: Mapping[date, str], published: int) -> None:
        self.table = table
        self.reasons = dict(reasons)
        listed = "\n".join(f"  {table} {day}: {why}" for day, why in sorted(reasons.items())[:MOST_DAYS])
        more = f"\n  … and {len(reasons) - MOST_DAYS} more" if len(reasons) > MOST_DAYS else ""
        super().__init__(
            f"{len(reasons)} day(s) of {table} were not published; {published} good day(s) were.\n{listed}{more}\n"
            "Readers see what was published of these days before, if anything was. Fix the cause, then re-run only "
            "these: lakehouse backfill --failed-only"
        )


def what_led_to(error: BaseException | None) -> Iterator[BaseException]:
    """An error, what it was caused by, and so on: ten at most, since deeper chains than that are loops."""
    for _ in range(10):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__
