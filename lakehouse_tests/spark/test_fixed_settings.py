"""Settings that decide rows: nobody sets them, and no engine has others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakehouse.errors import EngineError, SettingsError
from lakehouse.settings import Settings
from lakehouse.spark.config import RUNTIME_CONFIG, spark_config
from lakehouse.spark.fixed_settings import FIXED, check_session, refused
from lakehouse_tests.conftest import TINY, USUAL


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("spark.sql.session.timeZone", "Asia/Kolkata", "only UTC is allowed: it moves events into other days"),
        ("spark.sql.ANSI.enabled", "false", "only true is allowed: it decides what a value that cannot be read"),
        ("spark.sql.caseSensitive", "true", "which column a name means"),
        ("spark.sql.legacy.timeParserPolicy", "LEGACY", "must not be set: it brings back what an older Spark"),
        ("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY", "it shifts old dates and times"),
        ("spark.sql.files.ignoreCorruptFiles", "true", "rows would be missing without a word"),
        ("spark.sql.mapKeyDedupPolicy", "LAST_WIN", "which of two values of one name is kept"),
        ("spark.sql.decimalOperations.allowPrecisionLoss", "false", "the last digits of amounts"),
    ],
)
def test_a_setting_that_decides_rows_is_refused(name: str, value: str, why: str) -> None:
    """Without it, half past ten in the evening became a time of the next day, and every fingerprint said "unchanged"."""
    for url in ("local[2]", "sc://somewhere", "spark://there:7077"):
        with pytest.raises(SettingsError, match=rf"LAKEHOUSE_SPARK_CONFIG.*{name}.*{why}"):
            spark_config(Settings(spark_url=url, spark_config={name: value}))


def test_all_else_may_be_set() -> None:
    """Without it, nobody could tune an engine, or repeat what holds anyway."""
    allowed = {
        **TINY, **USUAL, "spark.sql.shuffle.partitions": "400", "spark.executor.memory": "8g", "spark.sql.ansi.enabled": "TRUE",
        "spark.sql.session.timeZone": "UTC", "spark.databricks.delta.snapshotPartitions": "50",
    }  # fmt: skip
    assert refused(allowed) == refused(RUNTIME_CONFIG) == []
    assert set(allowed) <= set(spark_config(Settings(spark_url="sc://somewhere", spark_config=allowed)))


def engine(version: str, **settings: str) -> Any:
    """What is asked of a session, of an engine of somebody else's."""
    return SimpleNamespace(version=version, conf=SimpleNamespace(getAll=settings))


def test_an_engine_with_settings_of_its_own_is_refused() -> None:
    """Without it, a server's defaults would decide, which no setting here shows."""
    own = pyspark.__version__
    check_session(engine(own, **{"spark.sql.session.timeZone": "UTC"}), "sc://there")
    with pytest.raises(EngineError, match=r"sc://there would give other rows: spark\.sql\.caseSensitive is true"):
        check_session(engine(own, **{"spark.sql.caseSensitive": "true"}), "sc://there")
    with pytest.raises(EngineError, match=rf"it runs Spark 3\.5\.9, but {own[:3]} is in the code version"):
        check_session(engine("3.5.9"), "sc://there")


def test_the_fixed_values_are_what_an_engine_has(spark: SparkSession) -> None:
    """Without it, a value here could be refused that every engine has, or a setting be misspelt."""
    check_session(spark, "local")
    wrong = {}
    for name, (value, _) in FIXED.items():
        try:
            found = spark.conf.get(name)
        except PySparkException:
            found = None
        if str(found).lower() != value.lower():
            wrong[name] = found
    assert not wrong
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(EngineError, match="caseSensitive"):
            check_session(spark, "local")
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
