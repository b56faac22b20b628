"""A small table with features, and a store of the tests' own that holds nothing yet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakehouse.online.store import OnlineStore
from lakehouse.read.lake import Lake
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.profiles import profiles
from lakehouse_tests.fixtures.redis import RedisServer


@pytest.fixture
def made(lake: LakeFactory) -> Lake:
    """With `gold.profiles`."""
    return lake(profiles())


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[OnlineStore]:
    """Empty."""
    with redis_server.empty() as found:
        yield found
