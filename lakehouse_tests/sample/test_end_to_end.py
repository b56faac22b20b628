"""Landing zone to gold through Dagster, on real data where it is present, against an independent recomputation."""

import gzip
import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from operator import attrgetter, itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakehouse.catalog import lake_with_engine, tables
from lakehouse.features.training import training_set
from lakehouse.orchestration.instance import opened_instance
from lakehouse.read.lake import table_path
from lakehouse.runs.executing import create_run, execute
from lakehouse.sample.events import land_events
from lakehouse.sample.faults import Faults
from lakehouse.sample.retail import land_sample_online_retail
from lakehouse.settings import get_settings
from lakehouse.silver.transactions import CURRENCIES
from lakehouse_tests.conftest import PII_KEY, USUAL
from lakehouse_tests.fixtures.engines import configured
from lakehouse_tests.fixtures.landed import land_online_retail
from lakehouse_tests.fixtures.making import land_twins
from lakehouse_tests.sample import oracle, oracle_activity

REAL = Path(os.environ.get("LAKEHOUSE_TEST_DATA", Path(__file__).parents[3] / "shared" / "data" / "online-retail"))
pytestmark = [pytest.mark.spark, pytest.mark.slow]
EVENTS_FROM, EVENT_DAYS = date(2011, 1, 10), 14


class Lakehouse:
    """A root with everything landed, and what Dagster's runs on it said."""

    def __init__(self, root: Path, first: date, last: date) -> None:
        self.root, self.first, self.last = root, first, last
        self._read: dict[tuple[str, int], list[dict[str, Any]]] = {}

    def run(self, first: date, last: date, names: list[str] | None = None) -> "Run":
        """One run over a range, as the UI's backfill makes it."""
        with opened_instance(get_settings()) as instance:
            run = create_run(instance, names or list(tables()), first, last)
            events = list(execute(instance, run))
            stored = instance.get_run_by_id(run.run_id)
        assert stored is not None
        return Run(stored.is_success, events)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The published rows, read without Spark, and once only: a third of a million takes seconds."""
        table = DeltaTable(str(table_path(self.root, name)))
        key = name, table.version()
        if key not in self._read:
            self._read[key] = table.to_pyarrow_table().to_pylist()
        return self._read[key]

    def count(self, name: str) -> int:
        """How many rows are published: of those of bronze, nothing else is asked."""
        return int(DeltaTable(str(table_path(self.root, name))).to_pyarrow_dataset().count_rows())

    def content(self, name: str) -> pyarrow.Table:
        """The same rows in a stable order, without what says which run and file they came from."""
        found = DeltaTable(str(table_path(self.root, name))).to_pyarrow_table()
        found = found.select([each for each in found.column_names if not each.startswith("_")])
        return found.sort_by([(each, "ascending") for each in found.column_names])

    def versions(self) -> dict[str, int]:
        """Version of every table."""
        return {name: DeltaTable(str(table_path(self.root, name))).version() for name in tables()}


class Run:
    """A finished run's materializations and failed checks."""

    def __init__(self, success: bool, events: list[Any]) -> None:
        self.success = success
        self.materialized = {
            (".".join(e.asset_key.path), e.partition): {k: v.value for k, v in e.materialization.metadata.items()}
            for e in events
            if e.event_type_value == "ASSET_MATERIALIZATION"
        }
        evaluations = [e.event_specific_data for e in events if e.event_type_value == "ASSET_CHECK_EVALUATION"]
        self.failed = {
            (".".join(e.asset_key.path), e.check_name, e.partition) for e in evaluations if not e.passed and e.partition
        }
        self.errors = "\n".join(
            str(e.step_failure_data.user_failure_data or e.step_failure_data.error)
            for e in events
            if e.event_type_value == "STEP_FAILURE"
        )


@pytest.fixture(scope="module")
def lakehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lakehouse]:
    """All the real files, or a stand-in of eight weeks, and two weeks of web events with every fault."""
    root = tmp_path_factory.mktemp("end-to-end")
    with pytest.MonkeyPatch.context() as patch, configured(spark, USUAL):
        patch.setenv("LAKEHOUSE_ROOT", str(root))
        get_settings.cache_clear()
        if REAL.is_dir():
            first, last = date(2010, 12, 1), date(2011, 8, 31)
            land_online_retail(REAL, root, first, last)
        else:
            # From before the oldest late event, and for as many weeks as the volume check looks back on.
            first, last = date(2010, 12, 5), date(2011, 2, 1)
            land_sample_online_retail(root, first, 59, rows=300, seed=1)
        land_events(root, EVENTS_FROM, EVENT_DAYS, rows=400, seed=7, faults=Faults.all(0.01), files_per_day=2)
        land_twins(root, EVENTS_FROM + timedelta(days=1))
        yield Lakehouse(root, first, last)
    get_settings.cache_clear()


