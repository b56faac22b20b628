"""Spark settings that decide rows: they are the same in every engine, or two engines would give other rows.

Whoever sets one would change what is published without a trace: it is in no fingerprint. So another value is refused,
in the settings and in the session that was started or joined, and everything else may be set.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyspark
from pyspark.sql import SparkSession

from lakehouse.errors import EngineError, SettingsError

_DAYS = "it moves events into other days"
_CASTS = "it decides what a value that cannot be read becomes"
_NAMES = "it decides which column a name means"
_TEXTS = "it decides how texts are read, compared or cut"
_DATES = "it shifts old dates and times as they are read or written"
_LOSES = "rows would be missing without a word"
_JSON = "it decides which lines are sound, and what of them is kept"
_TYPES = "it decides the type of a value"

FIXED = {
    "spark.sql.session.timeZone": ("UTC", _DAYS),
    "spark.sql.timestampType": ("TIMESTAMP_LTZ", _DAYS),
    "spark.sql.ansi.enabled": ("true", _CASTS),
    "spark.sql.ansi.enforceReservedKeywords": ("false", _NAMES),
    "spark.sql.ansi.doubleQuotedIdentifiers": ("false", _NAMES),
    "spark.sql.ansi.relationPrecedence": ("false", _NAMES),
    "spark.sql.storeAssignmentPolicy": ("ANSI", _CASTS),
    "spark.sql.decimalOperations.allowPrecisionLoss": ("true", "it decides the last digits of amounts"),
    "spark.sql.caseSensitive": ("false", _NAMES),
    "spark.sql.groupByOrdinal": ("true", _NAMES),
    "spark.sql.orderByOrdinal": ("true", _NAMES),
    "spark.sql.groupByAliases": ("true", _NAMES),
    "spark.sql.parser.escapedStringLiterals": ("false", _TEXTS),
    "spark.sql.parser.quotedRegexColumnNames": ("false", _NAMES),
    "spark.sql.variable.substitute": ("true", _TEXTS),
    "spark.sql.function.concatBinaryAsString": ("false", _TEXTS),
    "spark.sql.function.eltOutputAsString": ("false", _TEXTS),
    "spark.sql.readSideCharPadding": ("true", _TEXTS),
    "spark.sql.charAsVarchar": ("false", _TEXTS),
    "spark.sql.mapKeyDedupPolicy": ("EXCEPTION", "it decides which of two values of one name is kept"),
    "spark.sql.json.enableExactStringParsing": ("true", _JSON),
    "spark.sql.json.enablePartialResults": ("true", _JSON),
    "spark.sql.json.useUnsafeRow": ("false", _JSON),
    "spark.sql.jsonGenerator.ignoreNullFields": ("true", _JSON),
    "spark.sql.columnNameOfCorruptRecord": ("_corrupt_record", _JSON),
    "spark.sql.files.ignoreCorruptFiles": ("false", _LOSES),
    "spark.sql.files.ignoreMissingFiles": ("false", _LOSES),
    "spark.sql.parquet.outputTimestampType": ("TIMESTAMP_MICROS", "readers disagree about the others"),
    "spark.sql.parquet.binaryAsString": ("false", _TYPES),
    "spark.sql.parquet.int96AsTimestamp": ("true", _TYPES),
    "spark.sql.parquet.int96TimestampConversion": ("false", _DAYS),
    "spark.sql.parquet.inferTimestampNTZ.enabled": ("true", _TYPES),
    "spark.sql.parquet.writeLegacyFormat": ("false", "other readers of the tables would fail"),
    "spark.sql.sources.partitionColumnTypeInference.enabled": ("false", _TYPES),
    "spark.sql.execution.pythonUDF.arrow.enabled": ("true", _CASTS),
}
"""By setting, the only value it may have, and why."""

FAMILIES = {
    "spark.sql.legacy.": "it brings back what an older Spark took a value or a name for",
    "spark.sql.parquet.datetimerebasemode": _DATES,
    "spark.sql.parquet.int96rebasemode": _DATES,
}
"""By the beginning of settings, in small letters, why none of them may be set at all."""


def check_settings(config: Mapping[str, str]) -> None:
    """Refuse Spark settings that decide rows.

    Raises:
        SettingsError: with each of them, and why.
    """
    if wrong := refused(config):
        raise SettingsError(f"LAKEHOUSE_SPARK_CONFIG (or a run's spark_config): {'; '.join(wrong)}. Leave it out.")


def check_session(session: SparkSession, url: str) -> None:
    """Refuse an engine that would give other rows than every other engine, wherever it has its settings from.

    Raises:
        EngineError: with what is wrong.
    """
    # Asked of the engine itself: what it was told by its own configuration files is nowhere else to be seen.
    wrong = refused(dict(session.conf.getAll))
    own, there = (".".join(text.split(".")[:2]) for text in (pyspark.__version__, session.version))
    if own != there:
        wrong.append(f"it runs Spark {session.version}, but {own} is in the code version of what it would build")
    if wrong:
        raise EngineError(
            f"The Spark engine at {url} would give other rows: {'; '.join(wrong)}. Fix its spark-defaults.conf or its "
            "start command, and start it again."
        )


def refused(config: Mapping[str, str]) -> list[str]:
    """What is wrong with some Spark settings, each in words; empty where they may all be set."""
    wrong = []
    for name, value in sorted(config.items()):
        known = {each.lower(): each for each in FIXED}.get(name.lower())
        if known is not None:
            only, why = FIXED[known]
            if str(value).strip().lower() != only.lower():
                wrong.append(f"{name} is {value}, but only {only} is allowed: {why}")
        for beginning, why in FAMILIES.items():
            if name.lower().startswith(beginning):
                wrong.append(f"{name} must not be set: {why}")
    return wrong
