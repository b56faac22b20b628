"""The benchmark's baseline: the same tables from one well-tuned PySpark script with Delta's own writer.

No checks, no quarantine, no orchestration: rows that break a rule are filtered out and forgotten. It assumes what holds
for its sources: Online Retail rows happen on their arrival day, a repeat lands no earlier than its original, and a cancellation follows the purchases of its order.
Events may be late and re-run the days they touch.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakehouse_tests.benchmarks import PeakMemory, usage
from lakehouse_tests.benchmarks.jobs import spark_jobs
from lakehouse_tests.sample.oracle import ISO_4217, ONLINE_RETAIL_COLUMNS

EVENT_COLUMNS = (
    *("event_id", "schema_version", "user_id", "event_type", "event_time", "order_id"),
    *("amount", "currency", "payment_method", "email", "country"),
)
DAY = timedelta(days=1)
WINDOW_DAYS = 7
ORDER = ["source", "order_id"]
_INSTANT = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?$"
_MONEY = "decimal(18,2)"


def plain_session(jars: list[str], warehouse: Path | str, driver_memory: str) -> SparkSession:
    """Start a local session with the settings that matter for many small partitions."""
    settings = {
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.driver.memory": driver_memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": "4",
        "spark.databricks.delta.snapshotPartitions": "1",
        # A few hundred files are listed faster by the driver than by a job.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    }
    builder = SparkSession.builder.master("local[*]").appName("plain")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run_plain(
    spark: SparkSession, landing: Path, out: Path, start: date, end: date, *, email_key: bytes | None = None
) -> dict[str, float]:
    """Land the arrival days `start` to `end` and recompute every day they touch.

    Args:
        spark: A session of `plain_session`.
        landing: Folder with `online_retail/YYYY-MM-DD.csv.gz` and `events/YYYY-MM-DD/*.jsonl[.gz]`; any may be missing.
        out: Folder of the tables, `<layer>/<table>`.
        start: First arrival day.
        end: Last arrival day, included.
        email_key: Key of the tokens kept instead of e-mail addresses; without it they are dropped.

    Returns:
        Seconds by table written, in order.
    """
    run = _Run(spark, landing, out, _days(start, end))
    with run.timed("bronze.online_retail"):
        run.bronze_online_retail()
    with run.timed("bronze.events"):
        touched = run.bronze_events(email_key)
    days = sorted({*run.arrivals, *touched})
    with run.timed("silver.transactions"):
        run.silver_transactions(days)
    if run.exists("silver.transactions"):
        # What the three tables below read of these days, with the six days before for the features.
        recent = run.read("silver.transactions").where(_in_days("event_date", run.window(days)))
        recent = recent.drop("payment_method", "product_code", "quantity", "unit_price", "email_token")
        recent.persist()
        with run.timed("silver.orders"):
            run.silver_orders(recent, days)
        with run.timed("gold.daily_revenue"):
            run.gold_daily_revenue(recent, days)
        with run.timed("gold.user_features"):
            run.gold_user_features(recent, run.feature_dates(days))
        recent.unpersist()
    return {table: seconds for table, seconds in run.seconds.items() if table in run.written}


@dataclass
class _Run:
    spark: SparkSession
    landing: Path
    out: Path
    arrivals: list[date]
    seconds: dict[str, float] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)

    @contextmanager
    def timed(self, table: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[table] = round(time.perf_counter() - began, 3)

    def path(self, table: str) -> Path:
        return self.out.joinpath(*table.split("."))

    def exists(self, table: str) -> bool:
        return (self.path(table) / "_delta_log").is_dir()

    def read(self, table: str) -> DataFrame:
        return self.spark.read.format("delta").load(str(self.path(table)))

    def write(self, table: str, rows: DataFrame, day: str, days: Collection[date]) -> None:
        """Replace these days; the first time, write the whole table."""
        writer = rows.write.format("delta").mode("overwrite").partitionBy(day)
        if self.exists(table):
            writer = writer.option("replaceWhere", _in_days(day, days))
        writer.save(str(self.path(table)))
        self.written.add(table)

    def by_day(self, rows: DataFrame, day: str) -> DataFrame:
        """One file a day, written by all cores."""
        return rows.repartition(2 * self.spark.sparkContext.defaultParallelism, day)

    def bronze_online_retail(self) -> None:
        files = [self.landing / "online_retail" / f"{day}.csv.gz" for day in self.arrivals]
        landed = [str(file) for file in files if file.exists()]
        if not landed:
            return
        schema = ", ".join(f"{name} string" for name in ONLINE_RETAIL_COLUMNS)
        rows = self.spark.read.csv(landed, schema=schema, header=True, escape='"')
        # A gzip file is one task's, so rows reach the writer by file already.
        self.write("bronze.online_retail", _with_place(rows), "_arrival_date", self.arrivals)

    def bronze_events(self, email_key: bytes | None) -> set[date]:
        """Land events; returns the days on which they happened."""
        folders = [self.landing / "events" / str(day) for day in self.arrivals]
        landed = [str(file) for folder in folders for end in ("jsonl", "jsonl.gz") for file in folder.glob(f"*.{end}")]
        if not landed:
            return set()
        fields = F.from_json("value", "map<string,string>")
        lines = _with_place(self.spark.read.text(landed, lineSep="\n")).withColumn("fields", fields)
        lines = lines.where("fields IS NOT NULL")
        known = [F.col("fields")[name].alias(name) for name in EVENT_COLUMNS if name != "email"]
        token = _hmac(F.nullif(F.col("fields")["email"], F.lit("")), email_key).alias("email_token")
        unknown = F.map_filter("fields", lambda name, _: ~name.isin(*EVENT_COLUMNS))
        rescued = F.when(F.size(unknown) > 0, F.to_json(unknown)).alias("_rescued")
        rows = lines.select(*known, token, "_arrival_date", "_source_file", "_source_row", rescued)
        self.write("bronze.events", rows, "_arrival_date", self.arrivals)
        arrived = self.read("bronze.events").where(_in_days("_arrival_date", self.arrivals))
        return {row.event_date for row in _typed_events(arrived).select("event_date").distinct().collect()}

    def silver_transactions(self, days: Sequence[date]) -> None:
        """Write these days; an event that a row of its day or of a day beside it comes before is a repeat."""
        near = sorted({day + DAY * n for day in days for n in (-1, 0, 1)})
        parts = []
        if self.exists("bronze.online_retail"):
            rows = self.read("bronze.online_retail").where(_in_days("_arrival_date", near))
            parts.append(_typed_online_retail(rows))
        if self.exists("bronze.events"):
            # Clocks that are ahead by minutes: an event can arrive on the day before its own.
            rows = self.read("bronze.events").where(F.col("_arrival_date") >= F.lit(min(near) - DAY))
            parts.append(_typed_events(rows))
        if not parts:
            return
        typed = parts[0].unionByName(parts[1]) if len(parts) > 1 else parts[0]
        place = ("_arrival_date", "_source_file", "_source_row")
        beside = Window.partitionBy("event_id").orderBy(F.unix_date("event_date")).rangeBetween(-1, 1)
        first = typed.where(_in_days("event_date", near)).withColumn("_first", F.min(F.struct(*place)).over(beside))
        unique = first.where((F.col("_first") == F.struct(*place)) & F.expr(_in_days("event_date", days)) & _valid())
        unique = self.by_day(unique.drop("_first", "_latest", *place), "event_date")
        self.write("silver.transactions", unique, "event_date", days)

    def silver_orders(self, recent: DataFrame, days: Sequence[date]) -> None:
        recent = recent.where("order_id IS NOT NULL")
        if not self.exists("silver.orders"):
            self.write("silver.orders", self.by_day(_orders(recent), "order_date"), "order_date", days)
            return
        seen = recent.where(_in_days("event_date", days)).select(*ORDER).distinct()
        rows = self.read("silver.transactions").join(F.broadcast(seen), ORDER, "left_semi")
        touched = _orders(rows).persist()
        began = {row.order_date for row in touched.select("order_date").distinct().collect()}
        orders = touched
        if earlier := began - set(days):
            # Orders that began before these days: their neighbours on those days stay as they are.
            neighbours = self.read("silver.orders").where(_in_days("order_date", earlier))
            orders = touched.unionByName(neighbours.join(F.broadcast(touched), ORDER, "left_anti"))
        self.write("silver.orders", self.by_day(orders, "order_date"), "order_date", began | set(days))
        touched.unpersist()

    def gold_daily_revenue(self, recent: DataFrame, days: Sequence[date]) -> None:
        bought, undone = (F.col("event_type") == kind for kind in ("purchase", "cancellation"))
        zero = F.lit(0).cast(_MONEY)
        groups = recent.where(_in_days("event_date", days)).groupBy("event_date", "country", "currency")
        revenue = groups.agg(
            F.count_if(bought).alias("purchases"),
            F.count_if(undone).alias("cancellations"),
            F.sum(F.when(bought, F.col("amount")).otherwise(zero)).cast(_MONEY).alias("gross_revenue"),
            F.sum(F.when(undone, F.col("amount")).otherwise(zero)).cast(_MONEY).alias("cancelled_amount"),
            F.sum("amount").cast(_MONEY).alias("net_revenue"),
        )
        self.write("gold.daily_revenue", self.by_day(revenue, "event_date"), "event_date", days)

    def gold_user_features(self, recent: DataFrame, dates: Sequence[date]) -> None:
        features = _user_features(recent).where(_in_days("feature_date", dates))
        self.write("gold.user_features", self.by_day(features, "feature_date"), "feature_date", dates)

    def feature_dates(self, days: Sequence[date]) -> list[date]:
        """The dates whose window holds one of the days, as far as the table reaches."""
        computed = [date.fromisoformat(p.name[-10:]) for p in self.path("gold.user_features").glob("feature_date=2*")]
        last = max([self.arrivals[-1], *computed])
        return sorted({day + DAY * age for day in days for age in range(WINDOW_DAYS) if day + DAY * age <= last})

    def window(self, days: Sequence[date]) -> list[date]:
        """All days that the features of these days' dates see, and the days themselves."""
        dates = self.feature_dates(days)
        return _days(dates[0] - DAY * (WINDOW_DAYS - 1), max(dates[-1], days[-1]))


