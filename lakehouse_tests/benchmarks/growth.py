"""What one more day costs with little and with much history behind it, Dagster's part included.

Two lakes of made-up exports, alike but for the number of days that are built before; then the same number of single
days, each in a run of its own on the warm session.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from lakehouse.days import days_between
from lakehouse.sample.retail import generate_online_retail
from lakehouse.sources.landing import gzipped, put

LAST = date(2026, 6, 30)
THEN_DAYS = 7
WARM_UP = 2  # single days that are not counted: the compiler is still at work


def main(argv: list[str]) -> int:
    """Build and time both lakes; JSON to standard output, progress to standard error."""
    parser = argparse.ArgumentParser(prog="python -m lakehouse_tests.benchmarks growth", description=__doc__)
    parser.add_argument("--days", type=int, nargs=2, default=[50, 2000], help="days of history of the two lakes")
    parser.add_argument("--rows", type=int, default=40, help="lines a day")
    parser.add_argument("--files", type=int, nargs="+", help="instead: steps on made-up logs of so many files each")
    given = parser.parse_args(argv)
    if given.files:
        from lakehouse_tests.benchmarks.growth_files import main as growth_files

        return growth_files(given.files)
    found = {}
    for days in given.days:
        with tempfile.TemporaryDirectory(prefix="lakehouse-growth-") as folder:
            found[days] = _one_day(Path(folder), days, given.rows)
        sys.stderr.write(f"{days} days: {found[days]['seconds']:.2f} s a day\n")
    few, many = (found[days] for days in given.days)
    figures = ("seconds", "work_seconds", "dagster_seconds", "cpu_seconds", "spark_jobs")
    ratios = {name: round(many[name] / few[name], 3) for name in figures if few[name]}
    tables = {name: round(many["tables"][name] / seconds, 3) for name, seconds in few["tables"].items()}
    report = {"days": given.days, "ratio": ratios, "ratio_by_table": tables, "few": few, "many": many}
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0


def _one_day(root: Path, days: int, rows: int) -> dict[str, Any]:
    """Medians over the counted single days."""
    first = LAST - timedelta(days=days + THEN_DAYS - 1)
    for day in days_between(first, LAST):
        text = generate_online_retail(day, rows, seed=1)
        # The sample's numbers of invoices come again after a year: an order would then live on a day long ago as well.
        text = re.sub(r"^([AC]?)\d(?=\d{5},)", rf"\g<1>{day.toordinal()}", text, flags=re.MULTILINE)
        put("online_retail", day, root / "landing" / "online_retail" / f"{day}.csv.gz", gzipped(text.encode()))
    then = [str(LAST - timedelta(days=n)) for n in reversed(range(THEN_DAYS))]
    command = [sys.executable, "-m", "lakehouse_tests.benchmarks.through_dagster", "--root", str(root)]
    span = ["--from", str(first), "--to", str(LAST - timedelta(days=THEN_DAYS)), "--then", *then]
    done = subprocess.run([*command, *span], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    runs = json.loads(done.stdout)["runs"][1 + WARM_UP :]
    for run in runs:
        run["work_seconds"] = run["seconds"] - run["dagster_seconds"]
    figures = ("seconds", "work_seconds", "dagster_seconds", "cpu_seconds", "spark_jobs")
    tables = {name: statistics.median(run["tables"][name] for run in runs) for name in runs[0]["tables"]}
    return {name: round(statistics.median(run[name] for run in runs), 3) for name in figures} | {"tables": tables}
