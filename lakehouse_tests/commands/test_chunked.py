"""`lakehouse backfill --days-per-run`, and what every backfill says before it starts. Without an engine: nothing landed."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from lakehouse.catalog import tables
from lakehouse.orchestration.pieces import Piece
from lakehouse.records.estimate import Estimate
from lakehouse.runs.plans import DayPlan, forecast, plan_days
from lakehouse.runs.reports import Report, RunReport, TableOutcome
from lakehouse.settings import Settings
from lakehouse_tests.commands.conftest import Cli

BRONZE = ("--select", 'key:"bronze/*"', "--from", "2011-03-01", "--to", "2011-03-07")
D = [date(2011, 3, day) for day in range(1, 8)]


@pytest.mark.slow
def test_a_range_is_cut_into_runs_of_so_many_days(cli: Cli) -> None:
    """Without it, years of days would be one run, whose failure is the failure of all of them."""
    said = cli("backfill", *BRONZE, "--days-per-run", "3", "--json")
    assert said.code == 0, said.err
    spans = [(run["from"][-2:], run["to"][-2:], run["status"]) for run in said.json["runs"]]
    assert spans == [("01", "03", "SUCCESS"), ("04", "06", "SUCCESS"), ("07", "07", "SUCCESS")]
    assert all(len(each["published"]) == len(D) for each in said.json["tables"])
    assert "Before the start: 14 partitions to build in 3 runs, no figures yet for 2 tables." in said.err
    again = cli("backfill", *BRONZE, "--days-per-run", "3")
    assert "Before the start: 0 partitions to build in 3 runs." in again.err
    assert "Nothing changed" in again.out


def test_a_dry_run_lists_the_runs(cli: Cli) -> None:
    """Without it, nobody could see what a limit comes to; bronze is whole before silver, whose days it may hold."""
    planned = cli("backfill", "--select", "bronze.events+", *BRONZE[2:], "--days-per-run", "4", "--dry-run", "--json")
    runs = [(run["tables"][0], run["from"][-2:]) for run in planned.json["runs"]]
    assert runs == [
        ("bronze.events", "01"),
        ("bronze.events", "05"),
        ("silver.transactions", "01"),
        ("silver.orders", "01"),
        ("gold.user_features", "01"),
        ("silver.transactions", "05"),
        ("silver.orders", "05"),
        ("gold.user_features", "05"),
    ]


@pytest.mark.parametrize("chosen", ["--stale", "--older-code"])
def test_what_is_decided_table_by_table_has_no_such_limit(cli: Cli, chosen: str) -> None:
    """Without it, the option would be taken and do nothing."""
    said = cli("backfill", chosen, "--days-per-run", "5")
    assert said.code == 2
    assert "no --days-per-run" in said.err
    assert cli("backfill", *BRONZE, "--days-per-run", "0").code == 2


def test_former_names_of_options_work_and_are_not_listed(cli: Cli) -> None:
    """Without it, scripts of before would break, or people would find two words for one thing."""
    for former, now in (("--touched", "--stale"), ("--outdated", "--older-code")):
        said = cli("backfill", former, "--dry-run", "--json")
        assert (said.code, said.json) == (0, cli("backfill", now, "--dry-run", "--json").json)
        said = cli("backfill", "--help")
        assert now in said.out
        assert former not in said.out
    assert cli("backfill", "--outdate", "--dry-run").code == 2


def test_the_forecast_adds_up_what_is_known() -> None:
    """Without it, tables that were never built would make the whole look free, or unknown."""
    plans = [
        DayPlan("bronze.events", D, [], Estimate(10.4, 700)),
        DayPlan("silver.transactions", D[:2], D[2:], Estimate(20.2, 1400)),
        DayPlan("gold.daily_revenue", D[:1], [], Estimate(None, None)),
        DayPlan("gold.user_features", [], D, Estimate(99.0, 99)),
    ]
    assert forecast(plans, 4) == (
        "Before the start: 10 partitions to build in 4 runs, about 2,100 rows, "
        "about 31 s of work as builds before it went, no figures yet for 1 table."
    )


def test_what_was_never_built_has_no_figures(root: Path) -> None:
    """Without it, it would be said to take no time."""
    (plan,) = plan_days(Settings(root=root), ["bronze.events"], {"bronze.events": D}, pieces=[])
    assert (plan.build, plan.estimate) == (D, Estimate(None, None))
    cut = [Piece(("bronze.events",), D[0], D[3]), Piece(("bronze.events",), D[4], D[6])]
    (plan,) = plan_days(Settings(root=root), ["bronze.events"], {"bronze.events": D}, pieces=cut)
    assert plan.estimate == Estimate(None, None)


def test_a_run_is_told_what_those_before_it_did_not_publish() -> None:
    """Without it, days that failed in bronze's runs would be published by those of silver, from what is there."""
    report = Report({name: TableOutcome(name) for name in tables()})
    report.runs.append(RunReport("1", Piece(("bronze.events",), D[0], D[3])))
    report.tables["bronze.events"].failed[D[1]] = "source_readable: ends early"
    report.tables["bronze.events"].skipped[D[5]] = "its process was killed by SIGKILL"
    report.tables["silver.transactions"].failed[D[0]] = "volume: too few"
    both = Piece(("silver.transactions", "gold.daily_revenue"), D[0], D[3])
    assert report.not_published(both, tables()) == {"bronze.events": {D[1]: "source_readable: ends early"}}
    assert report.not_published(Piece(("gold.daily_revenue",), D[0], D[3]), tables()) == {
        "silver.transactions": {D[0]: "volume: too few"}
    }
    assert report.not_published(Piece(("silver.transactions",), D[6], D[6]), tables()) == {}