def _with_place(rows: DataFrame) -> DataFrame:
    path = F.col("_metadata.file_path")
    arrival = F.to_date(F.regexp_extract(path, r"/(\d{4}-\d\d-\d\d)(\.csv\.gz|/[^/]+)$", 1))
    position = F.monotonically_increasing_id()  # rises along a file, which is never split
    return rows.withColumns({"_arrival_date": arrival, "_source_file": path, "_source_row": position})


def _typed_online_retail(rows: DataFrame) -> DataFrame:
    texts = [F.coalesce(F.col(name), F.lit("")) for name in ONLINE_RETAIL_COLUMNS]
    letter = F.substring("InvoiceNo", 1, 1)
    quantity = F.col("Quantity").try_cast("int")
    return _placed(
        rows,
        {
            "event_id": F.substring(F.sha2(F.concat_ws("|", *texts), 256), 1, 32),
            "source": F.lit("online_retail"),
            "order_id": _text("InvoiceNo"),
            "user_id": F.regexp_replace(_text("CustomerID"), r"\.0$", ""),
            "event_type": F.when(letter == "C", "cancellation").when(letter == "A", "adjustment").otherwise("purchase"),
            "event_time": _instant("InvoiceDate"),
            "amount": (quantity * F.col("UnitPrice").try_cast("decimal(18,6)")).try_cast(_MONEY),
            "currency": F.lit("GBP"),
            "payment_method": F.lit(None).cast("string"),
            "country": _text("Country"),
            "product_code": _text("StockCode"),
            "quantity": quantity,
            "unit_price": F.col("UnitPrice").try_cast(_MONEY),
            "email_token": F.lit(None).cast("string"),
        },
    )


