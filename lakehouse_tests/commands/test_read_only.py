"""Who may only read under the root can look at everything that there is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from lakehouse_tests.commands.conftest import Result

pytestmark = [pytest.mark.spark, pytest.mark.slow]
# What root may do in spite of a file's mode; without it, root is a reader like any other.
RIGHTS = "-dac_override,-dac_read_search,-fowner"
# One process calls all: anew, each would load Dagster. At the end, what commands with an engine write first, such as
# `explain-row`; an engine for it alone would take a minute.
CALLS = """
import json, sys
from typer.testing import CliRunner
from lakehouse.cli import app
from lakehouse.commands.console import engine_output_aside
from lakehouse.settings import get_settings
said = []
for arguments in json.loads(sys.argv[1]):
    done = CliRunner().invoke(app, arguments)
    said.append((done.exit_code, done.stdout, done.stderr))
print(json.dumps(said))
sys.stdout.flush()
with engine_output_aside(get_settings()):
    print("what an engine says")
"""
Called = Callable[..., list[Result]]


@pytest.fixture
def reading(copied: Path) -> Iterator[Called]:
    """Commands of a reader, on a lakehouse whose caches are gone, that cannot be written and whose keys are private."""
    for name in ("cache", "engine", "logs"):
        shutil.rmtree(copied / name, ignore_errors=True)
    (copied / "keys").mkdir(mode=0)  # the key of the tests is in the environment, which a reader does not have
    every = [copied, *copied.rglob("*")]
    modes = {path: path.stat().st_mode for path in every}
    for path in every:
        path.chmod(modes[path] & ~0o222)
    as_reader = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root needs setpriv to be a reader")
        as_reader = ["setpriv", f"--bounding-set={RIGHTS}", f"--inh-caps={RIGHTS}"]
    own = {"LAKEHOUSE_ROOT": str(copied), "LAKEHOUSE_SPARK_URL": "local[2]"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DAGSTER")} | own
    environment.pop("LAKEHOUSE_PII_KEY", None)

    def called(*calls: Sequence[str]) -> list[Result]:
        command = [*as_reader, sys.executable, "-c", CALLS, json.dumps(calls)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        return [Result(*each) for each in json.loads(done.stdout)]

    yield called
    assert sorted(copied.rglob("*")) == sorted(modes.keys() - {copied}), "something was written"
    for path in every:
        path.chmod(modes[path])


def test_a_reader_sees_what_its_owner_sees(reading: Called, tmp_path: Path) -> None:
    """Without it, whoever has no right to write would see nothing: not even how tables stand."""
    looks = [("alerts", "list"), ("alerts", "list", "--failing"), ("backfills", "list")]
    status, rerun, *looked, written, refused = reading(
        ("status", "--json"),
        ("backfill", "--failed-only", "--dry-run", "--json"),
        *((*look, "--json") for look in looks),
        ("report", "--out", str(tmp_path / "report.html")),
        ("report",),
    )
    assert status.code == 0, status.err
    states = {each["table"]: each for each in status.json}
    assert states["silver.transactions"]["quarantined"] > 0
    assert states["silver.transactions"]["failed_days"], "how runs ended is known"
    failed = {name for name, each in states.items() if each["failed_days"]}
    assert rerun.code == 0, rerun.err
    assert {each["table"] for each in rerun.json["tables"] if each["build"] or each["unchanged"]} == failed
    assert [each.code for each in looked] == [0] * len(looks), [each.err for each in looked]
    assert written.code == 0, written.err
    assert (refused.code, "Choose another file" in refused.err) == (2, True)
