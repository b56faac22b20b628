"""What a commit says of a day, as numbers."""

from __future__ import annotations

from decimal import Decimal

import pytest

from lakehouse.records.day_record import _held, plain


@pytest.mark.parametrize(
    ("number", "held"),
    [
        ("1.5", Decimal("1.500000")),
        ("99999999999999999999999999999999.9999999", None),
        ("1.7976931348623157E+308", None),
        ("-1E+200", None),
        ("Infinity", None),
        ("1E-320", Decimal("0.000000")),
    ],
)
def test_a_sum_of_any_size_is_kept_or_left_out(number: str, held: Decimal | None) -> None:
    """Without it, one double of 1e200 in a column of `profile` ended what reads the history of all days: `forget` too."""
    assert _held(number) == held
    assert plain(number) == Decimal(number)
