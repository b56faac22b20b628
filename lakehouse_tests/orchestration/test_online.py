"""Features online as assets: there where Redis is set, loaded after each publish, judged by what is served."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetSpec,
    DagsterInstance,
    Definitions,
    evaluate_automation_conditions,
    materialize,
)

from lakehouse.catalog import tables
from lakehouse.online.load import lake_now
from lakehouse.online.sets import FeatureSet
from lakehouse.orchestration import online
from lakehouse.orchestration.metadata import asset_key
from lakehouse.orchestration.partitions import daily_partitions
from lakehouse.orchestration.resources import LakehouseResource, SparkEngine
from lakehouse.read.lake import Lake
from lakehouse.settings import get_settings
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import having
from lakehouse_tests.fixtures.profiles import DAYS, TABLE, profiles, publish
from lakehouse_tests.fixtures.redis import RedisServer
from lakehouse_tests.fixtures.streaming import pages, streamed

WED = DAYS[2]


@pytest.fixture
def address(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The setting, of a Redis that holds nothing, for a lake whose data ended on Wednesday."""
    monkeypatch.setenv("LAKEHOUSE_REDIS_URL", redis_server.url)
    monkeypatch.setenv("LAKEHOUSE_LAST_DAY", str(WED))
    get_settings.cache_clear()
    with redis_server.empty():
        yield redis_server.url
    get_settings.cache_clear()


def run(made: Lake, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Materialize the asset of `gold.profiles` as a run does; what its checks say is in the result."""
    monkeypatch.setattr(LakehouseResource, "lake", lambda _: made)
    monkeypatch.setattr(online, "lake_without_engine", lambda _: made)
    asset = online._asset(made.table(TABLE))
    return materialize([asset], resources={"lakehouse": LakehouseResource(engine=SparkEngine(), force=False)})


def test_they_are_there_where_redis_is_set(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a lake without Redis would have assets that nobody can load."""
    names = {key.to_user_string() for each in online.online_assets() for key in each.keys}
    assert names == {f"online/{each.id.replace('.', '/')}" for each in tables().values() if each.features}
    assert names
    monkeypatch.delenv("LAKEHOUSE_REDIS_URL")
    get_settings.cache_clear()
    assert online.online_assets() == []
    assert online.online_sensors([]) == []


def test_a_run_loads_and_says_what_it_came_to(
    address: str, lake: LakeFactory, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = lake(profiles())
    publish(made, DAYS[1], {"canary-a": 1, "canary-b": 1})
    version = publish(made, WED, {"canary-a": 2})
    done = run(made, monkeypatch)
    assert done.success
    [event] = done.asset_materializations_for_node("online__gold__profiles")
    shown = {name: each.value for name, each in event.metadata.items()}
    assert (shown["rows_written"], shown["rows_skipped_as_older"], shown["rows_expired"]) == (2, 0, 0)
    assert shown["delta_version"] == version
    assert {each.check_name: each.passed for each in done.get_asset_check_evaluations()} == {
        online.COUNT: True, online.PARITY: True,
    }  # fmt: skip

    # One row is lost and one is another: the checks of the next run, which writes neither, say so, and name nobody.
    features = FeatureSet.of(made.table(TABLE))
    with redis_server.plain() as client:
        key = features.redis_key(["canary-a"])
        client.set(key, client.get(key).replace(b"[2,", b"[7,"), keepttl=True)
    done = run(made, monkeypatch)
    found = {each.check_name: each for each in done.get_asset_check_evaluations()}
    assert (found[online.COUNT].passed, found[online.PARITY].passed) == (True, False)
    text = str(found[online.PARITY].metadata["mismatches"].value)
    assert "orders: served 7, expected 2" in text
    assert "canary" not in str(done.get_asset_check_evaluations())


def test_a_publish_asks_for_a_load_also_where_days_are_missing(address: str) -> None:
    """Without it, one day without data would keep features from ever being loaded."""
    [made, *_] = online.online_assets()
    [table] = [each for each in tables().values() if online.online_key(each) == made.key]
    gold = AssetSpec(asset_key(table.id), partitions_def=daily_partitions())
    defs = Definitions(
        assets=[gold, made], resources={"lakehouse": LakehouseResource(engine=SparkEngine(), force=False)}
    )
    with DagsterInstance.ephemeral() as instance:
        first = evaluate_automation_conditions(defs, instance)
        assert first.total_requested == 0
        day = daily_partitions().get_partition_keys()[-1]
        instance.report_runless_asset_event(AssetMaterialization(asset_key(table.id), partition=day))
        second = evaluate_automation_conditions(defs, instance, cursor=first.cursor)
        assert second.get_num_requested(made.key) == 1
        assert evaluate_automation_conditions(defs, instance, cursor=second.cursor).total_requested == 0


@pytest.mark.parametrize("while_open", [True, False])
def test_what_a_stream_feeds_is_looked_at_every_ten_minutes(
    address: str, monkeypatch: pytest.MonkeyPatch, while_open: bool
) -> None:
    """Without it, each of a stream's publishes would ask for a load of the whole table."""
    served = pages()
    assert served.features is not None
    made = having(served, features=replace(served.features, while_open=while_open))
    made.__dict__["code_version"] = served.code_version
    known = {each.id: each for each in (*streamed(), made)}
    monkeypatch.setattr(online, "tables", lambda: known)
    assert not online._is_streamed(made)
    monkeypatch.setenv("LAKEHOUSE_VISITS_URL", "kafka://127.0.0.1:1")
    get_settings.cache_clear()
    assert online._is_streamed(made)
    [asset] = online.online_assets()
    gold = AssetSpec(asset_key(made.id), partitions_def=daily_partitions())
    defs = Definitions(
        assets=[gold, asset], resources={"lakehouse": LakehouseResource(engine=SparkEngine(), force=False)}
    )
    noon = datetime(2026, 12, 31, 12, 1, tzinfo=UTC)  # all days of the lake are over

    def asked(minutes: int, before: Any = None) -> Any:
        now = noon + timedelta(minutes=minutes)
        return evaluate_automation_conditions(defs, instance, evaluation_time=now, cursor=before and before.cursor)

    with DagsterInstance.ephemeral() as instance:
        first = asked(0)
        day = daily_partitions().get_partition_keys()[-1]
        instance.report_runless_asset_event(AssetMaterialization(asset_key(made.id), partition=day))
        second = asked(5, first)
        assert second.total_requested == 0
        third = asked(10, second)
        assert third.get_num_requested(asset.key) == 1
        assert asked(20, third).total_requested == 0


def test_a_key_is_that_of_its_table_in_a_group_of_its_own() -> None:
    assert online.online_key(profiles()) == AssetKey(["online", "gold", "profiles"])
    assert lake_now(WED).hour == 0
