"""`history`, `restore` and `sql --as-of`: what they say, what they refuse, and what they leave alone."""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from lakehouse.catalog import get_table, tables
from lakehouse.commands.change import candidate, late
from lakehouse.delta.commit import ensure_table
from lakehouse.delta.log import versions
from lakehouse.errors import UsageError
from lakehouse.read.lake import Lake
from lakehouse.read.targets import targets
from lakehouse.runs.reports import Report
from lakehouse.settings import Settings
from lakehouse.texts import program
from lakehouse.users import operator
from lakehouse.versions.moments import parse_moment
from lakehouse_tests.commands.conftest import BAD, FIRST, LAST, Cli, run
from lakehouse_tests.commands.test_without_engine import tree
from lakehouse_tests.fixtures.making import put, rows_of

REVENUE = "gold.daily_revenue"
MONDAY, TUESDAY = date(2011, 3, 7), date(2011, 3, 8)


def revenue(country: str) -> list[dict[str, Any]]:
    """A day with one row."""
    zero = Decimal("0.00")
    figures = {"gross_revenue": Decimal("5.00"), "cancelled_amount": zero, "net_revenue": Decimal("5.00")}
    return [{"country": country, "currency": "GBP", "purchases": 1, "cancellations": 0, **figures}]


@pytest.fixture
def moment(root: Path) -> str:
    """Versions 1 and 2 publish Monday and Tuesday, version 3 Monday anew; the time between 2 and 3."""

    def refuse() -> NoReturn:
        raise AssertionError("no engine is needed")

    lake = Lake(Settings(root=root), tables(), refuse)
    put(lake, get_table(REVENUE), MONDAY, revenue("France"))
    put(lake, get_table(REVENUE), TUESDAY, revenue("Spain"))
    time.sleep(0.01)
    between = datetime.now(UTC).isoformat()
    time.sleep(0.01)
    put(lake, get_table(REVENUE), MONDAY, revenue("Frnace"))
    return between


def countries(root: Path) -> list[str]:
    return sorted(row["country"] for row in rows_of(root / "tables" / "gold" / "daily_revenue"))


@pytest.mark.usefixtures("moment")
def test_history_says_what_is_needed_to_choose_a_version(cli: Cli, root: Path) -> None:
    """Without it, people would restore by guess, or a version whose files are gone."""
    said = cli("history", REVENUE, "--json").json
    told = [(e["version"], e["days"], e["rows_before"], e["rows"], e["readable"]) for e in said]
    monday, tuesday = [str(MONDAY)], [str(TUESDAY)]
    assert told == [(3, monday, 2, 2, True), (2, tuesday, 1, 2, True), (1, monday, 0, 1, True), (0, [], 0, 0, True)]
    for file in (root / "tables" / "gold" / "daily_revenue").rglob("part-*.parquet"):
        if "France" in str(rows_of_file(file)):
            file.unlink()
    said = cli("history", REVENUE)
    assert [line.rstrip().split("  ")[-1].strip() for line in said.out.splitlines()[1:]] == [
        "yes", "no: 1 file gone", "no: 1 file gone", "yes",
    ]  # fmt: skip
    assert "--as-of gold.daily_revenue=3" in said.err, "of those that can be read, version 0 is the empty table"
    assert "restore gold.daily_revenue --version N" in said.err
    assert [e["version"] for e in cli("history", REVENUE, "--limit", "2", "--json").json] == [3, 2]


def test_the_history_of_a_quarantine_names_no_command_that_is_refused(cli: Cli, root: Path) -> None:
    """Without it, people would be sent to a restore of the quarantine alone, which there is not."""
    lake = Lake(Settings(root=root), tables(), lambda: None)  # type: ignore[arg-type, return-value]
    _, side = targets(lake, get_table("silver.transactions"))
    assert side is not None
    ensure_table(side)
    said = cli("history", "silver.transactions_quarantine")
    assert "--as-of silver.transactions_quarantine=0" in said.err
    assert "restore" not in said.err


