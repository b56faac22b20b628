"""Commands with a real engine on a small lakehouse: three days of two shops, the middle one broken at first."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance
from deltalake import DeltaTable

from lakehouse.catalog import tables
from lakehouse.orchestration.metadata import asset_key
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse_tests.commands.conftest import BAD, FIRST, LAST, RANGE, Cli, Result, land, run
from lakehouse_tests.conftest import ALONE

pytestmark = [pytest.mark.spark, pytest.mark.slow]
GOOD = [str(FIRST), str(LAST)]
DAYS = [str(FIRST), str(BAD), str(LAST)]


def by_table(said: Result) -> dict[str, dict[str, Any]]:
    return {each["table"]: each for each in said.json["tables"]}


def test_a_bad_day_fails_by_name_and_the_good_ones_are_published(first_backfill: tuple[Path, Result]) -> None:
    _, said = first_backfill
    assert (said.code, said.json["exit_code"]) == (1, 1)
    (one,) = said.json["runs"]
    assert (one["status"], one["from"], one["to"], one["tables"]) == ("FAILURE", str(FIRST), str(LAST), list(tables()))
    found = by_table(said)
    assert found["bronze.events"]["published"] == DAYS
    assert found["bronze.online_retail"]["published"] == GOOD
    assert re.match(rf"source_readable: {BAD}\.csv\.gz ends early", found["bronze.online_retail"]["failed"][str(BAD)])
    for name in list(tables())[2:]:
        assert found[name]["published"] == GOOD, name
        assert found[name]["skipped"].keys() == {str(BAD)}, name
        assert found[name]["rows"] > 0, name
    assert "bronze.online_retail, whose day failed" in found["silver.transactions"]["skipped"][str(BAD)]


def test_fields_without_a_column_are_told_by_the_run_that_met_them(
    first_backfill: tuple[Path, Result], built: Cli
) -> None:
    """Without it, the field would be kept and nobody know of it."""
    _, said = first_backfill
    (told,) = [text for text in by_table(said)["bronze.events"]["warnings"] if text.startswith("schema_drift: ")]
    assert re.search(r"fields without a column, kept in _rescued: (campaign|device) \(\d+ rows?\)", told)
    (state,) = [each for each in built("status", "--json").json if each["table"] == "bronze.events"]
    assert "fields without a column" in state["failing_checks"]["schema_drift"]


def test_dagster_shows_the_run_and_each_partition(
    first_backfill: tuple[Path, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, said = first_backfill
    monkeypatch.setenv("DAGSTER_HOME", str(root / "dagster"))
    with DagsterInstance.get() as instance:
        stored = instance.get_run_by_id(said.json["runs"][0]["run_id"])
        assert stored is not None
        assert stored.status.value == "FAILURE"
        assert stored.tags["dagster/asset_partition_range_end"] == str(LAST)
        for name in tables():
            wanted = set(DAYS if name == "bronze.events" else GOOD)
            assert instance.get_materialized_partitions(asset_key(name)) == wanted, name


def test_status_tells_what_failed(built: Cli) -> None:
    states = {each["table"]: each for each in built("status", "--json").json}
    for name, state in states.items():
        assert state["fresh"], name
        assert state["days"] == (3 if name == "bronze.events" else 2), name
        assert state["failed_days"] == ([] if name == "bronze.events" else [str(BAD)]), name
        assert state["stale_days"] == [], name
    assert states["bronze.online_retail"]["failing_checks"].keys() == {"source_readable"}
    assert states["bronze.online_retail"]["warnings"] == []
    assert states["bronze.events"]["warnings"] == ["schema_drift"]
    assert states["silver.transactions"]["quarantined"] > 0
    said = built("status", "--strict")
    assert said.code == 1
    assert "check source_readable fails" in said.err
    assert "warning schema_drift fails" in said.err
    assert ["1 failing" in said.out, "1 warning" in said.out] == [True, True]
    assert "backfill --failed-only" in said.err


def test_quarantine_by_rule_and_day(built: Cli) -> None:
    listed = built("quarantine", "list", "--table", "silver.transactions", "--json").json
    assert {each["table"] for each in listed} == {"silver.transactions"}
    assert {each["day"] for each in listed} <= set(DAYS)
    assert {"currency_known", "event_type_known"} <= {each["rule"] for each in listed}
    text = built("quarantine", "list")
    assert "currency_known" in text.out
    assert "in quarantine" in text.err


def test_quarantined_rows_are_shown_without_personal_data(built: Cli, first_backfill: tuple[Path, Result]) -> None:
    shown = built("quarantine", "show", "silver.transactions", "--limit", "500", "--json").json
    assert all(row["_failed_rules"] and row["_source_file"].startswith("landing/") for row in shown)
    assert not any(name in row for row in shown for name in ("email_token", "_raw"))
    path = first_backfill[0] / "tables" / "silver" / "transactions_quarantine"
    tokens = set(DeltaTable(path).to_pyarrow_table(columns=["email_token"])["email_token"].to_pylist()) - {None}
    text = built("quarantine", "show", "silver.transactions", "--limit", "500").out
    assert tokens
    assert not any(token in text for token in tokens)


def test_quarantined_rows_of_a_day_and_a_rule(built: Cli) -> None:
    shown = built("quarantine", "show", "silver.transactions", "--day", str(LAST), "--rule", "currency_known", "--json")
    assert all(row["event_date"] == str(LAST) and "currency_known" in row["_failed_rules"] for row in shown.json)
    listed = built("quarantine", "list", "--json").json
    expected = sum(
        each["rows"]
        for each in listed
        if (each["table"], each["day"], each["rule"]) == ("silver.transactions", str(LAST), "currency_known")
    )
    assert len(shown.json) == expected
    told = built("quarantine", "show", "silver.transactions", "--rule", "currency_known", "--limit", "1").err
    such = sum(
        each["rows"] for each in listed if (each["table"], each["rule"]) == ("silver.transactions", "currency_known")
    )
    assert f"1 row of {such:,} such in silver.transactions_quarantine" in told
    few = built("quarantine", "show", "silver.transactions", "--limit", "1", "--json").json
    assert len(few) == 1


def test_reconcile_names_the_day_that_was_held_back(built: Cli) -> None:
    """Without it, nobody could see from outside that a day is in bronze and not yet in silver."""
    done = built("reconcile", *RANGE, "--json")
    assert done.code == 1, done.err
    by_target = {link["to"]: link for link in done.json}
    assert {name: [each["day"] for each in link["differing"]] for name, link in by_target.items()} == {
        "bronze.events": [],
        "bronze.online_retail": [],
        "silver.transactions": [str(BAD)],
        "gold.daily_revenue": [],
    }
    said = built("reconcile", *RANGE)
    assert f"silver.transactions {BAD}: " in said.err
    assert "backfill --stale" in said.err
    sound = built("reconcile", "--from", str(FIRST), "--to", str(FIRST))
    assert (sound.code, sound.err.strip()) == (0, "Everything adds up.")


def test_figures_of_every_published_day_are_a_table(built: Cli) -> None:
    """Without it, what checks compare with could not be looked at."""
    query = (
        "SELECT table, day, rows, profile['amount'].sum AS amount, categories['event_type']['purchase'] AS bought "
        f"FROM ops.partition_metrics WHERE table = 'silver.transactions' AND day = '{FIRST}'"
    )
    (figures,) = built("sql", query, "--json").json
    query = "SELECT count(*) AS rows, sum(amount) AS amount, count_if(event_type = 'purchase') AS bought "
    (rows,) = built("sql", f"{query}FROM silver.transactions WHERE event_date = '{FIRST}'", "--json").json
    assert (figures["rows"], figures["bought"]) == (rows["rows"], rows["bought"])
    assert Decimal(figures["amount"]) == Decimal(rows["amount"])


def test_sql_by_name(built: Cli) -> None:
    said = built(
        "sql",
        "SELECT source, count(*) AS n, sum(amount) total, max(transactions.event_date) last FROM silver.transactions "
        "WHERE 'silver.orders' <> source GROUP BY source ORDER BY source",
        "--json",
    )
    assert [row["source"] for row in said.json] == ["events", "online_retail"]
    assert all(re.fullmatch(r"-?\d+\.\d\d", row["total"]) for row in said.json)
    assert all(row["last"] == str(LAST) for row in said.json)


def test_sql_values_as_json(built: Cli) -> None:
    """No digit is lost, no two columns share a name, no NaN spoils the JSON."""
    (row,) = built(
        "sql",
        "SELECT 1.10BD d, 9007199254740993L i, timestamp'2011-03-01 10:00:00.123456' t, date'2011-03-01' day, "
        "double('NaN') f, array(1, null) a, named_struct('x', 0.10BD) s, map('k', 1) m, null n, binary('ab') b, 1 i",
        "--json",
    ).json
    assert row == {
        "d": "1.10",
        "i": 9007199254740993,
        "t": "2011-03-01T10:00:00.123456Z",
        "day": "2011-03-01",
        "f": "nan",
        "a": [1, None],
        "s": {"x": "0.10"},
        "m": {"k": 1} if isinstance(row["m"], dict) else [["k", 1]],
        "n": None,
        "b": "6162",
        "i_2": 1,
    }


def test_sql_limits(built: Cli) -> None:
    query = "SELECT * FROM silver.transactions"
    table = built("sql", query)
    assert len(table.out.splitlines()) == 101
    assert "Only the first 100 rows" in table.err
    assert len(built("sql", query, "--limit", "3").out.splitlines()) == 4
    assert len(built("sql", query, "--json").json) > 100
    assert len(built("sql", query, "--json", "--limit", "3").json) == 3


def test_sql_reads_quarantines_joins_and_old_versions(built: Cli) -> None:
    assert built("sql", "SELECT count(*) n FROM silver.transactions_quarantine", "--json").json[0]["n"] > 0
    (row,) = built(
        "sql",
        "SELECT count(*) n, count(o.order_id) found FROM silver.transactions VERSION AS OF 0 t "
        "FULL JOIN silver.orders o ON o.order_id = t.order_id",
        "--json",
    ).json
    assert row["n"] == row["found"] > 0


def test_what_has_no_translation_is_left_to_spark(built: Cli) -> None:
    """Without it, a query would end at the border of one engine, or move to the other without a word."""
    said = built("sql", "SELECT sort_array(collect_set(source)) AS s FROM silver.transactions", "--json")
    assert said.json == [{"s": ["events", "online_retail"]}]
    assert "Spark answers this query, which takes longer: the function sort_array." in said.err
    query = (
        "SELECT currency, count(*), sum(amount), avg(amount) AS a FROM silver.transactions GROUP BY currency ORDER BY 1"
    )
    here, there = (built("sql", query, "--json", "--engine", engine) for engine in ("embedded", "spark"))
    assert here.json == there.json
    assert "Spark answers" not in here.err + there.err


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT nothing FROM silver.orders", "There is no column nothing"),
        ("SELECT first(nothing) FROM silver.orders", "`nothing` cannot be resolved"),
        ("SELECT * FROM orders", "There is no table orders. Did you mean silver.orders?"),
        ("SELECT * FROM nowhere.orders", "There is no table nowhere.orders"),
        ("SELECT (1", "The query cannot be read at '1': Expecting )"),
        ("SELECT cast(order_id AS int) FROM silver.orders WHERE order_id LIKE 'W%'", "CAST_INVALID_INPUT"),
        ("SELECT * FROM silver.orders VERSION AS OF 999", "999"),
    ],
)
def test_a_wrong_query_is_a_usage_error(built: Cli, query: str, told: str) -> None:
    said = built("sql", query)
    assert (said.code, said.out) == (2, "")
    assert told in said.err
    assert "Traceback" not in said.err
    assert "lake__" not in said.err


def test_history_lists_commits(built: Cli, first_backfill: tuple[Path, Result]) -> None:
    newest, *_, oldest = built("history", "silver.transactions", "--json").json
    assert newest["run_id"] == first_backfill[1].json["runs"][0]["run_id"]
    assert newest["days"] == GOOD
    assert newest["rows"] == by_table(first_backfill[1])["silver.transactions"]["rows"]
    assert newest["inputs"].keys() == {"bronze.online_retail", "bronze.events"}
    assert (oldest["version"], oldest["run_id"]) == (0, None)
    # An example that is read as it stands: version 0 is the empty table.
    assert f"--as-of silver.transactions={newest['version']}" in built("history", "silver.transactions").err
    assert built("history", "silver.transactions_quarantine").code == 0


def test_what_failed_is_fixed_alone_and_then_nothing_changes(copied: Path, tmp_path: Path) -> None:
    planned = run(copied, "backfill", "--failed-only", "--dry-run", "--json").json
    others = list(tables())[1:]
    assert planned["runs"] == [{"from": str(BAD), "to": str(BAD), "tables": others}]
    fixed = land(tmp_path / "sound")
    shutil.copy(fixed, copied / "landing" / "online_retail" / fixed.name)
    said = run(copied, "backfill", "--failed-only", "--json")
    assert said.code == 0, said.err
    assert {name: each["published"] for name, each in by_table(said).items()} == {name: [str(BAD)] for name in others}
    assert all(state["failed_days"] == [] for state in run(copied, "status", "--json").json)
    assert "Nothing to do" in run(copied, "backfill", "--failed-only").err
    # A backfill of everything builds only what the fixed day changes: later windows, and the days beside it, of whose
    # rows some might have been repeats of it.
    again = by_table(run(copied, "backfill", *RANGE, "--json"))
    assert {name for name, each in again.items() if each["published"]} <= set(list(tables())[2:])
    assert str(BAD) not in again["silver.transactions"]["published"]
    last = run(copied, "backfill", *RANGE)
    assert last.code == 0
    assert "Nothing changed" in last.out
    forced = by_table(run(copied, "materialize", "--from", str(LAST), "--force", "--select", "group:gold", "--json"))
    assert {name: each["published"] for name, each in forced.items()} == {
        "gold.daily_revenue": [str(LAST)],
        "gold.user_features": [str(LAST)],
    }


def test_an_engine_that_breaks_ends_with_3(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lakehouse.errors import EngineError

    def broken(_: LakehouseResource) -> None:
        raise EngineError("The engine is out of order.")

    monkeypatch.setattr(LakehouseResource, "lake", broken)
    said = run(copied, "backfill", *RANGE, "--select", "bronze.events+")
    assert said.code == 3
    assert "bronze.events broke: The engine is out of order." in said.err
    assert "silver.transactions 2011-03-01 … 2011-03-03 skipped: bronze.events broke" in said.err
    assert "engine.log" in said.err
    assert "engine-….log" in said.err, "a warm engine has a log of its own: engine.log is empty then"


def test_an_interrupted_backfill_goes_on_later(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:

        def interrupted(_: LakehouseResource) -> None:
            raise KeyboardInterrupt

        patch.setattr(LakehouseResource, "lake", interrupted)
        said = run(copied, "backfill", "--from", str(FIRST), "--to", str(FIRST), "--json")
    assert (said.code, said.json["runs"][0]["status"]) == (130, "CANCELED")
    later = run(copied, "backfill", "--failed-only", "--to", str(FIRST), "--json")
    assert later.code == 0
    assert {name: each["unchanged"] for name, each in by_table(later).items()} == {n: [str(FIRST)] for n in tables()}


def test_the_demo_shows_data_reasons_and_the_next_step(cli: Cli, root: Path) -> None:
    day = FIRST.isoformat()
    said = cli("demo", "--from", day, "--to", day)
    assert said.code == 0, said.err
    assert "gold.daily_revenue" in said.out
    assert "United Kingdom" in said.out
    assert "gold.user_features" in said.out
    assert "purchase_amount_positive" in said.out
    assert "landing/" in said.out
    assert "make dev" in said.err
    # A second demo lands nothing anew, and never over files that are there.
    again = cli("demo", "--from", day, "--to", day)
    assert again.code == 0
    assert "2 days had files already" in again.err
    assert "Nothing changed" in again.out
    assert (root / "dagster" / "dagster.yaml").exists()


def test_the_demo_on_a_folder(cli: Cli, tmp_path: Path) -> None:
    folder = land(tmp_path / "exports").parent
    said = cli("demo", "--source", str(folder), "--to", str(FIRST))
    assert said.code == 0, said.err
    assert f"Building every table for {FIRST} … {FIRST}" in said.err
    assert cli("demo", "--source", str(folder), "--from", "2012-01-01", "--to", "2012-01-02").code == 2


@pytest.mark.spark
def test_the_doctor_writes_and_reads_a_table(root: Path) -> None:
    """On an engine of its own, so in a process of its own."""
    command = [sys.executable, "-m", "lakehouse.cli", "doctor", "--json"]
    short = {"LAKEHOUSE_ROOT": str(root), "SPARK_SUBMIT_OPTS": ALONE["SPARK_SUBMIT_OPTS"]}
    said = subprocess.run(command, env=os.environ | short, stdout=subprocess.PIPE, check=False)
    (engine,) = [each for each in json.loads(said.stdout) if each["check"] == "engine"]
    assert engine["ok"], engine
    assert "published 50 rows and read them back" in engine["found"]
    assert not (root / "tables").exists()
