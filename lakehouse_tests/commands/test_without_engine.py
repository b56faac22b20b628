"""Commands that start no engine: landing, dry runs, status, listings, doctor, dev."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
from datetime import date
from pathlib import Path
from typing import Any, NoReturn

import pytest
from deltalake import write_deltalake
from pyspark.sql import types as T
from rich.text import Text

from lakehouse.catalog import tables
from lakehouse.commands import console
from lakehouse.commands.operate import doctor
from lakehouse.commands.operate.doctor_lake import tidiness
from lakehouse.delta.commit import append
from lakehouse.delta.target import Commit
from lakehouse.records.erasures import BEGUN, Erasure, note
from lakehouse.records.ops import add_rows, ops_target
from lakehouse.runs.executing import Asked
from lakehouse.runs.reports import Report
from lakehouse.servers.ports import free_port, is_free
from lakehouse.settings import Settings
from lakehouse_tests.commands.conftest import RANGE, Cli, land
from lakehouse_tests.commands.test_maintenance import put, rows
from lakehouse_tests.conftest import ENGINES
from lakehouse_tests.fixtures.making import rows_of, stage_rows

EVENTS = ("land", "events", "--days", "2", "--rows", "20", "--seed", "5", "--from", "2011-03-01")


def tree(root: Path) -> dict[str, float]:
    """Every file below a folder and when it last changed."""
    return {path.relative_to(root).as_posix(): path.stat().st_mtime for path in root.rglob("*") if path.is_file()}


def test_events_are_landed_once(cli: Cli) -> None:
    said = cli(*EVENTS, "--json")
    assert [(each["day"], each["outcome"]) for each in said.json] == [("2011-03-01", "new"), ("2011-03-02", "new")]
    assert [each["outcome"] for each in cli(*EVENTS, "--json").json] == ["unchanged", "unchanged"]
    assert "2 files in" in (text := cli(*EVENTS).err)
    assert "backfill --from 2011-03-01 --to 2011-03-02" in text


def test_exports_are_landed_by_day(cli: Cli, root: Path, tmp_path: Path) -> None:
    folder = land(tmp_path / "other").parent
    said = cli("land", "online_retail", str(folder), "--from", "2011-03-02", "--json")
    assert [each["path"] for each in said.json] == [f"landing/online_retail/2011-03-0{n}.csv.gz" for n in (2, 3)]
    assert cli("land", "online_retail", str(folder), "--from", "2012-01-01").code == 2
    assert cli("land", "online_retail", str(root / "nowhere")).code == 2
    for name in ("2011-03-01", "sales.csv"):
        (tmp_path / "empty" / name).mkdir(parents=True)
    (tmp_path / "empty" / "sales.csv" / "a.txt").touch()
    said = cli("land", "online_retail", str(tmp_path / "empty"))
    assert said.code == 2
    assert f"expected {{day}}.csv.gz files in {tmp_path / 'empty'}" in said.err
    assert "got only sales.csv/a.txt; choose another" in said.err


def test_a_lakehouse_without_backfills_says_so(cli: Cli, root: Path) -> None:
    """Without it, looking for backfills would make the state of a root that was mistyped."""
    assert cli("backfills", "list", "--json").json == []
    assert "There is no backfill of the daemon yet" in cli("backfills", "list").err
    assert not root.exists()


def test_a_dry_run_lists_days_and_writes_nothing(cli: Cli, root: Path) -> None:
    land(root)
    before = tree(root)
    said = cli("backfill", *RANGE, "--dry-run", "--json")
    assert said.json["runs"] == [{"from": "2011-03-01", "to": "2011-03-03", "tables": list(tables())}]
    days = ["2011-03-01", "2011-03-02", "2011-03-03"]
    unknown = {"expected_seconds": None, "expected_rows": None}  # nothing was ever built
    assert said.json["tables"] == [{"table": name, "build": days, "unchanged": []} | unknown for name in tables()]
    assert "18 partitions would be built in 1 run" in cli("backfill", *RANGE, "--dry-run").err
    assert "0 partitions would be built" in cli("backfill", "--failed-only", "--dry-run").err
    assert tree(root) == before


def test_slices_are_for_tables_that_can_be_cut(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a backfill would seem to be sliced and build everything whole, or not tell its runs of it."""
    said = cli("backfill", *RANGE, "--slices", "8", "--dry-run")
    assert "In 8 slices: silver.transactions, gold.user_features. Built whole: bronze.events," in said.err
    refused = cli("backfill", *RANGE, "--slices", "8", "--select", "gold.daily_revenue", "--dry-run")
    assert (refused.code, "none of gold.daily_revenue can be cut" in refused.err) == (2, True)
    assert cli("backfill", *RANGE, "--slices", "0").code == 2

    slices: list[int] = []

    def recorded(*_: Any, asked: Asked, **__: Any) -> Report:
        slices.append(asked.slices)
        return Report()

    monkeypatch.setattr("lakehouse.commands.build.backfill.run_pieces", recorded)
    monkeypatch.setattr("lakehouse.commands.build.backfill.run_stale", recorded)
    cli("backfill", *RANGE, "--slices", "8")
    cli("backfill", "--stale", "--slices", "4", "--select", "gold.user_features")
    cli("backfill", *RANGE)
    assert slices == [8, 4, 1]


