"""An instance of Dagster on a root of the test's own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from dagster import DagsterInstance

from lakehouse.orchestration.instance import opened_instance
from lakehouse.settings import Settings, get_settings
from lakehouse_tests.orchestration.receiver import Receiver, receiving
from lakehouse_tests.orchestration.running import Foretold


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """Settings of a new root, which are also the process's."""
    for name in ("DAGSTER_HOME", "DAGSTER_EVENT_BATCH_SIZE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("LAKEHOUSE_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    get_settings.cache_clear()
    yield get_settings()
    get_settings.cache_clear()


@pytest.fixture(scope="session", autouse=True)
def migrations_read_once() -> Iterator[None]:
    """Dagster's migrations, which every storage reads anew as it opens: all of them, to know the newest."""
    read = ScriptDirectory.from_config
    known: dict[str | None, ScriptDirectory] = {}

    def once(config: Config) -> ScriptDirectory:
        folder = config.get_alembic_option("script_location")
        return known.get(folder) or known.setdefault(folder, read(config))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", once)
        yield


@pytest.fixture(scope="session")
def new_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state of an instance that was never used: a copy of it is there four times as soon as another new one."""
    made = Settings(root=tmp_path_factory.mktemp("instance"))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("DAGSTER_HOME", "DAGSTER_EVENT_BATCH_SIZE"):
            patch.setenv(name, "")
            patch.delenv(name)
        with opened_instance(made):
            pass
    return made.dagster_home


@pytest.fixture
def instance(settings: Settings, new_home: Path) -> Iterator[DagsterInstance]:
    """The instance that commands and `dagster dev` use on that root."""
    shutil.copytree(new_home, settings.dagster_home, dirs_exist_ok=True)
    with opened_instance(settings) as opened:
        yield opened


@pytest.fixture
def runs(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Foretold:
    """Runs whose building is foretold."""
    return Foretold(instance, monkeypatch)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A web server that takes alerts."""
    with receiving() as opened:
        yield opened
