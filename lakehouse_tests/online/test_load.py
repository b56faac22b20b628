"""Loading: what is in the store is what Delta has, whatever was there before."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Mapping
from datetime import UTC, date, datetime

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.commands.operate.online import load_them, rebuild_them, told, verify_them
from lakehouse.contracts import Features, Input
from lakehouse.errors import OnlineDownError, OnlineError
from lakehouse.online.load import Loaded, lake_now, load, rebuild, source_of
from lakehouse.online.parity import verify
from lakehouse.online.sets import FeatureSet, feature_sets, milliseconds, unpack
from lakehouse.online.store import OnlineStore, Put
from lakehouse.read.lake import Lake
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import model, table
from lakehouse_tests.fixtures.profiles import DAYS, TABLE, TTL, noon, profiles, publish
from lakehouse_tests.fixtures.redis import RedisServer

MON, TUE, WED, THU, FRI, SAT, *_ = DAYS


def online(store: OnlineStore, lake: Lake) -> dict[str, tuple[date, int]]:
    """Day and orders of each user in the store."""
    features = FeatureSet.of(lake.table(TABLE))
    keys = sorted(store.keys(features.pattern))
    records = [unpack(each) for each in store.values(keys) if each is not None]
    days = {milliseconds(noon(day).replace(hour=0)): day for day in DAYS}
    return {
        features.parts_of(key)[0]: (days[each.event_time], each.values[0])
        for key, each in zip(keys, records, strict=True)
    }


def newest(history: Mapping[date, Mapping[str, int]], today: date) -> dict[str, tuple[date, int]]:
    """The same by the meaning of it: the newest row of each user that may be used."""
    usable = [day for day in sorted(history) if 0 <= (today - day).days < 3]
    return {user: (day, n) for day in usable for user, n in history[day].items()}


def test_the_newest_usable_row_of_each_entity_is_online(
    made: Lake, store: OnlineStore, redis_server: RedisServer
) -> None:
    """Without it, a user without a row today would be served nothing, or one of last year."""
    publish(made, MON, {"gone": 1})
    publish(made, TUE, {"a": 1, "b": 1})
    publish(made, WED, {"a": 2})
    version = publish(made, THU, {"c": 0})
    publish(made, FRI, {"of tomorrow": 5})
    table = made.table(TABLE)
    done = load(made, redis_server.url, table, noon(THU))
    assert (done.put, done.removed, done.expired, done.delta_version) == (Put(3, 0, 0), 0, 1, version + 1)
    assert online(store, made) == {"a": (WED, 2), "b": (TUE, 1), "c": (THU, 0)}
    again = load(made, redis_server.url, table, noon(THU))
    assert again.put == Put(0, 3, 0), "to load again writes nothing"
    with redis_server.plain() as client:
        left = client.pttl(FeatureSet.of(table).redis_key(["b"]))
    assert abs(left - 12 * 3_600_000) < 60_000, "what is left of the three days, by the lake's moment"


def test_rows_as_of_the_end_of_a_day_stay_as_long_as_that_moment(
    made: Lake, store: OnlineStore, redis_server: RedisServer
) -> None:
    """Without it, users whose row is at its last moment were missing at once, and the certificate failed after a load."""
    publish(made, MON, {"last moment": 1})
    publish(made, TUE, {"a": 1})
    table, then = made.table(TABLE), noon(THU).replace(hour=0)
    load(made, redis_server.url, table, then)
    assert online(store, made) == {"last moment": (MON, 1), "a": (TUE, 1)}
    assert verify(made, store, table, then).passed
    with redis_server.plain() as client:
        assert [client.pttl(key) for key in store.keys(FeatureSet.of(table).pattern)] == [-1, -1]
    done = load(made, redis_server.url, table, noon(THU))
    assert (done.removed, online(store, made)) == (1, {"a": (TUE, 1)}), "of the same version, but too old now"
    assert verify(made, store, table, noon(THU)).passed


def test_a_correction_reaches_the_store(made: Lake, store: OnlineStore, redis_server: RedisServer) -> None:
    """Without it, a row that was wrong would be served until it expires."""
    table = made.table(TABLE)
    publish(made, TUE, {"a": 1, "b": 1})
    publish(made, WED, {"a": 9, "wrong": 9})
    load(made, redis_server.url, table, noon(WED))
    publish(made, WED, {"c": 3})
    done = load(made, redis_server.url, table, noon(WED))
    assert (done.put.written, done.removed) == (3, 1)
    assert online(store, made) == {"a": (TUE, 1), "b": (TUE, 1), "c": (WED, 3)}


def test_rows_of_other_code_are_not_mixed_with_those_of_this(
    made: Lake, store: OnlineStore, redis_server: RedisServer
) -> None:
    """Without it, a model would be served two meanings of one feature, by the day of the row."""
    publish(made, TUE, {"a": 1, "b": 1}, code="of long ago")
    publish(made, WED, {"a": 2})
    done = load(made, redis_server.url, made.table(TABLE), noon(WED))
    assert done.other_code == [TUE]
    assert online(store, made) == {"a": (WED, 2)}


def test_a_load_says_how_days_of_other_code_are_built_again(capsys: pytest.CaptureFixture[str]) -> None:
    """Without it, whoever misses their rows would be sent to a command that is refused."""
    told(Loaded(TABLE, 3, Put(), other_code=[MON, TUE]))
    said = " ".join(capsys.readouterr().err.split())
    assert f"2 days made by other code than the present were left out ({MON} … {TUE})" in said
    assert f"backfill --older-code --select {TABLE}" in said


def test_what_a_load_came_to_is_said_to_whoever_waits_for_it(
    made: Lake, store: OnlineStore, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, days that were left out were told to the log of the engine alone."""
    publish(made, MON, {"a": 1}, code="of long ago")
    publish(made, TUE, {"b": 1})
    terminal, said = os.fstat(2), list[str]()

    def say(text: str) -> None:
        assert os.path.samestat(os.fstat(2), terminal), "not where the engine's output is led aside"
        said.append(text)

    here = {"get_settings": lambda: made.settings, "lake_with_engine": lambda _: made, "get_table": made.table}
    for name, each in {**here, "redis_url": lambda _: redis_server.url, "say": say}.items():
        monkeypatch.setattr(f"lakehouse.commands.operate.online.{name}", each)
    for command in (load_them, rebuild_them):
        command([TABLE], as_of=TUE)
        assert f"{TABLE}, Delta version {made.snapshot(TABLE).version}: 1 row written" in said[-2]
        assert "1 day made by other code than the present were left out" in said[-1]


