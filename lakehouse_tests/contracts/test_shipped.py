"""Files that commands write into the package of tables."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from lakehouse.contracts.derived import write_lineage
from lakehouse.contracts.schema_versions import write_lock
from lakehouse_tests.fixtures.groups import masked


@pytest.mark.parametrize(("folder", "file"), [(0o755, 0o644), (0o2775, 0o664), (0o700, 0o600)])
def test_whoever_may_read_the_package_may_read_what_is_written_into_it(tmp_path: Path, folder: int, file: int) -> None:
    """Without it, `schema lock` makes files for its caller alone: to all others, an installed package is unreadable."""
    package = tmp_path / "lake"
    package.mkdir()
    package.chmod(folder)
    with masked(0o077):  # as commands keep it
        write_lock({}, package / "schemas.json")
        write_lineage({}, package / "lineage.json")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in package.iterdir()}
    assert modes == {"schemas.json": file, "lineage.json": file}
