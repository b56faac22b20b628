"""What `lakehouse doctor` does with the engine: it publishes one tiny day, and reads it back."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import date
from pathlib import Path
from threading import Event, Timer
from typing import TYPE_CHECKING

from lakehouse import store
from lakehouse.commands.operate.doctor_remote import ProblemError, fix_of, python_of_workers
from lakehouse.errors import LakehouseError
from lakehouse.online.address import has_redis
from lakehouse.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_SECONDS = 120.0  # that a server may take for the doctor's queries, the start of executors included


def works(settings: Settings) -> str:
    """Start the engine, publish one tiny day by a real commit, and read it back with Spark.

    Args:
        settings: where the engine is.

    Raises:
        ProblemError: with what is known of it.
    """
    from lakehouse.spark.warm import engines

    try:
        # Executors must see it, which may be elsewhere: then it is in the folder that all are to share.
        shared = None if settings.is_local else settings.root
        if shared is not None:
            store.make_folder(shared, private=True)
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=shared) as folder:
            # In an engine of its own: what is wrong with Java or the jars must not be hidden by one that is warm.
            own = {"root": Path(folder), "engine_minutes": 0.0, "engine_dir": engines(settings)}
            return _write_and_read(settings.model_copy(update=own), loads=has_redis(settings) and not settings.is_local)
    except ProblemError:
        raise
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else ""
        said = str(error) if isinstance(error, LakehouseError) else f"{type(error).__name__}: {first}"
        where = f"The engine's own messages are in {settings.root / 'logs' / 'engine.log'}"
        known = fix_of(f"{error} {error.__cause__ or ''}", settings)
        raise ProblemError(said, f"{known} {where}".strip()) from error


def _write_and_read(settings: Settings, *, loads: bool) -> str:
    from lakehouse.build.build import build
    from lakehouse.commands.probe.bronze.probe import probe
    from lakehouse.read.lake import Lake
    from lakehouse.sources.landing import put
    from lakehouse.spark.session import start

    lake = Lake(settings, {probe.id: probe}, lambda: start(settings))
    rows, day = 50, date(2011, 3, 1)  # of no lake, and over
    lines = ["moment", *(f"{day} {number % 24:02d}:00:00" for number in range(rows))]
    put("probe", day, settings.landing / "probe" / f"{day}.csv", "\n".join(lines).encode())
    with ended_in_time(lake.spark) if settings.uses_connect else nullcontext():
        build(lake, probe, [day], run_id="doctor")
        found = lake.spark.read.format("delta").load(str(lake.path(probe.id))).count()
    if found != rows:
        raise ProblemError(
            f"{rows} rows were published but Spark reads {found}", "Report this; do not use this engine."
        )
    also = f"; {python_of_workers(lake.spark)}" if loads else ""
    return f"Spark {lake.spark.version} at {settings.engine_name}: published {rows} rows and read them back{also}"


@contextmanager
def ended_in_time(spark: SparkSession, seconds: float = MOST_SECONDS) -> Iterator[None]:
    """End what a Spark Connect server is asked, where that takes too long: without executors it waits for ever.

    Args:
        spark: a session of the server.
        seconds: that it may take.

    Raises:
        ProblemError: it took longer.
    """
    is_late = Event()

    def end() -> None:
        is_late.set()
        spark.interruptAll()

    timer = Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if not is_late.is_set():
            raise
        raise ProblemError(
            f"the server takes queries, and ends none within {seconds:g} s",
            "It has no executors, as where it asks for more memory than workers have (spark.executor.memory), or where "
            "another application has their cores: see the page of its cluster.",
        ) from error
    finally:
        timer.cancel()
