"""Who was forgotten is known again in rows that come later."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehouse.catalog import declared
from lakehouse.errors import SettingsError
from lakehouse.records.erasures import DONE, Erasure, forgotten_in, hmac_key, note
from lakehouse.settings import Settings, token_of
from lakehouse.sources.people import person_hmac


def test_people_are_known_by_id_and_by_the_token_of_their_address(tmp_path: Path) -> None:
    """Without it, a guest who was forgotten would be back with the next message that a producer sends again."""
    settings = Settings(root=tmp_path / "root")
    key, token = hmac_key(settings), token_of("ann@example.com", settings.pii_key_bytes())
    note(settings.root, Erasure("e1", DONE, (person_hmac("user", "u1", key), person_hmac("user", token, key))))
    rows = {"user_id": ["u1", "u2", None], "_key": [None, "k", None], "email_token": ["t1:of-others", None, token]}
    pq.write_table(pa.table(rows), tmp_path / "staged.parquet")
    found = forgotten_in(settings, declared("lakehouse")["bronze.event_stream"], [tmp_path / "staged.parquet"])
    assert found == {"user_id": {"u1"}, "_key": set(), "email_token": {token}}


def test_who_may_not_read_the_key_of_the_forgotten_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, who builds on a shared root would see a refusal with nothing to do about it, once one was forgotten."""
    settings = Settings(root=tmp_path)
    hmac_key(settings)

    def refused(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refused)
    with pytest.raises(SettingsError, match=r"were forgotten here.* chmod g\+r .*keys/forgotten\.key"):
        hmac_key(settings)
