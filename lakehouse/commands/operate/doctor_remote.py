"""What `lakehouse doctor` looks at in other processes: who answers, who works, and what executors see."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyspark

from lakehouse.commands.command import silent_database
from lakehouse.errors import LakehouseError, OnlineDownError, SourceDownError
from lakehouse.settings import Settings
from lakehouse.spark.answering import SECONDS, SilentEngineError, addresses, answering
from lakehouse.spark.cluster import megabytes, own_cluster, state_of
from lakehouse.texts import counted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

POSTGRES_PORT = 5432
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)  # what a client of PostgreSQL may ask first: `S` or `N` is the answer
PAGE_PORT = 8080  # of a master's page, where nobody has moved it

_WHERE_TOLD = (
    "the secret is another, or missing. It is spark.authenticate.secret in $SPARK_CONF_DIR/spark-defaults.conf, or "
    "token=… in an sc:// address."
)
# What executors say, and what to do; of several that fit, the first.
_FIXES = {
    r"ModuleNotFoundError|PYTHON_VERSION_MISMATCH|Cannot run program": (
        "Rows are loaded into Redis by the workers' Python: install this package there, in the same version of Python, "
        "and name that Python in PYSPARK_PYTHON (of an sc:// address: where its server runs)."
    ),
    r"the files there hold|FileNotFound|PATH_NOT_FOUND|[Nn]o such file|does not exist|Mkdirs failed": (
        "Executors do not see {root}: mount the same folder on every worker, under this path."
    ),
    r"[Pp]ermission denied|AccessControlException": (
        "Executors may not read and write {root}: run the workers as the user whose it is."
    ),
    r"ClassNotFound|NoClassDefFound|DATA_SOURCE_NOT_FOUND|Failed to find data source": (
        "The engine has no Delta: start it with `--jars` of what `python -m lakehouse.spark.jars DIR` fetches, and "
        "with spark.sql.extensions and spark.sql.catalog.spark_catalog as the guide to clusters has them."
    ),
    r"UnsupportedClassVersion|InvalidClassException|class incompatible|would give other rows": (
        "All processes need one Spark, {spark}, and one Java."
    ),
    r"UNAUTHENTICATED|[Aa]uthenticat|Sasl": f"The master, or the server, does not take you: {_WHERE_TOLD}",
    r"All masters are unresponsive|stopped SparkContext": (
        "What listens there is no master of this Spark, is stopped, or does not take you. See which process has the "
        f"port, and the master's log. If it does not take you, {_WHERE_TOLD}"
    ),
}


class ProblemError(Exception):
    """What is wrong, and how to fix it."""

    def __init__(self, found: str, fix: str) -> None:
        super().__init__(found)
        self.found, self.fix = found, fix


def answers(settings: Settings) -> str:
    """Whether the master, or the Spark Connect server, listens.

    Raises:
        ProblemError: none of the addresses answers.
    """
    try:
        return f"{answering(settings)} answers"
    except SilentEngineError as error:
        raise ProblemError(error.found, error.fix) from error


def workers(settings: Settings) -> str:
    """Whether a standalone master has workers with free cores, as its page says.

    Raises:
        ProblemError: it has none.
    """
    own = own_cluster(settings)
    page = own.page if own else f"http://{addresses(settings)[0][0]}:{PAGE_PORT}/"
    try:
        state = state_of(page, SECONDS)
    except (OSError, ValueError) as error:
        return f"not known: {page} does not tell ({error})"
    free = state.free_cores
    said = f"{counted(len(state.workers), 'worker')} alive, {free} of {counted(state.cores, 'core')} free"
    if not state.workers:
        raise ProblemError(
            said,
            f"Start workers (spark-class org.apache.spark.deploy.worker.Worker {settings.engine_name}): see {page}",
        )
    asked, most = megabytes(settings.spark_memory), max(each["memory"] for each in state.workers)
    if asked > most:
        raise ProblemError(
            f"LAKEHOUSE_SPARK_MEMORY asks for {asked} MB for each executor, but no worker has more than {most} MB",
            "Lower LAKEHOUSE_SPARK_MEMORY, or start workers with more memory.",
        )
    if not free:
        raise ProblemError(
            f"{said}: {', '.join(state.applications)} has them",
            "Wait for its end, or let runs share one application: a Spark Connect server (lakehouse engine cluster "
            "start --connect), and LAKEHOUSE_SPARK_URL=sc://…",
        )
    return said


def python_of_workers(spark: SparkSession) -> str:
    """The Python of a worker, once it has what rows are loaded into Redis with.

    Raises:
        PySparkException: it has no such package, or is of another version.
    """

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import platform

        import pyarrow as pa

        import lakehouse.online.store  # noqa: F401

        for _ in batches:
            yield pa.RecordBatch.from_pylist([{"version": platform.python_version()}])

    [found] = spark.range(1).coalesce(1).mapInArrow(look, "version string").collect()
    return f"its Python {found['version']} can load Redis"


def fix_of(said: str, settings: Settings) -> str:
    """How a failure on executors is fixed, by what was said of it; empty where nobody knows.

    Args:
        said: the whole message.
        settings: where the engine and the lakehouse are.
    """
    for pattern, advice in _FIXES.items():
        if re.search(pattern, said):
            return advice.format(root=settings.root, spark=pyspark.__version__)
    return ""


def databases(settings: Settings) -> str:
    """The addresses of databases at which a PostgreSQL answers; empty: no table has one.

    It is asked as before a login, since only an engine has the driver: what a login meets, `lakehouse intake` says.

    Raises:
        ProblemError: at one of them, none answers.
    """
    # Whose packages may be missing: doctor is to say so.
    from lakehouse import catalog

    found = dict[str, None]()
    for table in catalog.tables().values():
        url = settings.source_url(table.extract.source) if table.extract else None
        if url is None or table.extract is None:
            continue
        # The driver takes several hosts and uses the first that answers.
        hosts = urlsplit(url.get_secret_value()).netloc.rpartition("@")[2].split(",")
        told = [_postgres_at(host) for host in hosts]
        if not any(answers for answers, _ in told):
            fix = f"Start the database, or correct {table.extract.setting}, or remove it."
            raise ProblemError("; ".join(why for _, why in told), fix)
        found |= dict.fromkeys(said for answers, said in told if answers)
    return ", ".join(found)


def _postgres_at(address: str) -> tuple[bool, str]:
    """Whether a PostgreSQL is at `host:port`, and that in words."""
    try:
        parts = urlsplit(f"//{address}")
        with socket.create_connection((parts.hostname or "", parts.port or POSTGRES_PORT), timeout=SECONDS) as asked:
            asked.sendall(_SSL_REQUEST)
            if asked.recv(1) in (b"S", b"N"):
                return True, f"{address} answers"
    except (OSError, ValueError) as error:
        return False, f"{address} does not answer ({getattr(error, 'strerror', None) or error})"
    return False, f"{address} answers, but not as a PostgreSQL does"


def topics(settings: Settings) -> str:
    """What the brokers of the tables with topics say, of those whose address is set; empty: there are none.

    Raises:
        ProblemError: brokers do not answer, or a topic is not as streams need it.
    """
    # Whose packages may be missing: doctor is to say so.
    from lakehouse import catalog
    from lakehouse.sources.kafka import Brokers

    found = []
    for table in catalog.tables().values():
        url = settings.source_url(table.topic.source) if table.topic else None
        if url is None or table.topic is None:
            continue
        try:
            brokers = Brokers(url, table.topic)
            known, compacted = brokers.found(), brokers.compacted()
        except LakehouseError as error:
            fix = f"Correct {table.topic.setting}, or remove it."
            if isinstance(error, SourceDownError):
                fix = f"Start the brokers, or correct {table.topic.setting}, or remove it."
            raise ProblemError(str(error), fix) from None
        if compacted:
            raise ProblemError(
                f"{', '.join(compacted)} of the brokers in {table.topic.setting}: the topic is compacted, so a message "
                "may be gone before it is read, and nobody is told",
                "Set its cleanup.policy to delete.",
            )
        found += [f"{name} has {counted(len(one.parts), 'partition')}" for name, one in sorted(known.items())]
    return ", ".join(found)


def redis(settings: Settings) -> str:
    """That the online store answers."""
    from lakehouse.online.address import SETTING, redis_url, shown
    from lakehouse.online.store import opened

    url = redis_url(settings)
    try:
        with opened(url) as store:
            store.instance()
    except LakehouseError as error:
        fix = f"Correct {SETTING}."  # one that refuses is on
        if isinstance(error, OnlineDownError):
            fix = f"Start it: lakehouse redis start; or correct {SETTING}."
        raise ProblemError(str(error), fix) from None
    return f"{shown(url)} answers"


def dagster(settings: Settings) -> str:
    """That Dagster's state can be read, which is in files unless somebody has named a database.

    Raises:
        ProblemError: it cannot.
    """
    home = settings.dagster_home
    if not (home / "dagster.yaml").exists():
        return "nothing was run yet"
    from lakehouse.orchestration.instance import instance_to_read  # late: Dagster takes a second

    try:
        with instance_to_read(settings) as instance:
            runs = instance.get_runs_count()
    except Exception as error:  # noqa: BLE001  # whatever storage somebody has named fails in its own way
        found = silent_database(error) or f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        fix = f"Start the database, or correct what {home / 'dagster.yaml'} says of storages."
        raise ProblemError(f"its state cannot be read: {found}", fix) from None
    return f"{counted(runs, 'run')} on record"