def _typed_events(rows: DataFrame) -> DataFrame:
    texts = ("event_id", "order_id", "user_id", "event_type", "currency", "payment_method", "country", "email_token")
    return _placed(
        rows,
        {
            **{name: _text(name) for name in texts},
            "source": F.lit("events"),
            "event_time": _instant("event_time"),
            "amount": F.col("amount").try_cast(_MONEY),
            "product_code": F.lit(None).cast("string"),
            "quantity": F.lit(None).cast("int"),
            "unit_price": F.lit(None).cast(_MONEY),
        },
    )


def _placed(rows: DataFrame, columns: dict[str, Column]) -> DataFrame:
    """Select the columns of silver.transactions and what deduplication needs."""
    order = (
        *("event_id", "source", "order_id", "user_id", "event_type", "event_time", "amount", "currency"),
        *("payment_method", "country", "product_code", "quantity", "unit_price", "email_token"),
    )
    latest = F.col("_arrival_date").cast("timestamp") + F.expr("INTERVAL '1 00:15' DAY TO MINUTE")
    place = ("_arrival_date", "_source_file", "_source_row")
    typed = rows.select(*(columns[name].alias(name) for name in order), *place).withColumn("_latest", latest)
    usable = F.col("event_time") <= F.col("_latest")
    day = F.when(usable, F.to_date("event_time")).otherwise(F.col("_arrival_date"))
    return typed.withColumn("event_date", day)


