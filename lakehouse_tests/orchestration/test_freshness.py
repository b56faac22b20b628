"""The check `data_fresh`: it runs without an engine, and says what is due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dagster import AssetKey, DagsterInstance

from lakehouse.catalog import tables
from lakehouse.definitions import defs
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.target import Commit, Target
from lakehouse.orchestration.freshness import CHECK
from lakehouse.read.lake import table_path
from lakehouse.settings import get_settings
from lakehouse_tests.fixtures.making import stage_rows

FEATURES = "gold.daily_revenue"


def test_the_job_judges_every_table_by_its_newest_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, nobody would be told that yesterday is missing while runs succeed."""
    monkeypatch.setenv("LAKEHOUSE_ROOT", str(tmp_path))
    get_settings.cache_clear()
    made = tables()[FEATURES]
    due = (datetime.now(UTC) - made.freshness.within).date() - timedelta(days=1)
    target = Target(table_path(tmp_path, FEATURES), made.schema, made.partition_by)
    facts = {"lakehouse.metrics": {due.isoformat(): {"rows": 0}}}
    replace_days(target, ensure_table(target), stage_rows(target, []), [due], Commit({}, facts))
    try:
        with DagsterInstance.ephemeral() as instance:
            done = defs.resolve_job_def("freshness").execute_in_process(instance=instance)
    finally:
        get_settings.cache_clear()
    assert done.success
    found = {e.asset_key: e for e in done.get_asset_check_evaluations()}
    assert {e.check_name for e in found.values()} == {CHECK}
    states = {".".join(key.path): e.passed for key, e in found.items()}
    assert states == {name: name == FEATURES for name in tables()}
    missing = found[AssetKey(["silver", "orders"])]
    assert f"no day is complete; {due}, due 36 h after its end, is not complete" in (missing.description or "")


def test_runs_of_days_do_not_run_it() -> None:
    """Without it, a backfill of an old day would report on days it has nothing to do with."""
    steps = {node.name for node in defs.resolve_job_def("lakehouse").nodes}
    assert steps == {"__".join(name.split(".")) for name in tables()}
    assert {node.name for node in defs.resolve_job_def("freshness").nodes} == {CHECK}