@pytest.fixture(scope="module")
def built(lakehouse: Lakehouse) -> Run:
    """Everything built in one range run."""
    run = lakehouse.run(lakehouse.first, lakehouse.last)
    assert run.success, run.errors
    return run


@pytest.fixture(scope="module")
def expected(lakehouse: Lakehouse) -> oracle.Silver:
    """silver.transactions as the standard library computes it."""
    retail = oracle.read_online_retail((lakehouse.root / "landing/online_retail").glob("*.csv.gz"))
    web, _ = oracle.read_events((lakehouse.root / "landing/events").glob("*/*.jsonl.gz"))
    return oracle.silver_transactions([*retail, *web], email_key=PII_KEY.encode(), currencies=CURRENCIES)


def _same(found: list[dict[str, Any]], wanted: list[Any]) -> None:
    """Equal as multisets, with a message that shows a few differing rows rather than all."""
    fields = [field for field in found[0] if not field.startswith("_")]
    left, right = Counter(map(itemgetter(*fields), found)), Counter(map(attrgetter(*fields), wanted))
    if dict(left) != dict(right):
        surplus, missing = left - right, right - left
        pytest.fail(f"too many: {list(surplus)[:3]}, missing: {list(missing)[:3]}")


def test_transactions_equal_the_recomputation(lakehouse: Lakehouse, built: Run, expected: oracle.Silver) -> None:
    """Every typed value of every row, not only totals."""
    _same(lakehouse.rows("silver.transactions"), expected.rows)


def test_quarantine_holds_exactly_the_rows_that_broke_rules(
    lakehouse: Lakehouse, built: Run, expected: oracle.Silver
) -> None:
    """With every rule each row broke, and the file and line it came from."""
    found = lakehouse.rows("silver.transactions_quarantine")
    assert len(found) == len(expected.quarantined)
    counted = Counter(rule for row in found for rule in row["_failed_rules"])
    for own in ("event_time_not_too_old", "event_time_not_a_number", "event_time_in_right_unit"):
        counted.pop(own, None)  # this project's own rules, beyond those recomputed
    assert counted == Counter(rule for row in expected.quarantined for rule in row.failed_rules)
    assert all(row["_source_file"] and row["_source_row"] for row in found)


def test_orders_equal_the_recomputation(lakehouse: Lakehouse, built: Run, expected: oracle.Silver) -> None:
    """Cancellations of later days included."""
    _same(lakehouse.rows("silver.orders"), oracle.silver_orders(expected.rows))


def test_the_landed_files_hold_what_the_keys_are_for(lakehouse: Lakehouse, built: Run, expected: oracle.Silver) -> None:
    """Without such rows, the comparisons would say nothing of orders with one id, or of repeats on another day."""
    orders = Counter(row["order_id"] for row in lakehouse.rows("silver.orders"))
    assert sum(number == 2 for number in orders.values()) > 0
    days: dict[str | None, set[str | None]] = {}
    for each in expected.duplicates:
        days.setdefault(each.values.get("event_id"), set()).add((each.values.get("event_time") or "")[:10])
    kept = {row.event_id: str(row.event_date) for row in expected.rows if row.source == "events"}
    across = {name for name, found in days.items() if name in kept and found - {kept[name]}}
    assert "twin-retried" in across
    assert len(across) > 5


def test_daily_revenue_equals_the_recomputation(lakehouse: Lakehouse, built: Run, expected: oracle.Silver) -> None:
    """To the penny."""
    _same(lakehouse.rows("gold.daily_revenue"), oracle.gold_daily_revenue(expected.rows))


def test_user_features_equal_the_recomputation(lakehouse: Lakehouse, built: Run, expected: oracle.Silver) -> None:
    """On every feature date, so that no day sees its future."""
    days = [lakehouse.first + timedelta(days=n) for n in range((lakehouse.last - lakehouse.first).days + 1)]
    _same(lakehouse.rows("gold.user_features"), oracle.gold_user_features(expected.rows, days))


def test_sessions_equal_the_recomputation(lakehouse: Lakehouse, built: Run, expected: oracle.Silver) -> None:
    """Built by day from the days beside it, they are those of each user's whole history."""
    found = lakehouse.rows("silver.sessions")
    assert len({row["session_id"] for row in found}) == len(found)
    for row in found:
        row.pop("session_id")
    _same(found, oracle_activity.silver_sessions(expected.rows))


def test_hours_equal_the_recomputation(lakehouse: Lakehouse, built: Run, expected: oracle.Silver) -> None:
    """Each event is in one hour, that of its own time."""
    _same(lakehouse.rows("gold.event_windows"), oracle_activity.gold_event_windows(expected.rows))