def _text(name: str) -> Column:
    return F.nullif(F.col(name), F.lit(""))


def _instant(name: str) -> Column:
    return F.when(F.col(name).rlike(_INSTANT), F.col(name).try_cast("timestamp"))


def _hmac(text: Column, key: bytes | None) -> Column:
    if key is None:
        return F.lit(None).cast("string")
    padded = (hashlib.sha256(key).digest() if len(key) > 64 else key).ljust(64, b"\0")
    inner, outer = (F.lit(bytes(byte ^ pad for byte in padded)) for pad in (0x36, 0x5C))
    return F.sha2(F.concat(outer, F.unhex(F.sha2(F.concat(inner, F.encode(text, "utf-8")), 256))), 256)


def _valid() -> Column:
    kind, amount = F.col("event_type"), F.col("amount")
    return (
        F.col("event_id").isNotNull()
        & (F.col("event_time") <= F.col("_latest"))
        & (((kind == "purchase") & (amount > 0)) | ((kind == "cancellation") & (amount < 0)))
        & F.col("currency").isin(*sorted(ISO_4217))
        & (F.abs(amount) <= 1_000_000)
    )


def _orders(rows: DataFrame) -> DataFrame:
    first = F.struct("event_time", "event_id", "user_id", "event_date", "currency", "country")
    grouped = rows.groupBy(*ORDER).agg(
        F.min(first).alias("first"),
        F.max(F.col("event_type") == "cancellation").alias("cancelled"),
        F.count("*").alias("lines"),
        F.sum("amount").cast(_MONEY).alias("amount"),
    )
    return grouped.select(
        *ORDER,
        "first.user_id",
        F.col("first.event_date").alias("order_date"),
        F.col("first.event_time").alias("ordered_at"),
        F.when(F.col("cancelled"), "cancelled").otherwise("placed").alias("status"),
        "lines",
        "amount",
        "first.currency",
        "first.country",
    )