def rows_of_file(file: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    found: list[dict[str, Any]] = pq.read_table(file, partitioning=None).to_pylist()
    return found


def test_a_restore_by_time_or_version(cli: Cli, root: Path, moment: str) -> None:
    """Without it, undo would need a person who knows version numbers by heart, or could be done to the wrong one."""
    before = tree(root)
    rehearsed = cli("restore", REVENUE, "--as-of", moment, "--dry-run")
    assert "1 day would be restored to version 2" in rehearsed.err
    assert tree(root) == before
    said = cli("restore", REVENUE, "--as-of", moment, "--reason", "typo", "--json").json
    assert (said["version"], said["committed"], said["days"], said["stale"]) == (2, 4, [str(MONDAY)], {})
    assert countries(root) == ["France", "Spain"]
    assert "already" in cli("restore", REVENUE, "--version", "2").err
    back = cli("restore", REVENUE, "--version", "3", "--from", str(MONDAY), "--to", str(TUESDAY))
    assert (back.code, countries(root)) == (0, ["Frnace", "Spain"])
    listed = cli("history", REVENUE)
    assert "Version 4: restore to version 2 by " in listed.err
    assert ": typo\n" in listed.err
    newest = versions(root / "tables" / "gold" / "daily_revenue")[0].entry
    assert newest.facts["lakehouse.by"]


def test_a_restore_that_a_run_would_take_back_says_so(cli: Cli, root: Path, moment: str) -> None:
    """Without it, a run over the days would take the restore back, and nobody knew that it would."""
    assert moment
    said = cli("restore", REVENUE, "--version", "2", "--from", str(MONDAY), "--to", str(MONDAY))
    assert f"The inputs of {REVENUE} {MONDAY} have changed since that version" in said.err, said.err
    assert "Nothing builds these days by itself until their inputs change once more" in said.err
    assert f"backfill --stale --select {REVENUE}" in said.err
    assert f"{REVENUE}: somebody restored {MONDAY}, which waits for a new input" in cli("status").err
    assert countries(root) == ["France", "Spain"]


@pytest.mark.usefixtures("moment")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["restore", REVENUE], 2, "Give --version N or --as-of TIME"),
        (["restore", REVENUE, "--version", "1", "--as-of", "2011-01-01"], 2, "Give --version N or --as-of TIME"),
        (["restore", REVENUE, "--version", "9"], 2, "has no version 9; its newest is 3"),
        (["restore", REVENUE, "--as-of", "yesterday"], 2, "'yesterday' is no time"),
        (["restore", REVENUE, "--as-of", "2011-01-01"], 2, "cannot be read as of 2011-01-01T00:00:00Z: its log begins"),
        (["restore", REVENUE, "--version", "1", "--from", "2011-03-07"], 2, "Give both --from and --to"),
        (["restore", "silver.orders", "--version", "1"], 2, "never built"),
        (["sql", f"select * from {REVENUE}", "--as-of", "soon"], 2, "'soon' is no time"),
        (["sql", f"select * from {REVENUE}", "--as-of", "2011-01-01"], 2, "its log begins"),
        (["sql", f"select * from {REVENUE}", "--as-of", "gold.revenue=1"], 2, "Did you mean gold.daily_revenue"),
        (["sql", f"select * from {REVENUE}", "--as-of", f"{REVENUE}=new"], 2, "'new' is no version"),
        (["sql", f"select * from {REVENUE}", "--as-of", "silver.orders=1"], 2, "which the query does not read"),
        (["sql", f"select * from {REVENUE}", "--as-of", f"{REVENUE}=9"], 2, "no version 9; its versions are 0 to 3"),
        (["sql", f"select * from {REVENUE}", "--as-of", f"{REVENUE}=1"], 2, "cannot be read any more: a vacuum"),
    ],
)
def test_what_cannot_be_undone_or_read_is_said(
    cli: Cli, root: Path, arguments: list[str], code: int, message: str
) -> None:
    """Without it, a wrong word would end in a stack trace of the engine, or in a restore of something else."""
    for file in (root / "tables" / "gold" / "daily_revenue").rglob("part-*.parquet"):
        file.unlink()
    said = cli(*arguments)
    assert said.code == code, said.err
    assert message in " ".join(said.err.split())