def test_fraud_features_equal_a_search_from_some_days(
    lakehouse: Lakehouse, built: Run, expected: oracle.Silver
) -> None:
    """On days with web events and without, to the last digit of a standard deviation."""
    days = [EVENTS_FROM + timedelta(days=n) for n in (0, 3, 13, 15)] + [lakehouse.last]
    found = [row for row in lakehouse.rows("gold.user_fraud_features") if row["feature_date"] in days]
    wanted = oracle_activity.gold_user_fraud_features(expected.rows, days)
    _same(found, [SimpleNamespace(**row) for row in wanted])


def test_no_row_is_lost(lakehouse: Lakehouse, built: Run) -> None:
    """Lines landed = bronze + its quarantine; bronze = silver + quarantine + duplicates, as Dagster shows each day."""
    web, malformed = oracle.read_events((lakehouse.root / "landing/events").glob("*/*.jsonl.gz"))
    assert lakehouse.count("bronze.events") == len(web)
    assert lakehouse.count("bronze.events_quarantine") == len(malformed)
    silver = [m for (table, _), m in built.materialized.items() if table == "silver.transactions"]
    for day in silver:
        assert day["rows_in"] == day["dagster/partition_row_count"] + day["quarantined"] + day["duplicates"]
    bronze = lakehouse.count("bronze.events") + lakehouse.count("bronze.online_retail")
    assert sum(day["rows_in"] for day in silver) == bronze


@pytest.mark.skipif(not REAL.is_dir(), reason=f"the real files are not at {REAL}; set LAKEHOUSE_TEST_DATA")
def test_known_answers_of_the_real_data(lakehouse: Lakehouse, built: Run) -> None:
    """The figures computed once and for all from the published data set."""
    retail = [r for r in lakehouse.rows("silver.transactions") if r["source"] == "online_retail"]
    kinds = Counter(r["event_type"] for r in retail)
    assert (len(retail), kinds["purchase"], kinds["cancellation"]) == (316_425, 310_601, 5_824)
    assert sum(r["user_id"] is None for r in retail) == 86_845
    assert lakehouse.count("bronze.online_retail") == 320_705
    aside = [r for r in lakehouse.rows("silver.transactions_quarantine") if r["source"] == "online_retail"]
    rules = Counter(rule for r in aside for rule in r["_failed_rules"])
    assert rules == {"event_type_known": 3, "purchase_amount_positive": 1_794}
    assert 320_705 - len(retail) - len(aside) == 2_483
    gross = sum(r["amount"] for r in retail if r["event_type"] == "purchase")
    home = sum(r["amount"] for r in retail if r["event_type"] == "purchase" and r["country"] == "United Kingdom")
    assert (gross, home) == (Decimal("6281692.71"), Decimal("5248625.44"))
    orders = [r for r in lakehouse.rows("silver.orders") if r["source"] == "online_retail"]
    assert (len(orders), sum(r["status"] == "cancelled" for r in orders)) == (15_048, 2_554)
    day = [r for r in lakehouse.rows("gold.user_features") if r["feature_date"] == date(2011, 8, 31)]
    assert (len(day), sum(r["rolling_7d_transaction_count"] for r in day)) == (198, 4_331)
    assert sum(r["user_7d_order_count"] for r in day) == 218
    (user,) = [r for r in day if r["user_id"] == "17841"]
    assert (user["rolling_7d_transaction_count"], user["user_7d_order_count"]) == (150, 2)
    hours = [r for r in lakehouse.rows("gold.event_windows") if r["source"] == "online_retail"]
    assert (len(hours), sum(r["events"] for r in hours), sum(r["users"] for r in hours)) == (2_076, 316_425, 12_520)
    best = max(hours, key=lambda row: row["gross_revenue"])
    assert (best["window_start"], best["gross_revenue"]) == (datetime(2011, 1, 18, 10, tzinfo=UTC), Decimal("78348.66"))
    fraud = [r for r in lakehouse.rows("gold.user_fraud_features") if r["feature_date"] == date(2011, 8, 31)]
    purchases = [sum(r[f"purchases_{span}"] for r in fraud) for span in ("1h", "24h", "7d")]
    assert (len(fraud), purchases) == (233, [3_573, 3_662, 4_331])
    assert sum(r["amount_1h"] for r in fraud) == Decimal("66463.50")


