"""What the tests of tables share."""

from collections.abc import Iterator

import pytest

from lakehouse_tests.faults.laboratory import EngineProcess


@pytest.fixture(scope="session")
def engine_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    """One process with one engine for all that is killed."""
    made = EngineProcess(tmp_path_factory.mktemp("laboratory"))
    yield made
    made.kill()
