"""What an erasure asks before it begins; whole ones, and kills within them, are in lakehouse_tests/test_privacy.py."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from lakehouse.commands.change import forget as command
from lakehouse.privacy import forget
from lakehouse.privacy.alone import BusyError
from lakehouse.privacy.erase import later_than
from lakehouse.privacy.forget import NobodyError, Runs, subject
from lakehouse.settings import Settings
from lakehouse_tests.commands.conftest import run


def settings(root: Path) -> Settings:
    """Of a lakehouse with nothing in it."""
    return Settings(root=root, _env_file=None)


def test_nothing_is_written_while_a_run_is_on(tmp_path: Path) -> None:
    """Without it, the ledger would tell of an erasure that never began."""

    def busy() -> None:
        raise BusyError("The run(s) 1234 are on.")

    who = subject(settings(tmp_path), {}, "17841", [])
    with pytest.raises(BusyError, match="1234"):
        forget.forget(settings(tmp_path), {}, who, Runs(lambda _: pytest.fail("built"), busy))
    assert [path.name for path in (tmp_path / "privacy").iterdir()] in ([], ["lock"])
    assert not (tmp_path / "tables").exists()


@pytest.mark.parametrize(("user", "emails"), [(None, []), ("", []), (None, ["no address"]), (None, ["@"])])
def test_whom_nobody_can_find_is_refused(tmp_path: Path, user: str | None, emails: list[str]) -> None:
    """Without it, an erasure of nobody would be written down as done."""
    with pytest.raises(NobodyError, match=r"Say who|is no e-mail address"):
        subject(settings(tmp_path), {}, user, emails)


def test_that_no_table_names_people_by_id_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, "0 lines" of a package whose tables say nothing of people would pass for a person who is nowhere."""
    monkeypatch.setattr(command, "tables", dict)
    said = run(tmp_path, "forget", "--user", "5", "--dry-run")
    assert (said.code, "no row of a table is found by --user" in said.err) == (0, True)
    assert "--user" not in run(tmp_path, "forget", "--email", "a@shop.example", "--dry-run").err


def test_days_to_build_outlive_a_kill(tmp_path: Path) -> None:
    """Without it, days would keep the person once the landed files that told of them are clean."""
    journal = tmp_path / "privacy" / "e.json"
    assert forget._read_journal(journal) == {}
    days = {"silver.transactions": {date(2011, 3, 1), date(2011, 3, 2)}, "gold.orders": set[date]()}
    forget._write_journal(journal, days)
    assert forget._read_journal(journal) == days
    journal.write_text("{", encoding="utf-8")
    assert forget._read_journal(journal) == {}


def test_a_file_of_the_future_is_named_with_what_to_do(tmp_path: Path) -> None:
    """Without it, an erasure would fail day after day, and nobody know why it leaves a file that is nobody's."""
    left = tmp_path / "tables" / "silver" / "orders" / "staged" / "part.parquet"
    for folder in (left.parent, left.parent.parent / "_delta_log"):
        folder.mkdir(parents=True)
    left.write_text("u000012", encoding="utf-8")
    later = datetime(2099, 1, 2, 3, 4, tzinfo=UTC).timestamp()
    os.utime(left, (later, later))
    said = run(tmp_path, "forget", "--user", "u000012")
    assert said.code == 1
    assert "still named in tables/silver/orders/staged/part.parquet, of 2099-01-02 03:04 UTC" in said.err
    assert "since a run may be writing them" in said.err
    assert "set their times (touch FILE) and run this again" in said.err
    assert run(tmp_path, "forget", "--user", "u000012", "--json").json["spared"] == [str(left.relative_to(tmp_path))]
    entry = left.parent.parent / "_delta_log" / f"{7:020}.json"
    entry.touch()
    assert later_than(tmp_path, [str(entry.relative_to(tmp_path))], 0) == {}, "its time does not matter"
    entry.unlink()
    os.utime(left)
    assert run(tmp_path, "forget", "--user", "u000012").code == 0
    assert not left.exists()
