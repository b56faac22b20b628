"""Who may only read under the root can look at everything that there is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]
# What root may do in spite of a file's mode; without it, root is a reader like any other.
RIGHTS = "-dac_override,-dac_read_search,-fowner"
CLI = ("-m", "lakehouse.cli")
ASIDE = """
from lakehouse.commands.console import engine_output_aside
from lakehouse.settings import get_settings
with engine_output_aside(get_settings()):
    print("what an engine says")
"""
Called = Callable[..., subprocess.CompletedProcess[str]]


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

    def called(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*as_reader, sys.executable, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)

    yield called
    assert sorted(copied.rglob("*")) == sorted(modes.keys() - {copied}), "something was written"
    for path in every:
        path.chmod(modes[path])


def test_a_reader_sees_what_its_owner_sees(reading: Called, tmp_path: Path) -> None:
    """Without it, whoever has no right to write would see nothing: not even how tables stand."""
    status = reading(*CLI, "status", "--json")
    assert status.returncode == 0, status.stderr
    states = {each["table"]: each for each in json.loads(status.stdout)}
    assert states["silver.transactions"]["quarantined"] > 0
    assert states["silver.transactions"]["failed_days"], "how runs ended is known"
    failed = {name for name, each in states.items() if each["failed_days"]}
    rerun = reading(*CLI, "backfill", "--failed-only", "--dry-run", "--json")
    assert rerun.returncode == 0, rerun.stderr
    plans = json.loads(rerun.stdout)["tables"]
    assert {each["table"] for each in plans if each["build"] or each["unchanged"]} == failed
    for look in (["alerts", "list"], ["alerts", "list", "--failing"], ["backfills", "list"]):
        assert reading(*CLI, *look, "--json").returncode == 0, look
    written = reading(*CLI, "report", "--out", str(tmp_path / "report.html"))
    assert written.returncode == 0, written.stderr
    refused = reading(*CLI, "report")
    assert (refused.returncode, "Choose another file" in refused.stderr) == (2, True)
    # What commands with an engine write first, such as `explain-row`; an engine for it alone would take a minute.
    aside = reading("-c", ASIDE)
    assert (aside.returncode, aside.stdout) == (0, ""), aside.stderr
