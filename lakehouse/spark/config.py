"""The settings of an engine, from those of the lakehouse."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

from lakehouse.errors import EngineError
from lakehouse.settings import Settings
from lakehouse.spark.fixed_settings import check_settings
from lakehouse.spark.jars import default_jars_dir, ensure_jars, locked_jar
from lakehouse.spark.options import DELTA, java_options
from lakehouse.spark.ui import ENABLED, is_guarded
from lakehouse.store.disk import private_umask
from lakehouse.users import has_name

# Settings a running engine accepts, so they hold through Spark Connect too.
RUNTIME_CONFIG = {
    "spark.sql.session.timeZone": "UTC",
    # Delta statistics and both readers agree on microsecond timestamps; the default INT96 has no statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # Files are named one by one, and the driver looks at each in microseconds. From so many files on, a job would do it
    # with a task for each, which takes ten milliseconds.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    # Small tables: a snapshot of 50 partitions costs more than the query (2.8–4.5 s against 0.9 s for a small write).
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.stats.skipping": "true",
    # Files of a few kilobytes: with the default cost of 4 MB each, every 32 of them would be a task.
    "spark.sql.files.openCostInBytes": str(256 * 1024),
    # Landed text decides nothing by exceptions: casts that may fail are try_cast.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.json.enableExactStringParsing": "true",
    # A compiled stage longer than the JVM's limit for its compiler runs interpreted, as one of many row rules would if
    # each were not a method of its own (`lakehouse.build.route`); below the limit, Spark splits it into methods.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # A server of Spark Connect shows, and logs, each query as it came, with the options of its readers: passwords too.
    "spark.sql.redaction.string.regex": r'(?i)key: "[^"]*(password|jaas|secret|token)[^"]*"\s+value: "(\\.|[^"\\])*"',
}
SHUFFLES = "spark.sql.shuffle.partitions"
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}
_JAVA_OPTIONS, _CLASS_PATH = "spark.driver.extraJavaOptions", "spark.driver.extraClassPath"
# Local files have their modes, and no .crc file beside each: Parquet pages and the commit gate have their own checks.
# Hadoop's own class starts a process for each mode that it sets, and it sets one or two for each file that is written.
_FILES = "org.apache.hadoop.fs.RawLocalFileSystem"
_FILES_QUICK = "com.globalmentor.apache.hadoop.fs.NakedLocalFileSystem"
_FILES_JAR = "hadoop-bare-naked-local-fs"


def spark_config(settings: Settings) -> dict[str, str]:
    """The settings a session of this engine is built with.

    Raises:
        SettingsError: where a setting of the user's decides rows.
        EngineError: the system does not know the user, as whom Spark does not start; or jars are missing.
    """
    check_settings(settings.spark_config)
    if settings.uses_connect:
        return {"spark.remote": settings.spark_url, **RUNTIME_CONFIG, **settings.spark_config}
    _check_user()
    config = {
        "spark.master": settings.spark_url,
        "spark.app.name": "lakehouse",
        "spark.jars": ",".join(str(jar) for jar in ensure_jars(jars_dir(settings))),
        **DELTA,
        ENABLED: str(settings.spark_ui and settings.is_local and is_guarded()).lower(),
        # The plan of every stage is written out even where no page shows it; "formatted", the default, takes longest.
        "spark.sql.ui.explainMode": "simple",
        # The line of Python that made a column, for messages: seven calls into the JVM each, a fifth of a small run.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # How much compiled code is kept, of all tables: the build of one has about fifty pieces. With the default, 100,
        # each build pushes out what others need, and a stream compiles thirty pieces anew in every turn.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # Each batch reads its topics with consumers of its own, which no later one can use: they are closed soon, ten
        # at a time. With longer times a stream leaves more than are closed, until 64 are open, with four files each.
        "spark.kafka.consumer.cache.timeout": "1s",
        "spark.kafka.consumer.cache.evictorThreadRunInterval": "250ms",
        "spark.kafka.consumer.fetchedData.cache.timeout": "1s",
        "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "1s",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(settings.root / "warehouse"),
        # Executors elsewhere do not have the quick one's jar yet when they first need it.
        "spark.hadoop.fs.file.impl": _FILES_QUICK if settings.is_local else _FILES,
        # Hadoop sets the mode of each file itself, whatever the umask of the process is: of executors, too.
        "spark.hadoop.fs.permissions.umask-mode": f"{private_umask(settings.root):03o}",
        **RUNTIME_CONFIG,
    }
    if settings.is_local:
        # A driver listens for executors, also where it has none. Without a secret, which Spark then makes, it takes
        # objects of Java from everybody on this machine.
        config["spark.authenticate"] = "true"
        config["spark.driver.memory"] = settings.spark_memory or _memory()
        config[SHUFFLES] = str(shuffle_partitions(settings))
    elif settings.spark_memory:
        config["spark.executor.memory"] = settings.spark_memory
    host = "127.0.0.1" if is_here(settings.spark_url) else _address_towards(settings.spark_url)
    config |= {"spark.driver.host": host, "spark.driver.bindAddress": host} if host else {}
    config |= settings.spark_config
    # On clusters, too: Java takes the archive of classes only with the class path that it was made with.
    config[_CLASS_PATH] = os.pathsep.join(filter(None, (class_path(settings), config.get(_CLASS_PATH))))
    given = config.get(_JAVA_OPTIONS, "")
    return config | {_JAVA_OPTIONS: f"{java_options()} {given}".strip()}


def _check_user() -> None:
    """Of a user without a name Hadoop ends with a null pointer."""
    if not has_name():
        raise EngineError(
            f"Spark does not start as the user {os.geteuid()}, who is not in the system's list of users (/etc/passwd). "
            "Add an entry for this number, or run as a user that has one."
        )


def shuffle_partitions(settings: Settings) -> int:
    """Into how many partitions an engine on this machine shuffles at the most."""
    return max(cores(settings.spark_url) * 2, 4)


def class_path(settings: Settings) -> str:
    """What an engine on this machine has before Spark's own jars: what it needs before it loads others."""
    return str(locked_jar(_FILES_JAR, jars_dir(settings)))


def jars_dir(settings: Settings) -> Path:
    """The folder of the engine's jars."""
    return settings.jars_dir or default_jars_dir()


def is_here(url: str) -> bool:
    """Whether all of an engine is on this machine: a master on loopback has no workers elsewhere."""
    host = urlsplit(url.partition(",")[0]).hostname or ""
    return url.startswith("local") or (url.startswith("spark://") and host in _LOOPBACK)


def _address_towards(url: str) -> str:
    """This machine's address on the way to a master, by which its executors reach the driver; empty: Spark finds one.

    Left to itself, Spark would take loopback, which pandera sets (`SPARK_LOCAL_IP`) in whatever process imports it.
    """
    found = urlsplit(url.partition(",")[0].removeprefix("k8s://"))
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((found.hostname or socket.gethostname(), found.port or 1))  # nothing is sent
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def cores(url: str) -> int:
    """How many tasks an engine on this machine runs at once."""
    inside = url.removeprefix("local").strip("[]")
    first = inside.split(",")[0]
    return int(first) if first.isdigit() else (os.cpu_count() or 1)


def _memory() -> str:
    """An eighth of the machine, between 1 and 8 GB: the engine shares it with Dagster and the desktop."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{min(max(total // 8 // 2**20, 1024), 8192)}m"
