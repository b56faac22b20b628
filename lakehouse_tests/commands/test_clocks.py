"""`lakehouse clocks`: the producers of a lakehouse that was built, and what is said of their clocks."""

from __future__ import annotations

import pytest

from lakehouse.catalog import tables
from lakehouse.commands.inspect import clocks
from lakehouse.read.lake import PinnedLake
from lakehouse_tests.commands.conftest import RANGE, Cli


@pytest.mark.slow
def test_producers_and_their_clocks_are_listed(built: Cli) -> None:
    """Somebody has to be told whom to call; the figures are those of the three days that were landed."""
    said = built("clocks", *RANGE, "--json")
    found = {each["producer"]: each for each in said.json}
    assert found.keys() == {"events", "online_retail"}
    shop, retail = found["events"], found["online_retail"]
    assert (shop["table"], shop["days"], shop["rows"]) == ("silver.transactions", 3, 600)
    assert shop["impossible"].keys() <= {"far_ahead", "too_old", "mixed_units", "number"}
    # 2 % of the lines are in the future; what is far ahead is known of the two days that silver has.
    # Some were sent again a moment after midnight, in the file of the day before.
    assert 8 <= shop["impossible"]["far_ahead"] + shop["rows_ahead"] <= 20
    assert shop["rows_late"] >= 12, "2 % of the lines, and what was sent again"
    assert 1 <= shop["days_late"]["most"] <= 31
    assert (retail["rows_ahead"], retail["impossible"], retail["wrong_days"]) == (0, {}, [])
    assert said.code == (1 if shop["wrong_days"] else 0)
    shown = built("clocks", *RANGE)
    assert shown.code == said.code
    assert ("WRONG" in shown.out) == bool(shop["wrong_days"])


def test_without_figures_that_is_said(cli: Cli) -> None:
    """An empty table would look as if all clocks were right."""
    said = cli("clocks")
    assert (said.code, said.out) == (0, "")
    assert "No figures of producers yet" in said.err
    assert cli("clocks", "--json").json == []


def test_without_a_clock_in_any_table_that_is_said(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """It promised figures from the next build on, which no build of such tables keeps."""
    bare = {"bronze.events": tables()["bronze.events"]}
    monkeypatch.setattr(clocks, "lake_without_engine", lambda settings: PinnedLake(settings, bare))
    said = cli("clocks")
    assert (said.code, said.out) == (0, "")
    assert 'No table compares its event times with the arrival of its rows: write clock=Clock("…")' in said.err


def test_producers_can_be_landed(cli: Cli) -> None:
    """As the help says; mistakes end with 2 before anything lands."""
    said = cli(
        "land", "events", "--days", "1", "--rows", "30", "--seed", "1", "--producers", "web,app=+20m", "--json"
    )  # fmt: skip
    assert [each["path"].rpartition("/")[2] for each in said.json] == ["web-0000.jsonl.gz", "app-0000.jsonl.gz"]
    wrong = cli("land", "events", "--days", "1", "--rows", "30", "--seed", "1", "--producers", "web=fast")
    assert wrong.code == 2
    assert "expected a clock such as +20m" in wrong.err


@pytest.mark.slow
def test_reasons_are_told_in_words(built: Cli) -> None:
    """The name of a rule says what is wrong to who wrote it; others have to be told what to do."""
    said = built("quarantine", "show", "silver.transactions", "--rule", "event_time_not_in_future", "--limit", "1")
    assert (
        "event_time_not_in_future: event_time is at most 15 minutes after the end of its arrival day"
        in said.err.replace("\n", " ")
    )
    assert "have it set" in said.err
