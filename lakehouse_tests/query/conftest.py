"""One lake of awkward values for a file of tests; both engines are asked about it."""

from __future__ import annotations

import pytest

from lakehouse.settings import Settings
from lakehouse_tests.query.awkward import make_tables


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Of a root with `silver.o` and `silver.p`."""
    root = tmp_path_factory.mktemp("awkward")
    make_tables(root)
    return Settings(root=root)
