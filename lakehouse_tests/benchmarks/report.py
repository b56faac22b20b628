"""What `lakehouse report` takes over many days of many tables: figures collected, page made, their sizes and memory.

The lake is made up: landed files, Delta logs with checkpoints, `ops` tables and Dagster's events, as builds leave them,
with some days that failed, are stale, late, empty or odd. No data file is: the report opens none. Its own process is
measured, once for each round, as the command runs it.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
from dagster import AssetMaterialization, DagsterEvent, DagsterInstance, DagsterRun, DagsterRunStatus, EventLogEntry
from dagster._core.events import AssetMaterializationPlannedData, DagsterEventType, StepMaterializationData
from deltalake import DeltaTable
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.build.plan import make_plan
from lakehouse.contracts import Anomalies, Count, Input, Landing, Sum, Table, Volume
from lakehouse.delta.commit import ensure_table
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.transactions import day_transaction
from lakehouse.orchestration.instance import opened_instance
from lakehouse.orchestration.metadata import asset_key
from lakehouse.read.lake import Lake, PinnedLake, table_path
from lakehouse.read.targets import targets
from lakehouse.records import day_record, history, quarantined
from lakehouse.records.ops import TABLE_ID, add_rows, ops_target, position_name
from lakehouse.settings import Settings
from lakehouse_tests.benchmarks import PeakMemory, usage
from lakehouse_tests.fixtures.making import model, table

LAST = date(2026, 6, 30)
NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
DAYS_A_COMMIT = 250  # of what is projected into the `ops` tables at once
RULE = "amount_at_least_minimum"


def main(argv: list[str]) -> int:
    """Make the lake, then a report of it in each round; JSON to standard output, progress to standard error."""
    parser = argparse.ArgumentParser(prog="python -m lakehouse_tests.benchmarks report", description=__doc__)
    parser.add_argument("--days", type=int, default=2000)
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--root", type=Path, help="keep the lake here, and use the one that is here; default: none kept"
    )
    parser.add_argument("--out", type=Path, help="write the page here too")
    parser.add_argument("--once", action="store_true", help="one report in this process, of the lake in --root")
    given = parser.parse_args(argv)
    if given.once:
        sys.stdout.write(json.dumps(_measure(given.root, given.tables, given.out)) + "\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="lakehouse-report-") as folder:
        root = given.root or Path(folder) / "root"
        if not (root / "made").exists():
            began = time.perf_counter()
            make_lake(root, given.tables, given.days)
            (root / "made").touch()
            sys.stderr.write(f"{given.tables} tables of {given.days} days in {time.perf_counter() - began:.0f} s\n")
        command = [sys.executable, "-W", "ignore", "-m", __name__, "--once", "--root", str(root)]
        command += ["--tables", str(given.tables), *(["--out", str(given.out)] if given.out else [])]
        rounds = []
        for _ in range(given.rounds):
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            rounds.append(json.loads(done.stdout))
            sys.stderr.write(f"{json.dumps(rounds[-1])}\n")
    median = {name: round(statistics.median(each[name] for each in rounds), 2) for name in rounds[0]}
    sys.stdout.write(json.dumps({"days": given.days, "tables": given.tables, **median, "rounds": rounds}, indent=2))
    sys.stdout.write("\n")
    return 0


def _measure(root: Path, number: int, out: Path | None) -> dict[str, float]:
    from lakehouse.orchestration.outcomes import asked
    from lakehouse.report.collect import collect
    from lakehouse.report.page import without_collector
    from lakehouse.report.render import render

    found: dict[str, float] = {}
    made, settings = made_tables(number), Settings(root=root)
    # As `lakehouse.report.page` does it, with a look at the clock in between.
    with PeakMemory(0.05) as memory, opened_instance(settings) as instance, without_collector():
        found["before_mb"] = round(usage().resident_mb)
        wall, cpu = time.perf_counter(), time.process_time()

        def lap(name: str) -> None:
            nonlocal wall, cpu
            found[f"{name}_seconds"] = round(time.perf_counter() - wall, 2)
            found[f"{name}_cpu_seconds"] = round(time.process_time() - cpu, 2)
            wall, cpu = time.perf_counter(), time.process_time()

        figures = collect(PinnedLake(settings, made), list(made), NOW, asked(instance, list(made))[0])
        lap("collect")
        page = render(figures)
        lap("render")
    found["cpu_seconds"] = round(found["collect_cpu_seconds"] + found["render_cpu_seconds"], 2)
    found["page_mb"], found["peak_mb"] = round(len(page.encode()) / 1e6, 2), memory.peak_mb
    if out:
        out.write_text(page, encoding="utf-8")
    return found


def made_tables(number: int) -> dict[str, Table]:
    """A tenth bronze, four tenths silver, each of one bronze table, and gold ones that read one or two silver tables."""
    columns: dict[str, Any] = {
        "id": (T.StringType(), pa.Field()),
        "day": (T.DateType(), pa.Field()),
        "amount": (T.LongType(), pa.Field(ge=0, nullable=True)),
        **{name: (T.StringType(), pa.Field(nullable=True)) for name in ("country", "method", "product", "user_id")},
    }
    plain = {**columns, "amount": (T.LongType(), pa.Field(nullable=True))}
    made: list[Table] = []
    bronze, silver = max(1, number // 10), max(1, 4 * number // 10)
    for n in range(bronze):
        landing = Landing(f"source_{n}", "csv", tuple(columns))
        made.append(table(f"bronze.lines_{n}", model(f"Lines{n}", **plain), lambda lines: lines, {"lines": landing}))
    for n in range(silver):
        read = {"lines": Input(f"bronze.lines_{n % bronze}")}
        made.append(
            table(
                f"silver.sales_{n}",
                model(f"Sales{n}", **columns),
                lambda lines: lines,
                read,
                key=("id",),
                volume=Volume(),
                anomalies=Anomalies(),
                pii=("user_id",),
                figures={"paid": Sum("amount")},
            )
        )
    for n in range(number - bronze - silver):
        read = {"sales": Input(f"silver.sales_{n % silver}", days_before=2 * (n % 2))}
        figures = {"revenue": Sum("amount"), "orders": Count()}
        made.append(
            table(
                f"gold.figures_{n}",
                model(f"Figures{n}", **plain),
                lambda sales: sales.where(F.lit(True)),
                read,
                volume=Volume(),
                figures=figures,
            )
        )
    return {each.id: each for each in made}


def make_lake(root: Path, number: int, days: int) -> None:
    """Tables with that many days each, and all that the lakehouse and Dagster know of them."""
    made, settings = made_tables(number), Settings(root=root)
    span = [LAST - timedelta(days=n) for n in reversed(range(days))]
    for each in made.values():
        if each.landing:
            folder = root / "landing" / each.landing.source
            folder.mkdir(parents=True)
            for day in span:
                (folder / f"{day}.csv").write_text("id,day,amount\n")
    with opened_instance(settings) as instance:
        for position, each in enumerate(made.values()):
            chance = random.Random(position)
            rows = {day: _rows(day, chance) for day in span}
            broken = {chance.choice(span[-300:-2])} if position % 4 == 1 else set()
            _log(PinnedLake(settings, made), each, rows, broken, chance)
            _records(root, each, rows, broken, chance)
            _events(instance, each, span, broken)


def _rows(day: date, chance: random.Random) -> int:
    """Of a day: fewer on Saturdays, now and then none, and on some days far fewer than usual."""
    usual = 5_000 * (0.4 if day.weekday() == 5 else 1 + 0.05 * day.weekday()) * chance.uniform(0.92, 1.08)
    return 0 if chance.random() < 0.01 else round(usual * (0.3 if chance.random() < 0.01 else 1))


def _log(lake: Lake, made: Table, rows: Mapping[date, int], broken: set[date], chance: random.Random) -> None:
    """Files and marks of each day: all in one entry with a checkpoint, and the newest day in the next."""
    mine, side = targets(lake, made)
    for target in (mine, *([side] if side else [])):
        ensure_table(target)
    prints = make_plan(lake, made, list(rows)).fingerprints
    stale = {day for day in rows if chance.random() < 0.001}
    newest = max(rows)
    for version, days in enumerate(([day for day in rows if day < newest], [newest]), 1):
        for target in (mine, *([side] if side else [])):
            lines: list[dict[str, Any]] = [{"commitInfo": {"timestamp": _at(days[-1]), "operation": "WRITE"}}]
            for day in days:
                if day in broken:
                    continue
                lines.append({"txn": {"appId": day_transaction(day), "version": prints[day] ^ (day in stale)}})
                if rows[day] and target is mine:
                    lines += [{"txn": {"appId": f"rows/{day}", "version": rows[day]}}, _file(day, rows[day])]
            entry = target.path / "_delta_log" / f"{version:020}.json"
            entry.write_text("".join(json.dumps(line) + "\n" for line in lines))
            if version == 1:
                DeltaTable(str(target.path)).create_checkpoint()


def _at(day: date) -> int:
    """Milliseconds of the moment at which a day was published: the next morning."""
    return round(_moment(day).timestamp() * 1000)


def _moment(day: date) -> datetime:
    return datetime.combine(day + timedelta(days=1), datetime.min.time(), UTC) + timedelta(hours=6)


def _file(day: date, rows: int) -> dict[str, Any]:
    stats = {"numRecords": rows, "minValues": {"id": "a"}, "maxValues": {"id": "z"}, "nullCount": {"id": 0}}
    name = f"staged/{uuid.uuid4().hex}/valid/day={day}/part-0.parquet"
    return {
        "add": {
            "path": name, "partitionValues": {"day": str(day)}, "size": rows * 20, "modificationTime": _at(day),
            "dataChange": True, "stats": json.dumps(stats),
        }
    }  # fmt: skip


def _records(root: Path, made: Table, rows: Mapping[date, int], broken: set[date], chance: random.Random) -> None:
    kept, aside = [], []
    for day, number in rows.items():
        at = _moment(day) + timedelta(days=2 * (chance.random() < 0.01))
        told = {"checks": {"row_count": {"blocking": True, "found": "no rows"}}} if day in broken else {}
        if not told:
            told = _figures(made, number, chance)
        kept.append(
            day_record.DayRecord(made.id, day, 1, at, uuid.uuid4().hex, made.code_version,
                              history.CHECKS_ONLY if day in broken else "publish", {}, told)
        )  # fmt: skip
        if made.rules and chance.random() < 0.25:
            ids = [chance.getrandbits(62) for _ in range(chance.randint(1, 20))]
            aside.append(quarantined.QuarantineRecord(day, 1, at, "r", made.code_version, True, {(RULE,): ids}))
    main, side = (open_snapshot(table_path(root, each)) for each in (made.id, made.quarantine_id))
    figures = [day_record.row_of(each, main.table_id) for each in kept]
    failures = [{**quarantined._row(each), TABLE_ID: side.table_id} for each in aside]
    for schema, name, found, of in (
        (day_record.schema(), history.HISTORY, figures, main),
        (quarantined.schema(), quarantined.FAILURES, failures, side),
    ):
        target = ops_target(root, name, schema, "")
        for n, some in enumerate(_parts(found, DAYS_A_COMMIT)):
            # Parts of one projection: a version each, the last of which is the table's.
            add_rows(target, made.id, some, {f"{made.id}/{n}": 1})
        if found:
            add_rows(target, made.id, [], {position_name(made.id, of): 2})


def _parts(found: Sequence[dict[str, Any]], size: int) -> Iterator[Sequence[dict[str, Any]]]:
    for n in range(0, len(found), size):
        yield found[n : n + size]


def _figures(made: Table, number: int, chance: random.Random) -> dict[str, Any]:
    nulls = {name: round(number * chance.uniform(0, 0.1)) for name in ("country", "method", "product")}
    told: dict[str, Any] = {
        "rows": number, "bytes": number * 20, "files": 1, "rows_in": number, "seconds": chance.uniform(2, 4),
        "nulls": nulls, "figures": {name: str(Decimal(number * 31) / 4) for name in made.figures},
        "categories": {"method": dict.fromkeys("abcd", number // 4)},
        "profile": {"amount": {"count": number, "sum": str(number * 7), "mean": 7.0, "stddev": 1.0, "log_mean": 1.9,
                               "log_stddev": 0.2, "min": 0.0, "max": 99.0}},
    }  # fmt: skip
    if chance.random() < 0.02 and made.quality.volume:
        text = f"{number} rows, 0.61 of the usual 5000 of this weekday (robust z 4.8); bounds 0.2 to 5"
        told["checks"] = {"volume": {"blocking": False, "found": text}}
    return told


def _events(instance: DagsterInstance, made: Table, span: Sequence[date], broken: set[date]) -> None:
    """Two events a day: it was to be materialized, and it was; a broken day's run failed."""
    key, events = asset_key(made.id), []
    for days in _parts([{"day": day} for day in span], 30):
        failed = any(each["day"] in broken for each in days)
        status = DagsterRunStatus.FAILURE if failed else DagsterRunStatus.SUCCESS
        run = instance.add_run(DagsterRun("lakehouse", str(uuid.uuid4()), status=status))
        planned: list[Any] = [AssetMaterializationPlannedData(key, str(each["day"])) for each in days]
        done = [
            StepMaterializationData(AssetMaterialization(key, partition=str(each["day"]), metadata={"rows": 1}))
            for each in days
            if each["day"] not in broken
        ]
        at = _moment(days[-1]["day"]).timestamp()
        told = [(DagsterEventType.ASSET_MATERIALIZATION_PLANNED, data) for data in planned]
        told += [(DagsterEventType.ASSET_MATERIALIZATION, data) for data in done]
        for n, (kind, data) in enumerate(told):
            event = DagsterEvent(kind.value, "lakehouse", step_key="step", event_specific_data=data)
            events.append(EventLogEntry(None, 10, "", run.run_id, at + n / 1000, "step", "lakehouse", event))
    instance.event_log_storage.store_event_batch(events)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
