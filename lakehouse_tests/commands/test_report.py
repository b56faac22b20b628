"""`lakehouse report`: one file, whole or not at all, of the tables and days that were asked for."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from lakehouse_tests.commands.conftest import Cli, land
from lakehouse_tests.report.reading import read


def test_an_empty_root_is_left_as_it_is(cli: Cli, root: Path, tmp_path: Path) -> None:
    """Without it, a root that was mistyped would be made by looking at it; with --out, the page says how to begin."""
    said = cli("report")
    assert said.code == 2
    assert f"There is no lakehouse in {root}" in said.err
    out = tmp_path / "page.html"
    said = cli("report", "--out", str(out))
    assert (said.code, said.out) == (0, f"{out}\n")
    assert "Nothing was built yet" in read(out.read_text(encoding="utf-8")).text
    assert not root.exists()


def test_what_has_landed_and_was_never_built_is_shown(cli: Cli, root: Path) -> None:
    """Only the tables and days asked for; on standard output there is nothing but the page."""
    land(root)
    said = cli("report", "--out", "-", "--select", "group:bronze", "--from", "2011-03-02", "--to", "2011-03-03")
    assert said.code == 0
    page = read(said.out)
    needs = page.one("section", aria_labelledby="needs").one("table").rows()[1:]
    assert {(row[0], row[1], row[2]) for row in needs} == {
        (name, "2011-03-02 to 2011-03-03", "N not built") for name in ("bronze.events", "bronze.online_retail")
    }
    assert cli("report").out == f"{root / 'report.html'}\n"
    assert f"{date(2011, 3, 1)} to" in (root / "report.html").read_text(encoding="utf-8")
    assert not list(root.glob(".report.html.*"))


def test_a_file_that_cannot_be_written_is_named(cli: Cli, tmp_path: Path) -> None:
    said = cli("report", "--out", str(tmp_path / "no such folder" / "page.html"))
    assert said.code == 2
    assert "page.html cannot be written: No such file or directory" in said.err
    assert cli("report", "--from", "2011-03-04", "--to", "2011-03-01", "--out", "-").code == 2


def test_a_range_without_a_day_of_the_lake_is_refused(cli: Cli, tmp_path: Path) -> None:
    """Without it, the page of a mistyped year said `2009-03-01 to None`, and that every day is published."""
    page = tmp_path / "page.html"
    for days in (["--from", "2009-03-01", "--to", "2009-03-07"], ["--from", "2999-01-01"], ["--to", "2009-03-07"]):
        refused = cli("report", *days, "--out", str(page))
        assert (refused.code, page.exists()) == (2, False)
        assert f"No day of the lake is in {' '.join(days)}: its days are 20" in refused.err
