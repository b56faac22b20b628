"""Tests in this folder see the tables of the package, as users do; all others see those of `fixtures/shop`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakehouse_tests.fixtures.packages import tables_of


@pytest.fixture(scope="package", autouse=True)
def the_sample() -> Iterator[None]:
    """The package's own tables."""
    with tables_of("lakehouse"):
        yield
