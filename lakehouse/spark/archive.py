"""Class data sharing: the engine's classes, read and verified once, in an archive that every later JVM maps.

`python -m lakehouse.spark.archive` makes it inside the Python environment (`make archive`; 230 MB). A run of one day
ends some 4 s sooner with it; without it, or with that of another Java, engines start as they always did.

Source: https://openjdk.org/jeps/350 (dynamic archives).
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from lakehouse import store
from lakehouse.errors import EngineError, LakehouseError
from lakehouse.spark.options import WARNINGS, archive_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS = 600
_ONCE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # hardly anything it does is done often enough to be compiled well


def is_usable(archive: Path | None = None) -> bool:
    """Whether the Java that Spark would start takes the archive (about a second)."""
    return not _submit(f'-Xshare:on "-XX:SharedArchiveFile={archive or archive_path()}"')


def make_archive(archive: Path | None = None) -> Path:
    """Let an engine work a little and keep the classes it used; replaces the archive that is there.

    Raises:
        EngineError: the engine did not work, or its Java made no archive; the one that was there is gone.
    """
    archive = archive or archive_path()
    archive.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{archive}.lock"), tempfile.TemporaryDirectory(prefix="lakehouse-") as folder:
        archive.unlink(missing_ok=True)
        made = archive.with_suffix(".new")
        made.unlink(missing_ok=True)
        options = f'{_ONCE} "-XX:ArchiveClassesAtExit={made}" {WARNINGS}'
        # The JVM writes it after Python has ended; it holds the other end of this pipe until it is done.
        done = subprocess.run(
            [sys.executable, "-c", f"from lakehouse.spark.archive import exercise_all; exercise_all({folder!r})"],
            env=os.environ | {"SPARK_SUBMIT_OPTS": options},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=_SECONDS, check=False,
        )  # fmt: skip
        failed = done.returncode or not made.exists()
        # One that was cut short, by a full disk say, would crash every JVM that maps it.
        said = done.stdout if failed else _submit(f'-Xshare:on "-XX:SharedArchiveFile={made}"')
        if failed or said:
            made.unlink(missing_ok=True)
            raise EngineError(f"No archive of the engine's classes was made:\n{said[-2000:]}")
        store.fsync([made])
        made.replace(archive)
    return archive


def exercise_all(folder: str) -> None:
    """The work through a server, as on the warm engine, and in the process itself, on one JVM."""
    from lakehouse.servers.ports import free_port
    from lakehouse.settings import Settings
    from lakehouse.spark.config import spark_config
    from lakehouse.spark.keeper import TOKEN, served

    root, port = Path(folder), free_port()
    os.environ[TOKEN] = token = secrets.token_urlsafe(32)
    served(spark_config(Settings(root=root, spark_url="local[2]", spark_memory="1g")), root, port, root)
    (root / "served").mkdir()
    subprocess.run(
        [sys.executable, "-c", f"from lakehouse.spark.archive import exercise; exercise({str(root / 'served')!r})"],
        env=os.environ | {"LAKEHOUSE_SPARK_URL": f"sc://localhost:{port}/;token={token}"},
        stdin=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    exercise(folder)


def exercise(folder: str) -> None:
    """The work, on an engine that is started for it, or on the one that a setting names."""
    from lakehouse.settings import Settings
    from lakehouse.spark.session import start

    session = start(Settings(root=Path(folder), engine_minutes=0))
    work(session, Path(folder))
    session.stop()


def work(session: SparkSession, root: Path) -> None:
    """What runs do, small: lines, nested text, a window, a join, groups, Parquet by day, a Delta table."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    landed = root / "landed"
    landed.mkdir()
    (landed / "lines.csv").write_text("".join(f"{n},{n % 5},2026-03-0{n % 3 + 1}T10:00:00\n" for n in range(60)))
    (landed / "events.json").write_text("".join(f'{{"id": "{n}", "more": {{"a": {n}}}}}\n' for n in range(60)))
    lines = session.read.csv(str(landed / "lines.csv"), schema="id string, kind string, at string")
    events = session.read.text(str(landed / "events.json")).select(
        F.from_json("value", "id string, more struct<a: bigint>").alias("event"),
        F.col("_metadata.file_path").alias("file"),
    )
    last = F.row_number().over(Window.partitionBy("kind").orderBy(F.desc("at"), "id"))
    joined = (
        lines.join(events.select("event.*", F.sha2("file", 256).alias("file")), "id")
        .withColumns({"at": F.try_to_timestamp("at"), "number": last, "wrong": F.array_compact(F.array("kind"))})
        .withColumn("day", F.to_date("at"))
    )
    joined.repartition("day").sortWithinPartitions("id").write.partitionBy("day").parquet(str(root / "rows"))
    rows = session.read.parquet(str(root / "rows"))
    rows.groupBy("day", "kind").agg(F.count("*"), F.sum("more.a"), F.collect_set("id"), F.max_by("id", "at")).collect()
    rows.unionByName(rows).dropDuplicates(["id"]).write.format("delta").save(str(root / "table"))
    session.read.format("delta").load(str(root / "table")).where("kind = '1'").orderBy("at").toPandas()


def _submit(options: str) -> str:
    """What Spark's own launcher says that failed to start a JVM with the engine's jars; empty where it started one."""
    from lakehouse.settings import get_settings
    from lakehouse.spark.config import class_path

    spec = find_spec("pyspark")  # finds the package without importing it
    if spec is None or not spec.submodule_search_locations:
        raise EngineError("pyspark is not installed. Install it (make setup).")
    launcher = str(Path(spec.submodule_search_locations[0], "bin", "spark-submit"))
    done = subprocess.run(
        [launcher, "--driver-class-path", class_path(get_settings()), "--version"],
        env=os.environ | {"SPARK_SUBMIT_OPTS": options},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=_SECONDS, check=False,
    )  # fmt: skip
    return done.stdout if done.returncode else ""


def main() -> int:
    """Make the archive; 0 also where it could not be made, since engines start without it, only later."""
    try:
        archive = make_archive()
    except (LakehouseError, OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"{error}\nEngines will start without it, some seconds later.\n")
        return 0
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted. No archive was made; the same command again makes it.\n")
        return 130
    sys.stdout.write(f"Classes of the engine ({archive.stat().st_size / 1e6:.0f} MB) in {archive}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