@pytest.mark.skipif(not REAL.is_dir(), reason=f"the real files are not at {REAL}; set LAKEHOUSE_TEST_DATA")
def test_a_label_knows_a_day_once_it_is_over(lakehouse: Lakehouse, built: Run) -> None:
    """A second before midnight the newest row is that of the day before: what is bought that day is not known yet."""
    lake = lake_with_engine(get_settings())
    day = [r for r in lakehouse.rows("gold.user_features") if r["feature_date"] == date(2011, 8, 31)]
    midnight = datetime(2011, 9, 1, tzinfo=UTC)
    asked = [(r["user_id"], at.isoformat()) for r in day for at in (midnight - timedelta(seconds=1), midnight)]
    labels = lake.spark.createDataFrame(asked, "user_id string, event_time string")
    found = training_set(lake, labels, ["gold.user_features"]).frame.toArrow().to_pylist()
    assert len(found) == 2 * 198
    told = {(r["user_id"], r["event_time"] == midnight): r for r in found}
    names = ("rolling_7d_transaction_count", "user_7d_order_count", "age_seconds")
    assert [told["17841", after][f"user_features__{name}"] for after in (False, True) for name in names] == [
        150, 2, 86_399, 150, 2, 0,  # who bought nothing on the day itself
    ]  # fmt: skip
    of_the_day = {r["user_id"] for r in day if r["last_event_time"] >= midnight - timedelta(days=1)}
    assert of_the_day
    for user in of_the_day:
        before, after = (told[user, each]["user_features__last_event_time"] for each in (False, True))
        assert after >= midnight - timedelta(days=1)
        assert before is None or before < midnight - timedelta(days=1)


def test_every_materialization_shows_what_people_look_for(lakehouse: Lakehouse, built: Run) -> None:
    """Counts, duration, version, a preview without personal data, and links to what was read."""
    shown = built.materialized["silver.transactions", "2011-01-12"]
    wanted = ["dagster/partition_row_count", "quarantined", "duration_seconds", "commit_version", "reads/bronze.events"]
    assert set(wanted) <= set(shown)
    assert shown["preview"].count("\n") == 6
    assert "email_token" not in shown["preview"]


def test_the_same_run_again_changes_nothing_and_says_so(lakehouse: Lakehouse, built: Run) -> None:
    """A retry or a second backfill must not write, however often."""
    before = lakehouse.versions()
    again = lakehouse.run(lakehouse.first, lakehouse.last)
    assert again.success
    assert {m["status"] for m in again.materialized.values()} == {"unchanged"}
    assert lakehouse.versions() == before


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _rubbish(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 40)


def _rewritten(path: Path, change: Any) -> None:
    lines = gzip.decompress(path.read_bytes()).decode().splitlines(keepends=True)
    path.write_bytes(gzip.compress("".join(change(lines)).encode()))


def _without_column(path: Path) -> None:
    _rewritten(
        path, lambda lines: [line.replace("Quantity", "Qty", 1) if n == 0 else line for n, line in enumerate(lines)]
    )


def _null_key(path: Path) -> None:
    _rewritten(path, lambda lines: [lines[0], *("," + line.split(",", 1)[1] for line in lines[1:])])


def _a_tenth(path: Path) -> None:
    _rewritten(path, lambda lines: lines[: max(2, len(lines) // 10)])


DAMAGE = {
    _truncated: "source_readable",
    _rubbish: "source_readable",
    _without_column: "source_readable",
    _null_key: "null_rates",
    _a_tenth: "volume",
}


def test_bad_source_days_fail_alone(lakehouse: Lakehouse, built: Run) -> None:
    """The right check fails for each, the days between them are published, and readers keep the last good data."""
    span = [lakehouse.last - timedelta(days=n) for n in range(16, 0, -1)]
    landed = {day: lakehouse.root / f"landing/online_retail/{day}.csv.gz" for day in span}
    files = {day: path for day, path in landed.items() if path.exists()}
    bad = dict(zip(list(files)[1::2], DAMAGE.items(), strict=False))
    assert len(bad) == len(DAMAGE)
    whole = {day: files[day].read_bytes() for day in bad}
    before = lakehouse.content("silver.transactions")
    try:
        for path in files.values():
            os.utime(path)  # looks landed again, so it is built again
        for day, (damage, _) in bad.items():
            damage(files[day])
        run = lakehouse.run(span[0], span[-1])
    finally:
        for day in bad:
            files[day].write_bytes(whole[day])
    assert not run.success
    bronze = {(name, day) for table, name, day in run.failed if table == "bronze.online_retail"}
    assert bronze == {(check, str(day)) for day, (_, check) in bad.items()}
    assert all(str(day) in run.errors for day in bad)
    published = {day for table, day in run.materialized if table == "gold.daily_revenue"}
    assert published == set(map(str, span)) - set(map(str, bad))
    assert lakehouse.content("silver.transactions").equals(before)
    fixed = lakehouse.run(span[0], span[-1])
    assert fixed.success, fixed.errors
    assert lakehouse.content("silver.transactions").equals(before)
