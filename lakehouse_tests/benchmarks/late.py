"""What late data costs and what is missed: exactly the stale days, against fixed look-backs.

Daily exports of ten stores. Now and then a store's export of a day does not come with its day but days or weeks later,
in that day's file. After some days of history every arrival is built as it comes: bronze, then in each table the days
that are stale. Beside that, from the log: what a look-back of N days would have written on the same arrival, and which
late rows are older than that, so that it would never have seen them.
"""

import argparse
import gzip
import json
import sys
import tempfile
from collections import Counter, defaultdict
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any

from lakehouse.build.build import build
from lakehouse.build.lookback import look_back, versions, written_since
from lakehouse.build.stale import stale_days
from lakehouse.catalog import tables
from lakehouse.read.lake import Lake
from lakehouse.records.history import latest_records
from lakehouse.sample.retail import land_sample_online_retail
from lakehouse.settings import Settings
from lakehouse.sources.landing import content_of, landing_files
from lakehouse.spark.session import start
from lakehouse_tests.fixtures.landed import RETAIL, land_online_retail

FIRST = date(2011, 3, 1)
STORES, LATE_SHARE, LONGEST = 10, 0.02, 44  # stores; share of their exports that come late; most days late
LANDED = "bronze.online_retail"
NAMES = (LANDED, "silver.transactions", "silver.orders", "gold.daily_revenue", "gold.user_features")


def main(argv: list[str]) -> int:
    """Build day by day; JSON to standard output, progress to standard error."""
    parser = argparse.ArgumentParser(prog="python -m lakehouse_tests.benchmarks late", description=__doc__)
    parser.add_argument("--source", type=Path, help="folder of Online Retail files; default: a synthetic stand-in")
    parser.add_argument("--history", type=int, default=60, help="days built before")
    parser.add_argument("--days", type=int, default=30, help="days that arrive one by one")
    parser.add_argument("--rows", type=int, default=1000, help="lines a day of the stand-in")
    parser.add_argument("--look-back", type=int, nargs="+", default=[3, 7, 30])
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="lakehouse-late-") as folder:
        root, plain = Path(folder) / "root", Path(folder) / "plain"
        if given.source:
            land_online_retail(given.source, plain)
        else:
            land_sample_online_retail(plain, FIRST, given.history + given.days, given.rows, given.seed)
        days = sorted({file.arrival_date for file in landing_files(plain, RETAIL)})
        days = days[: given.history + given.days]
        exports = delayed(plain, days, given.seed)
        session = start(Settings(root=root))
        try:
            lake = Lake(Settings(root=root), tables(), lambda: session)
            report = arrivals(lake, exports, days, given.history, given.look_back)
        finally:
            session.stop()
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0


def delayed(plain: Path, days: list[date], seed: int) -> dict[date, bytes]:
    """Each day's file with the late exports of earlier days in it; exports that come after the last day are lost."""
    chance = Random(seed)
    arriving: dict[date, list[bytes]] = defaultdict(list)
    header = b""
    for file in landing_files(plain, RETAIL, days[0], days[-1]):
        header, *lines = (content_of(file.path) or b"").splitlines()
        late = {
            store: 1 + int(LONGEST * chance.random() ** 2)  # most a few days, some weeks
            for store in range(STORES)
            if chance.random() < LATE_SHARE
        }
        for line in lines:
            store = sum(line.split(b",", 1)[0]) % STORES  # an invoice is of one store
            wanted = file.arrival_date + timedelta(days=late.get(store, 0))
            came = next((day for day in days if day >= wanted), None)
            if came is not None:
                arriving[came].append(line)
    return {day: b"\n".join([header, *arriving[day]]) + b"\n" for day in days}


def arrivals(
    lake: Lake, exports: dict[date, bytes], days: list[date], history: int, look_backs: list[int]
) -> dict[str, Any]:
    """The figures over the days after the history, each built on its own."""
    root = lake.settings.root
    _land(root, {day: exports[day] for day in days[:history]})
    _build_stale(lake, days[history - 1], "history")
    exact: Counter[str] = Counter()
    fixed: dict[int, Counter[str]] = {n: Counter() for n in look_backs}
    missed: dict[int, set[date]] = {n: set() for n in look_backs}
    late_rows, late_days = 0, 0
    for day in days[history:]:
        _land(root, {day: exports[day]})
        before = versions(lake, NAMES)
        _build_stale(lake, day, str(day))
        found = written_since(lake, before, {str(day)})
        exact.update(table_days=found.days, bytes=found.bytes)
        kept = latest_records(root, LANDED, [day])[day].figures["event_days"]
        late = {date.fromisoformat(on): rows for on, rows in kept.items() if date.fromisoformat(on) < day}
        late_rows, late_days = late_rows + sum(late.values()), late_days + len(late)
        for n in look_backs:
            written, size = look_back(lake, NAMES, day, n)
            older = {on: rows for on, rows in late.items() if (day - on).days > n}
            fixed[n].update(table_days=written, bytes=size, late_rows_missed=sum(older.values()))
            missed[n] |= set(older)
        sys.stderr.write(f"{day}: {found.days} days of tables, {found.bytes / 1e3:.0f} kB; {len(late)} late days\n")
    left = {name: len(_stale(lake, name, days[-1])) for name in NAMES}
    if any(left.values()):
        sys.exit(f"days are left over, which the stale days should have covered: {left}")
    exact["late_rows_missed"] = exact["days_missed"] = 0
    return {
        "history": history,
        "arrivals": len(days) - history,
        "late_rows": late_rows,
        "late_days": late_days,
        "touched_days": dict(exact),
        "look_back": {
            n: {**fixed[n], "days_missed": len(missed[n]), "bytes_ratio": round(fixed[n]["bytes"] / exact["bytes"], 2)}
            for n in look_backs
        },
    }


def _build_stale(lake: Lake, until: date, run_id: str) -> None:
    for name in NAMES:
        build(lake, tables()[name], _stale(lake, name, until), run_id=run_id)


def _stale(lake: Lake, name: str, until: date) -> list[date]:
    """Not beyond the newest arrival, where windows over it begin that are not over yet."""
    return [day for day in stale_days(lake, tables()[name]) if day <= until]


def _land(root: Path, files: dict[date, bytes]) -> None:
    folder = root / "landing" / "online_retail"
    folder.mkdir(parents=True, exist_ok=True)
    for day, content in files.items():
        (folder / f"{day}.csv.gz").write_bytes(gzip.compress(content, mtime=0))