def test_a_time_without_a_zone_is_utc() -> None:
    """Without it, a restore on a laptop abroad would go to another hour."""
    assert parse_moment("2026-11-20T10:00") == datetime(2026, 11, 20, 10, tzinfo=UTC)
    assert parse_moment("2026-11-20T10:00+02:00") == datetime(2026, 11, 20, 8, tzinfo=UTC)
    with pytest.raises(UsageError):
        parse_moment("10 o'clock")


@pytest.mark.spark
@pytest.mark.slow
def test_reading_the_past_and_going_back_to_it(copied: Path) -> None:
    """Without it, `--as-of` could read a mixture of now and then, and a restore leave downstream tables as they are."""
    count = "SELECT (SELECT count(*) FROM silver.transactions) AS a, (SELECT count(*) FROM silver.orders) AS b"
    now = run(copied, "sql", count, "--json").json[0]
    first = datetime.fromisoformat(run(copied, "history", "silver.orders", "--json").json[-1]["time"])
    past = run(copied, "sql", count, "--as-of", first.isoformat(), "--json").json[0]
    assert past == {"a": now["a"], "b": 0}
    past = run(copied, "sql", count, "--as-of", "silver.transactions=0", "--as-of", "silver.orders=1", "--json").json[0]
    assert past == {"a": 0, "b": now["b"]}

    said = run(copied, "restore", "silver.transactions", "--version", "0", "--json").json
    assert said["rows_gone"] == now["a"]
    assert said["days"] == said["behind"] == [str(FIRST), str(LAST)]
    assert set(said["stale"]) == {"silver.orders", "gold.daily_revenue", "gold.user_features"}
    assert {str(FIRST), str(LAST)} <= set(said["stale"]["gold.daily_revenue"])
    again = run(copied, "restore", "silver.transactions", "--version", "1")
    assert "No table that depends on it is stale" in again.err or str(BAD) in again.err
    assert "from the newest inputs again" not in again.err, "that version is what the inputs give"
    assert run(copied, "sql", count, "--json").json[0] == now
    plan = run(copied, "backfill", "--stale", "--select", "silver.transactions+", "--dry-run", "--json").json
    built = {each["table"]: each["build"] for each in plan["tables"]}
    assert str(FIRST) not in built["silver.transactions"], "restored days are current"


@pytest.mark.spark
@pytest.mark.slow
def test_a_candidate_from_build_to_drop(copied: Path) -> None:
    """Without it, a new version of a table could not be tried and put in place by the commands that promise it."""
    name, days = "silver.transactions", ("--from", str(FIRST), "--to", str(FIRST))
    count = f"SELECT count(*) AS n, count(CASE event_date WHEN '{FIRST}' THEN 1 END) AS first FROM {name}"
    before = run(copied, "sql", count, "--json").json
    assert run(copied, "candidate", "compare", name).code == 3
    built = run(copied, "candidate", "build", name, *days, "--json")
    assert (built.code, built.json["failed"]) == (0, {}), built.err
    assert run(copied, "candidate", "build", name, *days, "--json").json["published"] == [], "a repeat builds nothing"
    same = run(copied, "candidate", "compare", name, "--json")
    assert (same.code, same.json["same"], same.json["rows_live"]) == (0, True, before[0]["first"]), same.json
    assert same.json["overtaken"] == []
    assert run(copied, "sql", f"SELECT * FROM {name}__candidate").code == 2, "nobody reads it by name"
    said = run(copied, "candidate", "swap", name, "--reason", "as a test", "--json").json
    assert said["rows"] == said["rows_before"] == before[0]["first"]
    assert said["kept"] == [str(LAST)]
    assert "removed" in run(copied, "candidate", "drop", name).err
    assert run(copied, "sql", count, "--json").json == before
    assert run(copied, "history", name, "--json").json[0]["operation"] == "swap"
    assert re.search(r" swap +candidate-[0-9a-f]{8} ", run(copied, "history", name).out)  # and not candidat
    plan = run(copied, "backfill", "--select", name, *days, "--dry-run", "--json").json
    assert [each["build"] for each in plan["tables"]] == [[]], "the next run finds the swapped day current"


