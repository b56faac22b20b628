"""The Spark session: one a process, on the warm engine or in this process, on a cluster or behind Spark Connect."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lakehouse.errors import EngineError
from lakehouse.settings import Settings
from lakehouse.spark.answering import answering
from lakehouse.spark.cluster import check_memory, introduced
from lakehouse.spark.cluster_end import is_on, stop_with_cluster
from lakehouse.spark.config import is_here, spark_config
from lakehouse.spark.fixed_settings import check_session
from lakehouse.spark.java_errors import name_all
from lakehouse.spark.options import REMOTE
from lakehouse.spark.progress import QUERIES
from lakehouse.spark.ui import shown
from lakehouse.spark.warm import is_wanted, join, join_beside, leave
from lakehouse.spark.warm import pages as pages_of_warm

_own = {"pages": ""}  # of an engine in this process

_UNANSWERED = "stopped SparkContext"  # what Spark says once it has asked the masters three times, for a minute
_CALLING = "An error occurred while calling"  # what Py4J puts before the line that tells


def start(settings: Settings) -> SparkSession:
    """The session, started or joined; a process that has an engine of its own stays with it.

    Raises:
        EngineError: with what to check, where the engine does not come up, or has settings that decide rows.
        SettingsError: where the user's settings have such.
    """
    if is_wanted(settings) and not _has_own():
        # Who may only read under the root cannot share an engine there, and has one of their own.
        with suppress(OSError):
            return _heard(join(settings))
    config = spark_config(settings)
    if not settings.is_local and not _has_own():
        answering(settings)  # first: who is told that nobody is there keeps the session that there is
    if not settings.uses_connect:
        leave()  # a process has one engine at a time
        os.environ.pop(REMOTE, None)  # of the process that started this one, which has a session on a server
    if is_here(settings.spark_url):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Python functions of a query find this one's packages
    begins = not _has_own()
    own = begins and is_on(settings)  # before it begins: a cluster that ends meanwhile would be taken for no own one
    if own:
        check_memory(settings)
    session = _opened(settings, config, begins=begins)
    check_session(session, settings.engine_name)
    if not settings.uses_connect:
        name_all()
    if begins:
        stop_with_cluster(settings, session.stop, own=own)
    return _heard(session)


def _opened(settings: Settings, config: Mapping[str, str], *, begins: bool) -> SparkSession:
    """The session of this process, which begins now, or the one that there is."""
    builder: Any = SparkSession.builder
    try:
        # An engine that is there already shows its pages, or none.
        with shown(config if begins else {}) as (added, address):
            for key, value in {**config, **added}.items():
                builder = builder.config(key, value)
            with introduced(settings), nullcontext() if settings.uses_connect else _interrupts_later():
                session: SparkSession = builder.getOrCreate()
        if address:
            _own["pages"] = address
    except Exception as error:
        raise EngineError(
            f"The Spark engine at {settings.engine_name} did not start: {_without_token(error, settings)}. "
            "`lakehouse doctor` checks Java, jars and the engine one by one."
        ) from error
    return session


def start_beside(session: SparkSession, settings: Settings) -> SparkSession:
    """Another session for the thread that asks, on the engine of this one: what is set in it is not set in this one.

    Raises:
        EngineError: the engine is gone, or has settings that decide rows.
    """
    builder: Any = SparkSession.builder
    if not _is_connect(session):
        other = session.newSession()
    elif is_wanted(settings):
        return _heard(join_beside(settings))
    else:
        other = builder.config(map=spark_config(settings)).create()
    check_session(other, settings.engine_name)
    return _heard(other)


def _is_connect(session: SparkSession) -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect.")


def _heard(session: SparkSession) -> SparkSession:
    """The same, which from now on tells how far its queries are; one of this process's own JVM does not."""
    if _is_connect(session):
        session.registerProgressHandler(QUERIES.handle)  # type: ignore[arg-type]  # the same one twice counts once
    return session


def pages() -> str:
    """Where the owner of this process's engine sees Spark's own pages; empty where it shows none, or none is there."""
    return _own["pages"] if _has_own() else pages_of_warm()


def _has_own() -> bool:
    return REMOTE not in os.environ and SparkSession.getActiveSession() is not None


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Let an interrupt wait until the JVM is up: pyspark would lose sight of one that is still starting."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda received, _: waiting.append(received))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if waiting:
            signal.raise_signal(waiting[0])


def _without_token(error: Exception, settings: Settings) -> str:
    """The first line of what an engine said that says something; it may repeat the address that it was called by."""
    lines = (line.removeprefix(": ") for line in str(error).splitlines() if not line.startswith(_CALLING))
    said = next(lines, type(error).__name__)
    if _UNANSWERED in said and settings.spark_url.startswith("spark://"):
        said = (
            "what listens there did not answer for a minute: it is stopped, is no master of this Spark, or refuses you"
        )
    secret = settings.spark_url.partition(";")[2]
    for part in filter(None, (secret, *(each.partition("=")[2] for each in secret.split(";")))):
        said = said.replace(part, "…")
    return said.rstrip(".")


def literal_path(path: Path) -> str:
    """A path as Spark's readers must be given it: brackets, braces, stars and question marks would be a pattern."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", str(path))
