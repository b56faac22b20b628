"""What the JVM of an engine is told, and pyspark."""

from __future__ import annotations

import sys
from pathlib import Path

# What a JVM warns of is no output of a command, which programs read. What it says of an archive that does not fit would
# go to the terminal of every run; `lakehouse doctor` says it.
WARNINGS = "-Xlog:disable -Xlog:all=warning,cds=off,cds+dynamic=off:stderr:uptime,level,tags"

# The variable that makes `pyspark.sql.functions` Spark Connect's. A process inherits it from the one that starts it.
REMOTE = "SPARK_CONNECT_MODE_ENABLED"

# Without them, Spark opens no Delta table.
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def archive_path() -> Path:
    """Where the archive is: the JVM takes one only for the very jars, by place and time, it was made from."""
    return Path(sys.prefix) / "lakehouse-classes.jsa"


def java_options(archive: Path | None = None) -> str:
    """What the JVM of an engine is told: where it warns, and to use the archive where there is one."""
    archive = archive or archive_path()
    return f'{WARNINGS} "-XX:SharedArchiveFile={archive}"' if archive.is_file() else WARNINGS
