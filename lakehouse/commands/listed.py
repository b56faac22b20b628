"""What `lakehouse --help` lists: each command's module and first sentence, so that none is imported for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Listed:
    """A command: the module whose `add_to` makes it, and what its help begins with, which a test compares."""

    module: str
    about: str


COMMANDS = {
    "demo": Listed(
        "sample.demo",
        "Land sample data, build bronze, silver and gold through Dagster, and show tables, quarantine and next steps.",
    ),
    "demo-stream": Listed(
        "sample.demo_stream",
        "Start a broker, send events to it, stream them into silver and gold, kill the stream, and start it again.",
    ),
    "demo-online": Listed(
        "sample.demo_online",
        "Start Redis, load the features of the lake, read one user, and compare what is served with Delta.",
    ),
    "intake": Listed(
        "commands.build.intake",
        "Take what is new in each database table and topic, each batch in one commit with where the next one begins.",
    ),
    "stream": Listed("commands.build.stream", "Messages of topics, taken as they come."),
    "materialize": Listed(
        "commands.build.backfill",
        "Build days of tables (all, unless selected) in one Dagster run; days that are up to date are left alone.",
    ),
    "backfill": Listed(
        "commands.build.backfill",
        "Build a range of days, good days first-class: a bad day fails by name and does not stop the others.",
    ),
    "sql": Listed(
        "commands.inspect.query",
        "Query tables by name: silver.transactions, silver.transactions_quarantine, ops.partition_metrics.",
    ),
    "training-set": Listed(
        "commands.inspect.training",
        "Join labels with the features that were valid at their time, and write them with a record of all that was "
        "read.",
    ),
    "connect": Listed(
        "commands.inspect.connect", "Print how to open a table from DuckDB, Polars, pandas, Spark and Trino."
    ),
    "ready": Listed(
        "commands.inspect.ready",
        "End with 0 where a day is published from the newest of all that it is made from, else with 1.",
    ),
    "status": Listed(
        "commands.inspect.status",
        "Show by table: partitions, rows, freshness, failing checks, failed and stale days, quarantine depth.",
    ),
    "report": Listed(
        "commands.inspect.report",
        "Write one HTML page: days, checks, quarantine, figures, freshness, lineage and cost of every table.",
    ),
    "freshness": Listed(
        "commands.inspect.freshness",
        "Judge tables by their data's time: is the newest due day complete, and how many days missed it this month.",
    ),
    "reconcile": Listed(
        "commands.inspect.reconcile",
        "Compare landed files, bronze, silver and gold by day: in = published + quarantined + duplicates, and sums.",
    ),
    "clocks": Listed(
        "commands.inspect.clocks",
        "Say of each producer how many rows are ahead of their arrival and by how much, or impossible in time, or "
        "late.",
    ),
    "tables": Listed("commands.inspect.describe", "List the tables, inputs before what is computed from them."),
    "describe": Listed("commands.inspect.describe", "Show a table's contract: columns, row rules, checks and policy."),
    "explain-row": Listed(
        "commands.inspect.explain",
        "Show what published a row and which rows, files and lines it is made of, and prove it by computing it again.",
    ),
    "impact": Listed(
        "commands.inspect.impact",
        "List every column, rule, check and owner that depends on a table, column, rule or landed field, transitively.",
    ),
    "history": Listed(
        "commands.change.undo",
        "List a table's versions, newest first: what each commit did, its days and rows, and whether it can be read.",
    ),
    "restore": Listed(
        "commands.change.undo",
        "Put a table and its quarantine, or some days of them, back to what an older version holds.",
    ),
    "vacuum": Listed(
        "commands.operate.maintain",
        "Remove files no version of the last hours needs: replaced ones, and what crashed runs left.",
    ),
    "compact": Listed(
        "commands.operate.maintain",
        "Merge the small files of each partition. A run that publishes meanwhile wins; compaction then starts over.",
    ),
    "forget": Listed(
        "commands.change.forget",
        "Erase a person from landed files, tables, quarantines, history, logs and events, and scan all files for them.",
    ),
    "doctor": Listed(
        "commands.operate.doctor",
        "Check Python, Java, jars, packages, folders, keys, the port, databases, brokers, Redis and the engine.",
    ),
    "engine": Listed("commands.operate.engine", "The warm engine, which commands and runs share."),
    "kafka": Listed(
        "sample.produce", "A Kafka broker on this machine, for development and tests: one node, on loopback."
    ),
    "redis": Listed(
        "commands.operate.redis", "A Redis on this machine for features online, for development and tests."
    ),
    "online": Listed("commands.operate.online", "Features online: the newest row of each entity, in Redis."),
    "dev": Listed(
        "commands.operate.dev",
        "Run the web interface and the daemon until Ctrl-C, for this machine only: they have no login.",
    ),
    "land": Listed(
        "commands.build.land",
        "Copy a source's files into the landing zone; one that is there with the same content is left alone.",
    ),
    "backfills": Listed(
        "commands.build.backfills",
        "Backfills of Dagster's daemon, however they were started: here, in its interface or over GraphQL.",
    ),
    "quarantine": Listed("commands.inspect.quarantine", "Rows that broke a rule and were set aside."),
    "late": Listed("commands.change.late", "Rows that arrive after their day."),
    "alerts": Listed("commands.operate.alerts", "Alerts: what was told, and to whom."),
    "schema": Listed("commands.inspect.schema", "Versions of the tables' columns, and what may change."),
    "candidate": Listed(
        "commands.change.candidate",
        "A new version of a table beside the live one: build, compare, swap; a canary of changed logic.",
    ),
    "keys": Listed("commands.change.keys", "Keys that tokenise personal data; never shown."),
}
