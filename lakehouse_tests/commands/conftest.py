"""The command line in this process on roots of the tests' own; one small lakehouse that several tests look at."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lakehouse.cli import app
from lakehouse.commands.operate import doctor
from lakehouse.sample.events import land_events
from lakehouse.sample.faults import Faults
from lakehouse.sample.retail import land_sample_online_retail
from lakehouse.settings import get_settings

FIRST, LAST, BAD = date(2011, 3, 1), date(2011, 3, 3), date(2011, 3, 2)
RANGE = ("--from", str(FIRST), "--to", str(LAST))


@dataclass(frozen=True)
class Result:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, parsed: nothing but JSON may be there."""
        return json.loads(self.out)


Cli = Callable[..., Result]


def run(root: Path, *arguments: str) -> Result:
    """Run one command on a root."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKEHOUSE_ROOT", str(root))
        patch.setenv("LAKEHOUSE_SPARK_URL", "local[2]")
        for name in ("DAGSTER_HOME", "DAGSTER_EVENT_BATCH_SIZE"):  # set by commands; restored afterwards
            patch.setenv(name, os.environ.get(name, ""))
            patch.delenv(name)
        get_settings.cache_clear()
        try:
            done = CliRunner().invoke(app, list(arguments))
        finally:
            get_settings.cache_clear()
    return Result(done.exit_code, done.stdout, done.stderr)


@pytest.fixture(scope="session", autouse=True)
def archive_looked_at_once() -> Iterator[None]:
    """Whether Java takes the archive of classes, which the doctor asks of three processes of Java each time."""
    real = doctor.is_usable
    known = cache(lambda _java: real())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor, "is_usable", lambda: known(os.environ.get("JAVA_HOME")))
        yield


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with nothing in it."""
    return tmp_path / "root"


@pytest.fixture
def cli(root: Path) -> Cli:
    """Runs a command on the test's own root."""
    return lambda *arguments: run(root, *arguments)


def land(root: Path) -> Path:
    """Three days of both shops, with faults; returns the file of the middle day."""
    land_sample_online_retail(root, FIRST, 3, rows=120, seed=3)
    land_events(root, FIRST, 3, rows=200, seed=3, faults=Faults.all(0.02))
    return root / "landing" / "online_retail" / f"{BAD}.csv.gz"


@pytest.fixture(scope="session")
def first_backfill(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Iterator[tuple[Path, Result]]:
    """A lakehouse whose middle retail file is cut short, and what its first backfill said. To look at only."""
    root = tmp_path_factory.mktemp("built") / "root"
    file = land(root)
    file.write_bytes(file.read_bytes()[:900])
    yield root, run(root, "backfill", *RANGE, "--json")
    assert spark is not None


@pytest.fixture
def built(first_backfill: tuple[Path, Result]) -> Cli:
    """Commands on that lakehouse, to look at it."""
    return lambda *arguments: run(first_backfill[0], *arguments)


@pytest.fixture
def copied(first_backfill: tuple[Path, Result], root: Path) -> Path:
    """A copy of that lakehouse, to change."""
    shutil.copytree(first_backfill[0], root)
    return root
