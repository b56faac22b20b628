"""The benchmark's subject: the same landing zone built by this project, every check on, through Dagster."""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path

from dagster import EventLogEntry

from lakehouse_tests.benchmarks import COMPARED, PeakMemory, usage
from lakehouse_tests.benchmarks.jobs import spark_jobs


def main(arguments: Sequence[str] | None = None) -> int:
    """Time one range run, then one run for each further day on the same warm session; print JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m lakehouse_tests.benchmarks.through_dagster", description=main.__doc__
    )
    parser.add_argument("--root", type=Path, required=True, help="lakehouse root with a landing zone and no tables")
    parser.add_argument("--from", dest="start", type=date.fromisoformat, required=True)
    parser.add_argument("--to", dest="end", type=date.fromisoformat, required=True)
    parser.add_argument("--then", type=date.fromisoformat, nargs="*", default=[], help="more days, each run for itself")
    parser.add_argument("--driver-memory", default="2g")
    given = parser.parse_args(arguments)
    os.environ |= {"LAKEHOUSE_ROOT": str(given.root), "LAKEHOUSE_SPARK_MEMORY": given.driver_memory}

    with PeakMemory() as memory:
        from lakehouse.orchestration.instance import opened_instance
        from lakehouse.runs.executing import create_run, execute
        from lakehouse.settings import get_settings
        from lakehouse.spark.session import start

        began = time.perf_counter()
        spark = start(get_settings().model_copy(update={"spark_config": {"spark.ui.showConsoleProgress": "false"}}))
        spark.sparkContext.setLogLevel("ERROR")
        session_seconds = round(time.perf_counter() - began, 3)
        runs: list[dict[str, object]] = []
        with opened_instance(get_settings()) as instance:
            for first, last in [(given.start, given.end), *((day, day) for day in given.then)]:
                began, cpu, jobs = time.perf_counter(), usage().cpu_seconds, spark_jobs(spark)
                run = create_run(instance, list(COMPARED), first, last)
                steps = {
                    event.step_key.replace("__", "."): round(event.step_success_data.duration_ms / 1000, 3)
                    for event in execute(instance, run)
                    if event.event_type_value == "STEP_SUCCESS" and event.step_key
                }
                seconds = time.perf_counter() - began
                stored = instance.get_run_by_id(run.run_id)
                if stored is None or not stored.is_success:
                    sys.exit(f"the run over {first} … {last} failed; see {given.root}/dagster")
                logs = instance.all_logs(run.run_id)
                work = _work_seconds(logs)
                measured: dict[str, object] = {
                    "seconds": round(seconds, 3),
                    "dagster_seconds": round(seconds - work, 3),
                    "cpu_seconds": round(usage().cpu_seconds - cpu, 2),
                    "spark_jobs": spark_jobs(spark) - jobs,
                }
                runs.append({"from": str(first), "to": str(last), **measured, "tables": steps})
    spark.stop()
    report = {"session_seconds": session_seconds, "runs": runs, "peak_rss_mb": memory.peak_mb}
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0


def _work_seconds(logs: Iterable[EventLogEntry]) -> float:
    """Seconds the tables took outside Dagster; each asset's newest materialization carries its table's."""
    newest: dict[object, float] = {}
    for entry in logs:
        event = entry.dagster_event
        if event is not None and event.event_type_value == "ASSET_MATERIALIZATION":
            newest[event.asset_key] = float(str(event.materialization.metadata["duration_seconds"].value))
    return sum(newest.values())


if __name__ == "__main__":
    sys.exit(main())
