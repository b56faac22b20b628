"""Who is at work is known everywhere, and asked in one place."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import lakehouse
from lakehouse.records.erasures import BEGUN, Erasure, erasures, note
from lakehouse.users import operator

NOBODY = 54_321  # as a container gives it


def test_a_user_without_a_name_can_note_an_erasure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, nobody could be forgotten from within a container, whose user has no entry in `/etc/passwd`."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: NOBODY)
    assert operator() == f"uid {NOBODY}"
    note(tmp_path, Erasure("e1", BEGUN, ("mark",)))
    assert [each.who for each in erasures(tmp_path)] == [f"uid {NOBODY}"]


def test_the_system_is_asked_in_one_place() -> None:
    """Without it, the next ledger would ask by itself, and fail in a container."""
    asking = re.compile(r"\b(getuser|getlogin|getpwuid|getpwnam)\b")
    package = Path(lakehouse.__file__).parent
    found = [path.name for path in package.rglob("*.py") if asking.search(path.read_text(encoding="utf-8"))]
    assert found == ["users.py"]
