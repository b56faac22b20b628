"""What a demonstration lands, before it starts anything."""

from __future__ import annotations

import gzip
from datetime import date
from pathlib import Path

from lakehouse.sample.demo import land_days
from lakehouse.settings import get_settings


def test_a_range_may_begin_and_end_with_days_without_a_file(tmp_path: Path) -> None:
    """Without it, `make demo` of January was refused for New Year, by days that it had set itself."""
    exports = tmp_path / "exports"
    exports.mkdir()
    for day in ("2011-01-04", "2011-01-30"):
        (exports / f"{day}.csv.gz").write_bytes(gzip.compress(b"InvoiceNo\n"))
    settings = get_settings().model_copy(update={"root": tmp_path / "lake"})
    landed = land_days(settings, exports, date(2011, 1, 1), date(2011, 1, 31))
    assert landed == (date(2011, 1, 4), date(2011, 1, 30))
