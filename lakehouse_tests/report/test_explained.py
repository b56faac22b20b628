"""The way of one row as a page shows what `explain-row --json` tells, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lakehouse.report.explained import MOST_ROWS, render_explained
from lakehouse_tests.report.reading import read

EVIL = "<img src=x onerror=alert(1)>"


def step(name: str, rows: list[dict[str, Any]], **given: Any) -> dict[str, Any]:
    commit = {
        "version": 3,
        "time": datetime(2026, 3, 9, 8, 30, tzinfo=UTC),
        "operation": "publish",
        "run_id": "0123456789",
    }
    commit |= {"code_version": "abc", "current_code": False, "inputs": {}}
    told = {"table": name, "version": 3, "rows": rows, "count": len(rows), "places": [], "repeats_left_out": []}
    return {**told, "commits": [commit], "recomputed": "equal", "differences": [], "notes": [], "made_of": [], **given}


def test_the_way_is_shown_from_the_row_to_file_and_line() -> None:
    """Without it, the page could leave out a table of the way, or show a line beside another row."""
    lines = step("bronze.lines", [{"id": "a", "text": EVIL}, {"id": "b", "text": None}], places=["f.csv:2", "f.csv:9"])
    middle = step("silver.sales", [{"id": "a"}], made_of=[lines], recomputed="differs", differences=["id: a, b"])
    page = read(text := render_explained(step("gold.sums", [{"day": "2026-03-09", "sum": 4}], made_of=[middle])))
    assert [each.text for each in page.all("h2")] == ["gold.sums", "silver.sales", "bronze.lines"]
    tables = [each.rows() for each in page.all("table")]
    assert tables[0] == [["day", "sum"], ["2026-03-09", "4"]]
    assert tables[2] == [["file and line", "id", "text"], ["f.csv:2", "a", EVIL], ["f.csv:9", "b", ""]]
    assert "version 3 at 2026-03-09 08:30 UTC by run 01234567, code abc, older than today's" in page.text
    assert [each.text for each in page.all("strong")] == ["Computed again from these: DIFFERS."]
    assert "id: a, b" in page.text
    assert "<img" not in text
    assert "http" not in text.replace("http-equiv", "")


def test_a_restore_has_no_run_and_a_day_without_rows_no_code() -> None:
    """Without it, a page said that a day was published by run nobody, with code nothing."""
    restored = {"version": 4, "time": datetime(2026, 3, 10, tzinfo=UTC), "operation": "restore", "run_id": ""}
    commits = [{**restored, "code_version": "", "current_code": False, "inputs": {}}]
    text = read(render_explained(step("gold.sums", [{"day": "2026-03-09"}], commits=commits))).text
    assert "version 4 at 2026-03-10 00:00 UTC" in text
    assert "by run" not in text
    assert ", code" not in text


def test_of_very_many_rows_the_first_are_shown() -> None:
    many = [{"id": n} for n in range(MOST_ROWS + 7)]
    page = read(render_explained(step("gold.sums", many)))
    assert len(next(page.all("table")).rows()) == MOST_ROWS + 1
    assert "… and 7 more" in page.text
