"""The engine, its commands and its tests stand without the tables that come with it: whoever starts anew deletes these."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lakehouse
from lakehouse.settings import LAYERS

PACKAGE, TESTS = Path(lakehouse.__file__).parent, Path(__file__).parent

HELP = """
import sys, typer
from typer.testing import CliRunner
from lakehouse.cli import app
from lakehouse.catalog import declared
from lakehouse.definitions import defs

assert not declared()
assert not defs.get_repository_def().asset_graph.get_all_asset_keys()

def commands(group, path=()):
    yield path
    for name, each in getattr(group, "commands", {}).items():
        yield from commands(each, (*path, name))

found = list(commands(typer.main.get_command(app)))
assert len(found) > 40, found
for path in found:
    done = CliRunner().invoke(app, [*path, "--help"])
    assert done.exit_code == 0, (path, done.output)
for arguments, code, told in (
    (["tables"], 0, ""),
    (["status"], 0, "Nothing was built yet"),
    (["land", "events", "."], 2, "No table reads landed files of 'events'."),
    (["clocks"], 0, "No table compares its event times"),
    (["demo"], 2, "which are not here: land files of your own"),
    (["demo-stream"], 2, "which are not here: land files of your own"),
    (["demo-online"], 2, "which are not here: land files of your own"),
):
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, told in done.output) == (code, True), (arguments, done.output)
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project without the sample's tables and their tests."""
    folder = tmp_path_factory.mktemp("without")
    own = {PACKAGE: [], TESTS: ["sample", *LAYERS]}
    for source, without in own.items():
        shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in without:
            shutil.rmtree(folder / source.name / name)
    for name in ("pyproject.toml", "README.md", "Makefile", ".env.example"):
        shutil.copy(PACKAGE.parent / name, folder)
    for layer in LAYERS:
        for path in (folder / PACKAGE.name / layer).glob("[!_]*.py"):
            path.unlink()
    return folder


def run(copy: Path, *arguments: str) -> str:
    """Run Python in the copy, with settings of its own; returns what it said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LAKEHOUSE_")}
    environment |= {"PYTHONPATH": str(copy), "LAKEHOUSE_ROOT": str(copy / "root")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.mark.slow
def test_every_command_has_its_help_and_dagster_its_definitions(copy: Path) -> None:
    """A first look at an empty project must not end in an import error."""
    run(copy, "-c", HELP)


@pytest.mark.slow
def test_the_tests_of_the_engine_can_be_collected(copy: Path) -> None:
    """Each of their modules can be imported, with the tables that it asks for."""
    said = run(copy, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider")
    assert "error" not in said.splitlines()[-1]
