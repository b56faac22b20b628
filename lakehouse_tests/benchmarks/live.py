"""What one live day takes alone, and while a backfill of a long range of the same tables is on; and are both right.

This process is the live one: each day is a run of its own on its warm engine. The backfill is `lakehouse backfill
--force` over the days before, in processes of its own. Rounds of live days without it and with it take turns. At the
end every table is compared with one that was built by a single run.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from lakehouse.sample.retail import land_sample_online_retail

FIRST = date(2024, 1, 1)
WARM_UP = 3  # single days that are not counted: the compiler is still at work
OF_A_RUN = {"_ingested_run"}


def main(argv: list[str]) -> int:
    """Measure and compare; JSON to standard output, progress to standard error. Ends with 1 where a row differs."""
    parser = argparse.ArgumentParser(prog="python -m lakehouse_tests.benchmarks live", description=__doc__)
    parser.add_argument("--days", type=int, default=365, help="days that the backfill builds again")
    parser.add_argument("--rows", type=int, default=300, help="lines a day")
    parser.add_argument("--live", type=int, default=5, help="live days alone, and as many meanwhile, in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--days-per-run", type=int, help="of the backfill; default: the whole range in one run")
    given = parser.parse_args(argv)
    singles = WARM_UP + 2 * given.live * given.rounds
    with tempfile.TemporaryDirectory(prefix="lakehouse-live-") as folder:
        root = Path(folder) / "root"
        land_sample_online_retail(root, FIRST, given.days + singles, rows=given.rows, seed=1)
        report = measure(root, given)
        report["equal"] = not (differing := differing_tables(root, Path(folder) / "plain", given.days + singles))
        report["differing_tables"] = differing
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0 if report["equal"] and not any(report["backfills"]["exit_codes"]) else 1


def measure(root: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Rounds of live days without and with a backfill beside them."""
    last = FIRST + timedelta(days=given.days - 1)
    alone: list[list[float]] = []
    meanwhile: list[list[float]] = []
    codes: list[int] = []
    took: list[float] = []
    counted: Counter[str] = Counter()
    with engine_on(root) as build:
        build(FIRST, last)
        days = (last + timedelta(days=n) for n in range(1, 10_000))
        for _ in range(WARM_UP):
            one = next(days)
            build(one, one)
        for turn in range(given.rounds):
            alone.append([build(one, one)[0] for one in (next(days) for _ in range(given.live))])
            began = time.perf_counter()
            beside: list[float] = []
            with backfill(root, last, given) as process:
                for _ in range(given.live):
                    one = next(days)
                    seconds, retries = build(one, one)
                    if process.poll() is None:  # it was on from the day's beginning to its end
                        beside.append(seconds)
                        counted["retries"] += retries
                    else:
                        counted["live days after the backfill's end"] += 1
                codes.append(process.wait())
            took.append(round(time.perf_counter() - began, 1))
            if not beside:
                sys.exit("the backfill was over before a live day was: more --days, or more --rows")
            meanwhile.append(beside)
            sys.stderr.write(
                f"round {turn + 1} of {given.rounds}: a live day takes {statistics.median(alone[-1]):.2f} s alone, "
                f"{statistics.median(beside):.2f} s beside a backfill\n"
            )
    pairs = [(statistics.median(a), statistics.median(b)) for a, b in zip(alone, meanwhile, strict=True)]
    return {
        "days": given.days,
        "rows_a_day": given.rows,
        "ratio": round(statistics.median(b / a for a, b in pairs), 3),
        "alone": _figures(alone),
        "meanwhile": _figures(meanwhile),
        "live_days": {"retries": counted["retries"], "not counted": counted["live days after the backfill's end"]},
        "backfills": {"exit_codes": codes, "seconds": took},
    }


def _figures(rounds: list[list[float]]) -> dict[str, Any]:
    every = [seconds for each in rounds for seconds in each]
    return {
        "median_seconds": round(statistics.median(every), 3),
        "longest_seconds": round(max(every), 3),
        "seconds": [[round(seconds, 3) for seconds in each] for each in rounds],
    }


@contextmanager
def engine_on(root: Path) -> Iterator[Callable[[date, date], tuple[float, int]]]:
    """Runs over a range of days of a root on one engine: seconds, and how often a step was tried again."""
    os.environ |= {"LAKEHOUSE_ROOT": str(root), "LAKEHOUSE_SPARK_MEMORY": "2g"}
    os.environ.pop("DAGSTER_HOME", None)
    from lakehouse.catalog import tables
    from lakehouse.orchestration.instance import opened_instance
    from lakehouse.runs.executing import create_run, execute
    from lakehouse.settings import get_settings
    from lakehouse.spark.session import start

    get_settings.cache_clear()
    spark = start(get_settings().model_copy(update={"spark_config": {"spark.ui.showConsoleProgress": "false"}}))
    spark.sparkContext.setLogLevel("ERROR")
    with opened_instance(get_settings()) as instance:

        def build(first: date, last: date) -> tuple[float, int]:
            began = time.perf_counter()
            run = create_run(instance, list(tables()), first, last)
            retries = sum(event.is_step_up_for_retry for event in execute(instance, run))
            seconds = time.perf_counter() - began
            stored = instance.get_run_by_id(run.run_id)
            if stored is None or not stored.is_success:
                sys.exit(f"the run over {first} … {last} failed; see {root}/dagster")
            return seconds, retries

        yield build


@contextmanager
def backfill(root: Path, last: date, given: argparse.Namespace) -> Iterator[subprocess.Popen[bytes]]:
    """A backfill of the whole history, from the moment at which it computes."""
    span = ["--from", str(FIRST), "--to", str(last), "--force"]
    span += ["--days-per-run", str(given.days_per_run)] if given.days_per_run else []
    with (root.parent / "backfill.log").open("ab") as log:
        command = [sys.executable, "-W", "ignore", "-m", "lakehouse.cli", "backfill", *span]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        while process.poll() is None and not _computes(root):
            time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.wait()


def _computes(root: Path) -> bool:
    """Whether a step of a run of another process has begun."""
    from dagster import DagsterEventType, DagsterInstance, DagsterRunStatus, RunsFilter

    begun = DagsterEventType.STEP_START
    with DagsterInstance.get() as instance:
        runs = instance.get_runs(RunsFilter(statuses=[DagsterRunStatus.STARTED]))
        return any(instance.get_records_for_run(run.run_id, of_type=begun).records for run in runs)


def differing_tables(root: Path, plain: Path, days: int) -> list[str]:
    """The tables whose rows are not those of a lake that one run has built from the same files."""
    from lakehouse.catalog import tables
    from lakehouse.read.lake import table_path

    shutil.copytree(root / "landing", plain / "landing")
    with engine_on(plain) as build:
        build(FIRST, FIRST + timedelta(days=days - 1))
    names = [*tables(), *(table.quarantine_id for table in tables().values() if table.rules)]

    def rows(where: Path, name: str) -> Counter[str]:
        found = DeltaTable(str(table_path(where, name))).to_pyarrow_table().to_pylist()
        return Counter(repr(sorted((k, v) for k, v in row.items() if k not in OF_A_RUN)) for row in found)

    return [name for name in names if rows(root, name) != rows(plain, name)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