def test_a_backfill_begins_the_engine_that_its_runs_will_use(
    cli: Cli, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a backfill with an engine of its own would start the everyday one too, and leave it without work."""
    begun: list[Settings] = []
    monkeypatch.setattr("lakehouse.spark.warm.begin", begun.append)
    monkeypatch.setattr("lakehouse.commands.build.backfill.run_pieces", lambda *_, **__: Report())
    land(root)
    monkeypatch.setenv("LAKEHOUSE_BACKFILL_SPARK_MEMORY", "3g")
    cli("backfill", *RANGE)
    assert [each.spark_memory for each in begun] == ["3g"]
    monkeypatch.setenv("LAKEHOUSE_BACKFILL_SPARK_URL", "sc://elsewhere:15002")
    cli("backfill", *RANGE)
    assert len(begun) == 1, "one that is elsewhere is nothing to start"


def test_nothing_failed_is_nothing_to_do(cli: Cli) -> None:
    said = cli("backfill", "--failed-only")
    assert (said.code, said.out) == (0, "")
    assert "Nothing to do" in said.err


def test_an_empty_lakehouse_has_a_status(cli: Cli, root: Path) -> None:
    said = cli("status", "--json")
    assert said.code == 0
    assert [(each["table"], each["version"], each["fresh"]) for each in said.json] == [
        (name, -1, False) for name in tables()
    ]
    assert "demo" in cli("status").err
    assert cli("status", "--strict", "--select", "group:gold").code == 1
    assert not root.exists()


def test_status_names_the_next_step_of_a_lake_that_was_never_built(cli: Cli) -> None:
    """Without it, whoever has landed files would be sent to the demonstration, which has days of its own."""
    assert "Nothing was built yet" in cli("status").err
    cli(*EVENTS)
    told = cli("status").err
    assert "backfill --stale" in told
    assert "demo" not in told
    assert "bronze.events: 2011-03-01 … 2011-03-02 have input and were never built" in told
    unbuilt = {each["table"]: each["unbuilt_days"] for each in cli("status", "--json").json}
    assert {name: days for name, days in unbuilt.items() if days} == {"bronze.events": ["2011-03-01", "2011-03-02"]}
    assert "None of these was built yet" in cli("status", "--select", "group:gold").err


def test_stale_days_of_a_lake_that_was_never_built_are_not_said_to_be_published(cli: Cli, root: Path) -> None:
    """Without it, whoever has a wrong LAKEHOUSE_ROOT is told that every day is there."""
    told = cli("backfill", "--stale").err.replace("\n", " ")
    assert "Nothing to do: nothing was built yet in" in told
    assert root.name in told
    assert "LAKEHOUSE_ROOT" in told
    assert "every day is published" not in told


def test_tables_and_contracts_are_listed(cli: Cli) -> None:
    assert [each["table"] for each in cli("tables", "--json").json] == list(tables())
    facts = cli("describe", "silver.transactions", "--json").json
    assert {column["name"] for column in facts["columns"] if column["personal_data"]} == {"user_id", "email_token"}
    assert facts["rules"].keys() == {rule.name for rule in tables()["silver.transactions"].rules}
    text = cli("describe", "silver.transactions").out
    assert all(word in text for word in ("currency_known", "row_conservation", "team:sales", "never null"))


def test_queries_of_what_is_not_there_need_no_engine(cli: Cli) -> None:
    said = cli("sql", "select * from gold.user_features")
    assert said.code == 2
    assert "gold.user_features was never built" in said.err
    assert "backfill --select '+gold.user_features'" in said.err
    assert cli("sql", "select * from gold.users").code == 2


def test_maintenance_of_selected_tables(cli: Cli, root: Path) -> None:
    """Any Delta table in a table's place will do here."""
    path = root / "tables" / "gold" / "user_features"
    for first in (0, 10):
        write_deltalake(path, rows(first, 10), partition_by=["day"], mode="append")
    assert cli("compact", "--dry-run", "--json").json == [
        {"table": "gold.user_features", "files_before": 2, "files_after": 1, "partitions": 1}
    ]
    assert cli("compact", "--select", "group:silver", "--json").json == []
    assert cli("compact", "--select", "group:gold").code == 0
    assert cli("vacuum", "--json").json == [{"table": "gold.user_features", "files": [], "bytes": 0}]
    assert "0 files removed" in cli("vacuum", "--hours", "24", "--shorten-undo").err
    said = cli("vacuum", "--hours", "24")
    assert (said.code, "LAKEHOUSE_UNDO_DAYS" in said.err) == (2, True)


def test_maintenance_of_the_lakehouse_s_own_tables(cli: Cli, root: Path) -> None:
    """Without it, what the lakehouse keeps about itself would grow for ever: no contract names these tables.

    Which they are is read from the disk, so that a new one is tidied and can be queried without being listed anywhere.
    """
    note(root, Erasure("id-0", BEGUN, ("aa",)))
    schema = T.StructType([T.StructField("table", T.StringType()), T.StructField("n", T.LongType())])
    for n in range(2):
        add_rows(ops_target(root, "ops.novelties", schema, "New"), "silver.orders", [{"n": n}], {"n": n + 1})
    orphans = [put(root / "tables" / "ops" / name / "staged" / "part-0", 500) for name in ("erasures", "novelties")]
    assert cli("vacuum", "--select", "group:gold", "--json").json == []
    rehearsed = cli("vacuum", "--dry-run", "--json").json
    assert [(each["table"], each["files"]) for each in rehearsed] == [
        (f"ops.{name}", ["staged/part-0"]) for name in ("erasures", "novelties")
    ]
    assert [orphan.exists() for orphan in orphans] == [True, True]
    assert cli("vacuum", "--json").json == rehearsed
    assert [orphan.exists() for orphan in orphans] == [False, False]
    assert {each["table"]: each["files_after"] for each in cli("compact", "--json").json} == {
        "ops.erasures": 0,
        "ops.novelties": 1,
    }
    assert [row["n"] for row in rows_of(root / "tables" / "ops" / "novelties")] == [0, 1]
    assert "ops.novelties" in cli("sql", "select * from ops.novelty").err


def findings(said: Any) -> dict[str, dict[str, Any]]:
    return {each["check"]: each for each in said.json}


def test_the_doctor_finds_nothing_wrong(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "is_free", lambda _: True)
    said = cli("doctor", "--no-engine", "--json")
    assert [each["check"] for each in said.json] == [
        *(
            "python",
            "settings",
            "packages",
            "java",
            "jars",
            "folders",
            "privacy",
            "pii key",
            "port",
            "dagster",
            "tables",
            "tidy",
            "landing",
            "lineage",
            "warm engine",
        ),
    ]
    assert [each for each in said.json if not each["ok"]] == []
    assert said.code == 0


def test_the_doctor_says_how_to_fix(cli: Cli, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.write_text("a file in the place of the folder")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("LAKEHOUSE_PORT", str(taken.getsockname()[1]))
        monkeypatch.setenv("LAKEHOUSE_JARS_DIR", str(tmp_path / "no jars"))
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no java"))
        monkeypatch.setattr(doctor, "version", lambda name: "0.1" if name == "deltalake" else "1")
        monkeypatch.setattr(doctor, "requires", lambda _: ["deltalake==1.6.6", "pandera[pyspark]==0.35.0"])
        said = cli("doctor", "--json")
    assert said.code == 1
    found = findings(said)
    bad = {check for check, each in found.items() if not each["ok"]}
    assert bad == {"packages", "java", "jars", "folders", "port"}
    assert all(found[check]["fix"] for check in bad)
    assert found["packages"]["found"] == "deltalake 0.1 instead of 1.6.6; pandera 1 instead of 0.35.0"
    assert "Install a Java 17" in found["java"]["fix"]
    assert "python -m lakehouse.spark.jars" in found["jars"]["fix"]


def test_the_doctor_says_which_tables_are_untidy(cli: Cli, root: Path) -> None:
    """Without it, a lake whose upkeep is switched off would only become slower."""
    target = ops_target(
        root, "ops.notes", T.StructType([T.StructField(n, T.StringType()) for n in ("about", "id")]), ""
    )
    for number in range(4):
        append(target, stage_rows(target, [{"about": "x", "id": "a"}]), Commit({"batch": number + 1}))
    assert findings(cli("doctor", "--no-engine", "--json"))["tidy"]["found"].startswith(
        "4 files, at most 5 log entries"
    )
    with pytest.raises(doctor.ProblemError, match="small files to merge: ops.notes 4") as caught:
        tidiness(Settings(root=root), many=3)
    assert "lakehouse compact" in caught.value.fix


def test_the_doctor_names_folders_of_no_table(cli: Cli, root: Path) -> None:
    """Without it, the rows of a table that was renamed stay for ever, people's included, and nobody is told."""
    at = root / "tables" / "silver"
    for name in ("orders", "orders_quarantine", "orders__candidate", "buyers", "buyers_quarantine"):
        (at / name / "_delta_log").mkdir(parents=True)
    (at / "notes").mkdir()  # no table
    found = findings(cli("doctor", "--no-engine", "--json"))["tables"]
    assert (found["ok"], found["found"]) == (False, "2 folders of no table: silver.buyers, silver.buyers_quarantine")
    assert str(root / "tables") in found["fix"]
    for name in ("buyers", "buyers_quarantine"):
        shutil.rmtree(at / name)
    assert findings(cli("doctor", "--no-engine", "--json"))["tables"]["found"] == "3 folders, each of a table"


def test_files_that_no_table_reads_are_named(cli: Cli, root: Path) -> None:
    """Without it, what a producer lands under a wrong name would be passed over, and nobody told."""
    for day in range(7):
        path = root / f"landing/online_retail/2026-3-{day + 1}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    said = cli("doctor", "--no-engine", "--json")
    found = findings(said)["landing"]
    assert (said.code, found["ok"]) == (1, False)
    assert found["found"].startswith("7 landed files that no table reads: online_retail/2026-3-1.csv.gz, ")
    assert found["found"].endswith("2026-3-5.csv.gz, …")
    assert "land-your-files.md" in found["fix"]
    for told in (cli("status").err, cli("backfill", "--stale").err):
        assert found["found"] in " ".join(told.split())
        assert "land-your-files.md" in told


def test_the_doctor_reads_a_wrong_setting(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_SPARK_MEMORY", "plenty")
    said = cli("doctor", "--json")
    assert said.code == 1
    assert "LAKEHOUSE_SPARK_MEMORY" in findings(said)["settings"]["found"]


def test_a_root_that_others_can_read_is_a_problem(cli: Cli, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a lake of an earlier release would stay open to everybody on the machine."""
    (root / "landing").mkdir(parents=True)
    settings = Settings(root=root)
    for folder in (root, root / "landing"):
        folder.chmod(0o755)
    with pytest.raises(doctor.ProblemError) as problem:
        doctor._privacy(settings)
    assert str(root / "landing") in problem.value.found
    assert f"chmod -R go-rwx {root}" in problem.value.fix
    assert "share-a-root.md" in problem.value.fix
    for mode, told in ((0o750, "open to its group"), (0o700, "yours alone")):
        root.chmod(mode)
        assert told in doctor._privacy(settings)


def test_a_key_that_others_can_read_is_a_problem(root: Path) -> None:
    settings = Settings(root=root, pii_key=None)
    assert "not made yet" in doctor._pii_key(settings)
    settings.pii_key_bytes()
    assert str(root) in doctor._pii_key(settings)
    (root / "keys" / "pii.key").chmod(0o644)
    with pytest.raises(doctor.ProblemError, match="can be read by others"):
        doctor._pii_key(settings)


def test_no_warm_engine_is_no_error(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, whoever asks for the engine would wait for one that nothing uses."""
    monkeypatch.setenv("LAKEHOUSE_ENGINE_MINUTES", "0")
    monkeypatch.delenv(ENGINES)
    wrong = cli("engine", "start")
    assert (wrong.code, "LAKEHOUSE_ENGINE_MINUTES is 0" in wrong.err) == (2, True)
    assert cli("engine", "status", "--json").json == []
    assert "each process has an engine of its own" in cli("engine", "status").err
    assert "No engine is on" in cli("engine", "stop").err


def test_dev_becomes_dagster(cli: Cli, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell's background job ignores SIGINT; the web interface must not."""
    called: list[Any] = []

    def execve(*arguments: object) -> NoReturn:
        called.extend([*arguments, signal.getsignal(signal.SIGINT)])
        raise SystemExit(0)

    monkeypatch.setattr(os, "execve", execve)
    reports: list[Any] = []  # its server is that of lakehouse_tests/report/test_serve.py
    monkeypatch.setattr("lakehouse.report.serve.start", lambda *given: reports.append(given))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        cli("dev", "--port", str(free_port()))
    finally:
        signal.signal(signal.SIGINT, before)
    program, arguments, environment, handler = called
    assert program == sys.executable
    assert arguments[1:6] == ["-m", "lakehouse.orchestration.dev", "dev", "-h", "127.0.0.1"]
    workspace = arguments[arguments.index("-w") + 1]
    assert "lakehouse.definitions" in Path(workspace).read_text(encoding="utf-8")
    assert arguments[-2:] == ["--log-level", "warning"]
    assert environment["DAGSTER_HOME"] == str(root / "dagster")
    assert environment["LAKEHOUSE_ROOT"] == str(root)
    ((port, given),) = reports
    assert environment == given
    assert environment["LAKEHOUSE_REPORT_URL"] == f"http://127.0.0.1:{port}/"
    assert handler == signal.SIG_DFL


def test_dev_refuses_a_taken_port(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert not is_free(port)
        said = cli("dev", "--port", str(port))
    assert said.code == 2
    assert f"Port {port} of 127.0.0.1 is taken" in said.err


def test_cells_are_shown_as_they_are() -> None:
    """Markup in data is data."""
    assert console.cell("[red]x[/red]").plain == "[red]x[/red]"
    assert console.cell(None).plain == ""
    assert console.cell(1234567).plain == "1,234,567"
    assert console.cell(True).plain == "yes"
    assert console.cell(date(2011, 3, 1)).plain == "2011-03-01"
    assert console.cell(Text("kept")).plain == "kept"


def test_descriptors_are_put_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What the engine prints goes to its log, and only while it is on."""
    with console.engine_output_aside(Settings(root=tmp_path)):
        os.write(1, b"from the engine\n")
        os.write(2, b"a warning\n")
    os.write(1, b"data\n")
    assert capfd.readouterr() == ("data\n", "")
    assert (tmp_path / "logs" / "engine.log").read_text() == "from the engine\na warning\n"
