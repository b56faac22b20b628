"""What people see of a row: no personal data, and of what fitted no column only the names."""

from __future__ import annotations

import json

import pytest

from lakehouse.checks.drift import told_fields
from lakehouse.quarantine.aside import shown_row


@pytest.mark.parametrize(
    ("rescued", "told"),
    [
        ({"remark": "Ann lives here", "n": "1"}, "2 field(s): n, remark"),
        ({"Ann, born 1971": "x", "17841": "y", "<e-mail>": "z", "note": "w"}, "4 field(s): 3 (other), note"),
        ("no object", "1 field(s): (other)"),
        (None, None),
    ],
)
def test_of_rescued_fields_names_alone_are_told(rescued: object, told: str | None) -> None:
    """Without it, `quarantine show` and `explain-row` would print what nobody has looked at, personal or not."""
    text = rescued if rescued is None or isinstance(rescued, str) else json.dumps(rescued)
    assert told_fields(text) == told
    row = {"id": "1", "user_id": "17841", "_rescued": text, "_raw": "Ann", "_source_row": 3}
    expected = {"id": "1", "_source_row": 3, **({"_rescued": told} if told else {})}
    assert shown_row(row, ("user_id",)) == expected


def test_of_a_broken_line_no_column_is_told() -> None:
    """Without it, a line with a field too few would show what is personal under the column beside its own."""
    row = {"id": "1", "place": "17841", "user_id": None, "_error": "not a CSV line of 3 fields", "_source_row": 3}
    assert shown_row(row, ("user_id",)) == {"_error": row["_error"], "_source_row": 3}
    assert shown_row(row, ()) == row, "where nothing is personal, nothing is hidden"
