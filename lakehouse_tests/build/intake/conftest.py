"""A shop in a database of a test's own, and a lake that takes from it."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from lakehouse_tests.build.intake.taking import Taking
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.postgres import Server, Shop


@pytest.fixture
def shop(server: Server) -> Shop:
    """A database of the test's own."""
    return server.shop()


@pytest.fixture
def taking(lake: LakeFactory, shop: Shop, spark: SparkSession) -> Taking:
    """A lake that takes from it exactly."""
    assert spark is not None
    return Taking(lake, shop)
