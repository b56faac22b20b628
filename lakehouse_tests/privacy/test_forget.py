"""What an erasure asks before it begins; whole ones, and kills within them, are in lakehouse_tests/test_privacy.py."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from lakehouse.privacy import forget
from lakehouse.privacy.alone import BusyError
from lakehouse.privacy.forget import NobodyError, Runs, subject
from lakehouse.settings import Settings


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


def test_days_to_build_outlive_a_kill(tmp_path: Path) -> None:
    """Without it, days would keep the person once the landed files that told of them are clean."""
    journal = tmp_path / "privacy" / "e.json"
    assert forget._read_journal(journal) == {}
    days = {"silver.transactions": {date(2011, 3, 1), date(2011, 3, 2)}, "gold.orders": set[date]()}
    forget._write_journal(journal, days)
    assert forget._read_journal(journal) == days
    journal.write_text("{", encoding="utf-8")
    assert forget._read_journal(journal) == {}
