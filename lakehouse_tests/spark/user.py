"""A process that uses the warm engine of the settings: it prints the keeper's id, and then does what it is told to."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lakehouse.errors import EngineLostError
from lakehouse.settings import get_settings
from lakehouse.spark.progress import QUERIES, Progress
from lakehouse.spark.session import start, start_beside
from lakehouse.spark.warm import begin, place_of, working_on

SUM, ROWS = 499_500, 1000


def main(what: str, folder: Path) -> None:
    """Join, or start, and work."""
    if what == "become":  # another program, as `lakehouse dev` does
        begin(get_settings(), hold=True)
        os.execvp("sleep", ["sleep", "3600"])  # noqa: S606
    spark = start(get_settings())
    address = place_of(get_settings()).address()
    assert address is not None
    sys.stdout.write(f"{address.pid}\n")
    sys.stdout.flush()
    if what == "sum":
        kept = spark.catalog.tableExists("left_by_another"), spark.conf.get("spark.sql.shuffle.partitions")
        spark.range(ROWS).createOrReplaceTempView("left_by_another")
        spark.conf.set("spark.sql.shuffle.partitions", "7")
        total = spark.sql("SELECT sum(id) FROM left_by_another").collect()[0][0]
        other = start_beside(spark, get_settings())
        same = other.conf.get("spark.sql.shuffle.partitions") == kept[1]
        apart = same and not other.catalog.tableExists("left_by_another") and other.range(3).count() == 3
        sys.stdout.write(f"{total} {kept[0]} {apart} {kept[1]}\n")
    elif what == "write":  # many small tasks, which sleep most of the time: minutes, unless it is ended
        rows = spark.range(0, 40_000, 1, 40_000).selectExpr(
            "id", "java_method('java.lang.Thread', 'sleep', 50L) AS slept"
        )
        try:
            with working_on(table="silver.orders", days="2026-03-01"), QUERIES.watched(lambda seen: note(folder, seen)):
                rows.write.parquet(str(folder / f"rows-{os.getpid()}"))
        except EngineLostError as error:
            sys.stdout.write(f"{error}\n")
            sys.exit(3)


def note(folder: Path, seen: Progress | None) -> None:
    """Keep how far the query is."""
    if seen is not None:
        (folder / f"progress-{os.getpid()}").write_text(f"{seen.tasks_done} {seen.tasks}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