def test_the_history_names_who_took_late_rows_in(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a decision that changes reported numbers would stand in the history as nobody's."""
    monkeypatch.setattr(late, "late_rows", lambda *_: {MONDAY: (1, TUESDAY)})  # a row that came on Tuesday
    monkeypatch.setattr("lakehouse.runs.running.run_stale", lambda *_, **__: Report())
    table = next(each.id for each in tables().values() if each.allowed_lateness is not None and not each.landing)
    assert cli("late", "apply", table, "--reason", "agreed with finance").code == 0
    entry, *_ = cli("history", f"{table}_quarantine", "--json").json
    assert (entry["operation"], entry["by"], entry["reason"]) == ("accept late rows", operator(), "agreed with finance")


def test_a_late_apply_that_was_killed_between_its_tables_is_ended_by_the_next(
    cli: Cli, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, it would say that nothing waits, and sums would stay without the rows that were taken in."""
    table, built = "silver.transactions", dict[str, Any]()
    monkeypatch.setattr(late, "late_rows", lambda *_: {MONDAY: (1, TUESDAY)})
    monkeypatch.setattr("lakehouse.runs.running.run_stale", lambda *_, **more: built.update(more["only"]) or Report())
    assert cli("late", "apply", table, "--reason", "agreed").code == 0
    assert built == {table: {MONDAY}}

    built.clear()
    monkeypatch.setattr(late, "late_rows", lambda *_: {})  # the table was built, and nothing that reads it
    monkeypatch.setattr(late, "known_days", lambda *_: {MONDAY, TUESDAY})
    monkeypatch.setattr(late, "all_stale_days", lambda _, each: [MONDAY] if each.id == REVENUE else [])
    assert cli("late", "apply", table, "--reason", "agreed", "--dry-run").code == 0
    assert not built
    said = cli("late", "apply", table, "--reason", "agreed")
    assert (said.code, built) == (0, {table: {MONDAY}}), said.err  # what reads it is not limited
    assert f"{MONDAY}, taken in before" in said.err

    built.clear()
    monkeypatch.setattr(late, "all_stale_days", lambda *_: [])
    assert f"No row of {table} waits" in cli("late", "apply", table, "--reason", "agreed").err
    assert not built, "all of it is built"


@pytest.mark.parametrize(
    ("overtaken", "alone", "retyped", "next_one"),
    [
        ([], [], [], "candidate swap"),
        ([FIRST, LAST], [], [], "candidate build"),
        ([], [FIRST, LAST], ["amount"], "candidate build"),
        ([], [FIRST, LAST], [], "candidate swap"),
        ([], [], ["amount"], "candidate swap"),
    ],
)
def test_a_comparison_says_what_can_be_done_next(
    overtaken: list[date], alone: list[date], retyped: list[str], next_one: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without it, it would point to a swap that is refused: days were published since, or would have two types."""
    found: Any = SimpleNamespace(same=False, retyped=retyped, removed=[])
    candidate._say_next(tables()["silver.transactions"], found, overtaken, alone)
    said = capsys.readouterr().err
    assert f"Next: {program()} {next_one} silver.transactions" in said
    assert (str(LAST) in said) == (next_one == "candidate build")