def _user_features(rows: DataFrame) -> DataFrame:
    """Sum each user's orders by day first: only those few rows are spread over the seven days that see them."""
    bought, undone = (F.col("event_type") == kind for kind in ("purchase", "cancellation"))
    cancelled = rows.where(undone).groupBy(*ORDER).agg(F.min("event_date").alias("cancelled_on"))
    orders = (
        rows.where("user_id IS NOT NULL")
        .groupBy("user_id", *ORDER, "event_date")
        .agg(
            F.count_if(bought).alias("purchases"),
            F.sum(F.when(bought, F.col("amount"))).alias("amount"),
            F.max("event_time").alias("event_time"),
        )
        .join(F.broadcast(cancelled), ORDER, "left")
    )
    seen = F.explode(F.sequence("event_date", F.date_add("event_date", WINDOW_DAYS - 1))).alias("feature_date")
    stands = F.col("cancelled_on").isNull() | (F.col("cancelled_on") > F.col("feature_date"))
    stands &= F.col("order_id").isNotNull()
    return (
        orders.select("*", seen)
        .groupBy("user_id", "feature_date")
        .agg(
            F.sum("purchases").alias("rolling_7d_transaction_count"),
            F.sum("amount").cast(_MONEY).alias("rolling_7d_amount"),
            F.count_distinct(F.when((F.col("purchases") > 0) & stands, F.struct(*ORDER))).alias("user_7d_order_count"),
            F.max("event_time").alias("last_event_time"),
        )
        .where("rolling_7d_transaction_count > 0")
    )


def _days(start: date, end: date) -> list[date]:
    return [start + DAY * number for number in range((end - start).days + 1)]


def _in_days(column: str, days: Collection[date]) -> str:
    first, last = min(days), max(days)
    if len(set(days)) == (last - first).days + 1:
        # Not BETWEEN, with which replaceWhere fails to resolve in Spark 4.2.
        return f"{column} >= DATE'{first}' AND {column} <= DATE'{last}'"
    listed = ", ".join(f"DATE'{day}'" for day in sorted(set(days)))
    return f"{column} IN ({listed})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Time one run, and a second one on the same warm session if asked; print JSON."""
    parser = argparse.ArgumentParser(prog="python -m lakehouse_tests.benchmarks.plain", description=main.__doc__)
    parser.add_argument("--landing", type=Path, required=True, help="folder with online_retail/ and events/")
    parser.add_argument("--out", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--from", dest="start", type=date.fromisoformat, required=True, help="first arrival day")
    parser.add_argument("--to", dest="end", type=date.fromisoformat, required=True, help="last arrival day")
    parser.add_argument("--then", type=date.fromisoformat, nargs="*", default=[], help="more days, each run for itself")
    parser.add_argument(
        "--jars", type=Path, help="folder of Delta's jars; default: the engine's own, fetched if needed"
    )
    parser.add_argument("--driver-memory", default="2g")
    given = parser.parse_args(arguments)
    runs: list[dict[str, object]] = []
    with PeakMemory() as memory:
        began = time.perf_counter()
        spark = plain_session(_jars(given.jars), given.out / "warehouse", given.driver_memory)
        session_seconds = round(time.perf_counter() - began, 3)
        try:
            for start, end in [(given.start, given.end), *((day, day) for day in given.then)]:
                began, cpu, jobs = time.perf_counter(), usage().cpu_seconds, spark_jobs(spark)
                tables = run_plain(spark, given.landing, given.out, start, end, email_key=_email_key())
                seconds, cpu = round(time.perf_counter() - began, 3), round(usage().cpu_seconds - cpu, 2)
                measured = {"seconds": seconds, "cpu_seconds": cpu, "spark_jobs": spark_jobs(spark) - jobs}
                runs.append({"from": str(start), "to": str(end), **measured, "tables": tables})
        finally:
            spark.stop()
    report = {"session_seconds": session_seconds, "runs": runs, "peak_rss_mb": memory.peak_mb}
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0


def _email_key() -> bytes | None:
    key = os.environ.get("LAKEHOUSE_PII_KEY")
    return key.encode() if key else None


def _jars(folder: Path | None) -> list[str]:
    if folder is not None:
        return sorted(map(str, folder.glob("*.jar")))
    from lakehouse.settings import get_settings
    from lakehouse.spark.jars import ensure_jars

    return [str(jar) for jar in ensure_jars(get_settings().jars_dir)]


if __name__ == "__main__":
    sys.exit(main())
