"""How often the checks on history cry wolf on sound days, and how many injected faults they see.

Each day of `silver.transactions` with enough history is judged as it is (a warning is counted as a false alarm, though
some of these days truly are unusual), and then once with each fault put into a copy of its published rows.
"""

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakehouse.catalog import get_table, lake_without_engine
from lakehouse.checks.anomalies import Figures, drifts, volume
from lakehouse.checks.metrics import DayMetrics
from lakehouse.checks.profile import profiles
from lakehouse.contracts import Table
from lakehouse.sample.retail import land_sample_online_retail
from lakehouse.settings import get_settings
from lakehouse_tests.fixtures.landed import land_online_retail

TABLE = "silver.transactions"
Fault = Callable[[pa.Table, random.Random], pa.Table]


def _some(rows: pa.Table, share: float, chance: random.Random) -> pa.Array:
    return pa.array([chance.random() < share for _ in range(rows.num_rows)])


def _with(rows: pa.Table, column: str, values: pa.Array) -> pa.Table:
    return rows.set_column(rows.column_names.index(column), column, values.cast(rows[column].type))


def _nulled(share: float) -> Fault:
    return lambda rows, chance: _with(
        rows, "user_id", pc.if_else(_some(rows, share, chance), pa.scalar(None, pa.string()), rows["user_id"])
    )


def _times(column: str, factor: float) -> Fault:
    return lambda rows, _: _with(rows, column, pc.round(pc.multiply(rows[column].cast(pa.float64()), factor), 2))


def _mixed(column: str, value: str, share: float) -> Fault:
    return lambda rows, chance: _with(
        rows, column, pc.if_else(_some(rows, share, chance), pa.scalar(value), rows[column])
    )


def _kept(share: float) -> Fault:
    return lambda rows, chance: rows.filter(_some(rows, share, chance))


FAULTS: dict[str, Fault] = {
    "nine of ten rows missing": _kept(0.1),
    "half of the rows missing": _kept(0.5),
    "every row twice": lambda rows, _: pa.concat_tables([rows, rows]),
    "user_id null in 30 % more rows": _nulled(0.3),
    "amount in pence instead of pounds": _times("amount", 100),
    "amount doubled": _times("amount", 2),
    "a fifth of the rows in USD": _mixed("currency", "USD", 0.2),
    "half of the countries wrong": _mixed("country", "Atlantis", 0.5),
}


def main(argv: list[str]) -> int:
    """Judge every day with history as it is and with each fault; JSON to standard output."""
    parser = argparse.ArgumentParser(prog="python -m lakehouse_tests.benchmarks anomalies", description=__doc__)
    parser.add_argument("--root", type=Path, help="a lakehouse whose silver.transactions is built; default: build one")
    parser.add_argument("--source", type=Path, help="folder of Online Retail files to build from; default: synthetic")
    given = parser.parse_args(argv)
    with ExitStack() as stack:
        root = given.root or _built(Path(stack.enter_context(tempfile.TemporaryDirectory())), given.source)
        report = judge(root)
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0


def _built(root: Path, source: Path | None) -> Path:
    from lakehouse.orchestration.pieces import Piece
    from lakehouse.runs.running import run_pieces

    if source:
        land_online_retail(source, root)
    else:
        land_sample_online_retail(root, date(2011, 1, 3), 150, rows=1500, seed=1)
    os.environ["LAKEHOUSE_ROOT"] = str(root)
    get_settings.cache_clear()
    days = sorted(date.fromisoformat(path.name[:10]) for path in (root / "landing/online_retail").iterdir())
    names = ("bronze.online_retail", "bronze.events", TABLE)
    run_pieces(get_settings(), [Piece(names, days[0], days[-1])])
    return root


def judge(root: Path) -> dict[str, object]:
    """Days judged, share of them with any warning or block, and share of faults seen, by fault."""
    table = get_table(TABLE)
    snapshot = lake_without_engine(get_settings().model_copy(update={"root": root.absolute()})).snapshot(TABLE)
    live = snapshot.by_day(table.day_column)
    rows = {day: pa.concat_tables([_read(Path(snapshot.uri) / f.path, table) for f in live[day]]) for day in live}
    with tempfile.TemporaryDirectory() as folder:
        sound = {day: _metrics(day, each, table, Path(folder)) for day, each in rows.items()}
        history = {day: each.as_json() for day, each in sound.items()}
        judged = [day for day in sorted(rows) if _alarms(table, sound[day], history) is not None]
        alarms = {day: _alarms(table, sound[day], history) or set() for day in judged}
        chance = random.Random(1)
        seen: dict[str, Counter[str]] = {name: Counter() for name in FAULTS}
        for day in judged:
            for name, fault in FAULTS.items():
                found = _alarms(table, _metrics(day, fault(rows[day], chance), table, Path(folder)), history) or set()
                seen[name].update(found or {"missed"})
    number = len(judged)
    by_check = Counter(check for found in alarms.values() for check in found)
    return {
        "days_judged": number,
        "sensitivity": table.quality.anomalies.warn_z if table.quality.anomalies else None,
        "false_alarms": {"any check": _share(sum(map(bool, alarms.values())), number)}
        | {check: _share(count, number) for check, count in sorted(by_check.items())},
        "detected": {name: _share(number - found["missed"], number) for name, found in seen.items()},
    }


def _share(count: int, of: int) -> str:
    return f"{count / max(of, 1):.1%}"


def _read(path: Path, table: Table) -> pa.Table:
    there = set(pq.read_schema(path).names)
    return pq.ParquetFile(path).read([name for name in table.columns if name in there])


def _metrics(day: date, rows: pa.Table, table: Table, folder: Path) -> DayMetrics:
    path = folder / "day.parquet"
    pq.write_table(rows, path)
    nulls = {name: rows[name].null_count for name in rows.column_names}
    return DayMetrics(day, rows=rows.num_rows, nulls=nulls, profile=profiles([path], table.profiled)[0])


def _alarms(table: Table, metrics: DayMetrics, history: Mapping[date, Figures]) -> set[str] | None:
    """Checks that fail; None where there is too little history to judge by."""
    assert table.quality.volume is not None
    outcomes = drifts(table, metrics, history)
    outcomes.append(volume(table.quality.volume, metrics, {day: each["rows"] for day, each in history.items()}))
    if any("not enough history" in each.message for each in outcomes):
        return None
    return {each.check for each in outcomes if not each.passed}
