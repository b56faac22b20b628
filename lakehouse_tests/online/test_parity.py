"""The parity certificate: zero where all is well, and every kind of difference found and told without the person."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest

from lakehouse.online.load import load
from lakehouse.online.parity import HIDDEN, verify
from lakehouse.online.sets import HEAD, FeatureSet
from lakehouse.online.store import EVERYTHING, OnlineStore
from lakehouse.read.lake import Lake
from lakehouse_tests.fixtures.profiles import DAYS, TABLE, noon, publish
from lakehouse_tests.fixtures.redis import RedisServer

MON, TUE, WED, THU, FRI, *_ = DAYS


def bring(lake: Lake, store: OnlineStore) -> FeatureSet:
    """Put Wednesday's and Tuesday's rows in as a load would, without an engine."""
    from lakehouse.online.load import source_of
    from lakehouse.online.parity import _parts, _rows
    from lakehouse.online.sets import FeatureSet as Sets

    table = lake.table(TABLE)
    source, features = source_of(lake, table, noon(WED)), Sets.of(table)
    version = source.snapshot.version
    assert source.snapshot.metadata is not None
    store.begin(features, version, EVERYTHING, str(source.snapshot.table_id))
    for day in source.days:
        for row in _parts(source.snapshot, table, (*features.key, *features.columns), day):
            key = features.redis_key(row[:1])
            event = _rows(source.snapshot, table, features, day, [key])[key][0]
            store.put(
                features, [(key, store.now() + 10**7, features.pack(event, version, row[1:]))], version, EVERYTHING
            )
    store.sweep(features, version, EVERYTHING)
    return features


def test_a_store_that_is_as_delta_says_passes(made: Lake, store: OnlineStore) -> None:
    publish(made, TUE, {"a": 1, "b": 1})
    version = publish(made, WED, {"a": 2})
    bring(made, store)
    found = verify(made, store, made.table(TABLE), noon(WED))
    assert found.passed
    assert (found.entities, found.online, found.sampled, found.values, found.delta_version) == (2, 2, 2, 6, version)


def test_each_kind_of_difference_is_found(made: Lake, store: OnlineStore) -> None:
    """Without it, a certificate could be given that nothing stands behind."""
    table = made.table(TABLE)
    publish(made, TUE, {"canary-b": 1, "canary-c": 1, "canary-d": 1})
    version = publish(made, WED, {"canary-a": 2})
    features = bring(made, store)
    keys = {user: features.redis_key([f"canary-{user}"]) for user in "abcde"}
    [value] = store.values([keys["a"]])
    assert value is not None
    later, event = store.now() + 10**7, HEAD.unpack_from(value)[0]
    store.remove([keys["d"]])
    store.put(features, [(keys["e"], later, features.pack(event, version, [1, 2, None]))], version)
    # What no load would write: another value under the same event time and version, or another day.
    store.remove([keys["a"], keys["b"]])
    store.put(features, [(keys["a"], later, value.replace(b"[2,", b"[3,"))], version)
    store.put(features, [(keys["b"], later, features.pack(event, version, [1, 2, None]))], version)
    found = verify(made, store, table, noon(WED))
    assert not found.passed
    assert (found.missing, found.extra, found.mismatched) == (1, 1, 2)
    texts = [each.text() for each in found.mismatches]
    assert "canary" not in "".join(texts), "a certificate names nobody"
    [wrong] = [each for each in found.mismatches if each.feature == "orders"]
    assert (wrong.served, wrong.expected, wrong.delta_version, wrong.code_version) == (
        "3",
        "2",
        version,
        table.code_version,
    )
    assert wrong.text().endswith(
        f"(Delta version {version}, the newest; row of {WED}, Delta version {version}, code v1)"
    )
    assert sorted(each.feature for each in found.mismatches) == ["(row)", "(row)", "(row)", "orders"]


def test_a_row_is_compared_as_known_then_and_now(made: Lake, store: OnlineStore) -> None:
    """Without it, a row that is only behind could not be told from one that was never in Delta."""
    table = made.table(TABLE)
    first = publish(made, WED, {"a": 2, "b": 2})
    features = bring(made, store)
    publish(made, WED, {"a": 2, "b": 5})
    found = verify(made, store, table, noon(WED))
    [last] = [(each.served, each.expected) for each in found.mismatches if each.feature == "last"]
    assert {(each.feature, each.served, each.expected, each.against) for each in found.mismatches} == {
        ("orders", "2", "5", f"Delta version {first + 1}, the newest"),
        ("amount", "2.20", "5.50", f"Delta version {first + 1}, the newest"),
        ("last", *last, f"Delta version {first + 1}, the newest"),
    }  # fmt: skip
    assert (found.mismatched, found.values) == (1, 12)
    [value] = store.values([key := features.redis_key(["a"])])
    assert value is not None
    store.remove([key])
    store.put(features, [(key, store.now() + 10**7, value.replace(b"[2,", b"[7,"))], first)
    told = {each.against for each in verify(made, store, table, noon(WED)).mismatches if each.served == "7"}
    assert told == {f"Delta version {first}, as known then", f"Delta version {first + 1}, the newest"}


@pytest.mark.parametrize("rows", [{"a": 2, "new": 1}, {"b": 2}])
def test_a_load_beside_it_is_no_difference(
    made: Lake, store: OnlineStore, monkeypatch: pytest.MonkeyPatch, rows: dict[str, int]
) -> None:
    """Without it, entities that a new version brought or took away failed a certificate, and somebody was woken up."""
    publish(made, WED, {"a": 2, "b": 1})
    bring(made, store)
    listed, later = store.keys, [rows]

    def keys(pattern: str) -> Iterator[str]:
        while later:
            publish(made, WED, later.pop())
            bring(made, store)
        return listed(pattern)

    monkeypatch.setattr(store, "keys", keys)
    found = verify(made, store, made.table(TABLE), noon(WED))
    assert found.passed, [each.text() for each in found.mismatches]
    assert found.entities == found.online == len(rows)


def test_a_key_without_a_key_for_tokens_is_hidden(
    made: Lake, store: OnlineStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAKEHOUSE_PII_KEY")
    made.settings = made.settings.model_copy(update={"pii_key": None})
    publish(made, WED, {"canary": 2})
    [found] = verify(made, store, made.table(TABLE), noon(WED)).mismatches
    assert found.entity == f"user {HIDDEN}"
    assert not made.settings.has_pii_key, "who only looks makes no key"


def test_loads_in_any_order_beside_a_backfill_leave_no_difference(
    made: Lake, store: OnlineStore, redis_server: RedisServer, seed: int
) -> None:
    """Without it, parity would hold only as long as nobody else is at work."""
    rng, table, stop = random.Random(seed), made.table(TABLE), threading.Event()
    users = [f"u{n}" for n in range(30)]
    for day in DAYS[:4]:
        publish(made, day, {user: rng.randrange(50) for user in rng.sample(users, 15)})

    def backfill() -> None:
        """Old days are published and loaded again and again, in any order, as slowly as it comes."""
        own = random.Random(seed + 1)
        while not stop.is_set():
            day = own.choice(DAYS[:4])
            publish(made, day, {user: own.randrange(50) for user in own.sample(users, 12)})
            load(made, redis_server.url, table, noon(WED), only=[day])

    beside = threading.Thread(target=backfill)
    beside.start()
    try:
        for _ in range(2):
            load(made, redis_server.url, table, noon(WED))
    finally:
        stop.set()
        beside.join()
    load(made, redis_server.url, table, noon(WED))
    found = verify(made, store, table, noon(WED), sample=None)
    assert found.passed, [each.text() for each in found.mismatches]
    assert found.online == found.entities == found.sampled > 0