def test_a_table_that_cannot_be_served_keeps_no_other_from_its_load(
    lake: LakeFactory, store: OnlineStore, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a column of one table's features, or a table that is not built yet, would keep all others offline."""
    columns: dict[str, T.DataType] = {
        "place": T.StringType(),
        "day": T.DateType(),
        "shape": T.ArrayType(T.DoubleType()),
    }
    places, empty = (
        table(
            f"gold.{name}", model(name.title(), **{each: (kind, pa.Field()) for each, kind in have.items()}),
            lambda orders: orders, {"orders": Input("silver.orders")}, key=("place", "day"),
            features=Features(entity="place", key=("place",), ttl=TTL),
        )
        for name, have in (("places", columns), ("empty", {**columns, "shape": T.LongType()}))
    )  # fmt: skip
    made = lake(places, empty, profiles())
    publish(made, MON, {"a": 1})
    here = {"get_settings": lambda: made.settings, "lake_with_engine": lambda _: made, "tables": lambda: made.tables}
    here |= {"redis_url": lambda _: redis_server.url, "lake_without_engine": lambda _: made}
    for name, each in here.items():
        monkeypatch.setattr(f"lakehouse.commands.operate.online.{name}", each)
    for command in (load_them, rebuild_them, verify_them):
        with pytest.raises(OnlineError, match=r"(?s)gold.places: column shape .* not served.*gold.empty has no rows"):
            command(None, as_of=MON)
        assert online(store, made) == {"a": (MON, 1)}
    assert list(feature_sets(made.tables)) == ["gold.empty", TABLE]


def test_a_backfill_of_old_days_takes_no_newer_rows_place(
    made: Lake, store: OnlineStore, redis_server: RedisServer
) -> None:
    table = made.table(TABLE)
    publish(made, WED, {"a": 2})
    load(made, redis_server.url, table, noon(WED))
    publish(made, TUE, {"a": 1, "b": 1})
    done = load(made, redis_server.url, table, noon(WED), only=[TUE])
    assert done.put == Put(1, 0, 1)
    assert online(store, made) == {"a": (WED, 2), "b": (TUE, 1)}


def test_a_table_that_was_made_anew_is_loaded_from_nothing(
    made: Lake, lake: LakeFactory, store: OnlineStore, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> None:  # fmt: skip
    """Without it, rows of the old table would win by a version that says nothing about the new one."""
    for n in range(3):
        publish(made, WED, {"a": n})
    load(made, redis_server.url, made.table(TABLE), noon(WED))
    new = lake(profiles(), root=tmp_path_factory.mktemp("new"))
    publish(new, WED, {"b": 1})
    with pytest.raises(OnlineError, match=f"lakehouse online rebuild {TABLE}"):
        load(new, redis_server.url, new.table(TABLE), noon(WED))
    rebuild(new, redis_server.url, new.table(TABLE), noon(WED))
    assert online(store, new) == {"b": (WED, 1)}


def test_a_table_that_was_put_back_from_a_copy_is_loaded_from_nothing(
    made: Lake, lake: LakeFactory, store: OnlineStore, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> None:  # fmt: skip
    """Without it, rows of what is lost would be served, and each load would end well and say that they stand."""
    publish(made, TUE, {"a": 1, "b": 1})
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(made.settings.root, copy, dirs_exist_ok=True)
    publish(made, WED, {"a": 2, "c": 2})
    load(made, redis_server.url, made.table(TABLE), noon(WED))
    back = lake(profiles(), root=copy)
    with pytest.raises(OnlineError, match=rf"older copy\. Load it .* lakehouse online rebuild {TABLE}"):
        load(back, redis_server.url, back.table(TABLE), noon(WED))
    rebuild(back, redis_server.url, back.table(TABLE), noon(WED))
    assert online(store, back) == {"a": (TUE, 1), "b": (TUE, 1)}


def test_any_history_ends_in_what_a_rebuild_gives(
    made: Lake, store: OnlineStore, redis_server: RedisServer, seed: int
) -> None:
    """Publishes, corrections and loads of older moments in any order; in the end the store is what Delta says."""
    rng, table, history = random.Random(seed), made.table(TABLE), dict[date, dict[str, int]]()
    for _ in range(12):
        day = rng.choice(DAYS[:5])
        history[day] = {user: rng.randrange(100) for user in "abcdef" if rng.random() < 0.5}
        publish(made, day, history[day])
        if rng.random() < 0.3:
            only = rng.sample(DAYS[:5], 2) if rng.random() < 0.5 else None
            load(made, redis_server.url, table, noon(FRI), only=only)
    load(made, redis_server.url, table, noon(FRI))
    assert online(store, made) == newest(history, FRI)
    rebuild(made, redis_server.url, table, noon(FRI))
    assert online(store, made) == newest(history, FRI)


def test_a_load_into_what_is_emptied_meanwhile_begins_again(
    made: Lake, store: OnlineStore, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a load would say that it has written all rows, and none of them would be served."""
    publish(made, WED, {"a": 1, "b": 2})
    table, told, left = made.table(TABLE), list[str](), [True]
    sweep = OnlineStore.sweep

    def swept(*given: object) -> int:
        if left:
            left.pop()
            with redis_server.plain() as client:
                client.flushall()
        return sweep(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(OnlineStore, "sweep", swept)
    done = load(made, redis_server.url, table, noon(WED), told=told.append)
    assert (done.attempts, done.put.written, len(told)) == (2, 2, 1)
    assert online(store, made) == {"a": (WED, 1), "b": (WED, 2)}


def test_redis_that_is_down_is_said(made: Lake) -> None:
    publish(made, WED, {"a": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OnlineStore.__init__, "__defaults__", ((),))
        with pytest.raises(OnlineDownError, match="does not answer at redis://127.0.0.1:1/0"):
            load(made, "redis://u:canary@127.0.0.1:1/0", made.table(TABLE), noon(WED))


def test_a_table_without_rows_is_said(made: Lake) -> None:
    with pytest.raises(OnlineError, match=rf"{TABLE} has no rows yet.* backfill --select '\+{TABLE}' --from DAY"):
        source_of(made, made.table(TABLE), noon(WED))


def test_the_moment_of_a_lake_whose_data_has_ended_is_its_end() -> None:
    """Without it, nothing of a finished data set could be served: all of it would have expired years ago."""
    now = datetime(2026, 3, 5, 12, tzinfo=UTC)
    assert lake_now(None, now) == now
    assert lake_now(date(2011, 8, 31), now) == datetime(2011, 9, 1, tzinfo=UTC)
    assert lake_now(date(2026, 3, 5), now) == now


def test_a_load_is_planned_by_the_days_it_reads(
    made: Lake, store: OnlineStore, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a whole table would be shuffled into one task, since the day built last was small."""
    for day in (MON, TUE, WED):
        publish(made, day, {"a": 1, "b": 1})
    sizes: list[int | None] = []
    monkeypatch.setattr("lakehouse.online.load.plan_for", lambda _session, _settings, size: sizes.append(size))
    load(made, redis_server.url, made.table(TABLE), noon(WED))
    load(made, redis_server.url, made.table(TABLE), noon(WED), only=[WED])
    by_day = made.snapshot(TABLE).by_day(made.table(TABLE).day_column)
    assert sizes == [sum(f.size for day in (MON, TUE, WED) for f in by_day[day]), sum(f.size for f in by_day[WED])]
