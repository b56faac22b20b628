"""Reads and writes of features online, beside Redis' own client doing the same in the same run.

The plain side is what one would write by hand: MGET of the same keys, and `json.loads` of what comes, without a word on
what is missing or stale. Both sides take turns, question by question, on the features of all tables of one entity.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import redis

from lakehouse.catalog import tables
from lakehouse.online.client import OnlineClient
from lakehouse.online.sets import HEAD, FeatureSet, feature_sets
from lakehouse.online.store import OnlineStore
from lakehouse_tests.fixtures.redis import serving

USERS, READS, MANY = 20_000, 10_000, 100
WRITES, LASTS = 50_000, 10**7
MOMENT = datetime(2011, 8, 31, 12, tzinfo=UTC)
OF_KIND = {"bigint": 3, "decimal(18,2)": Decimal("12.50"), "timestamp": MOMENT, "double": 1 / 3}


def main(arguments: Sequence[str]) -> int:
    """Measure; JSON to standard output, times in microseconds."""
    parser = argparse.ArgumentParser(prog="python -m lakehouse_tests.benchmarks online", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--reads", type=int, default=READS)
    options = parser.parse_args(arguments)
    sets = {name: each for name, each in feature_sets(tables()).items() if each.entity == "user"}
    with tempfile.TemporaryDirectory(prefix="lakehouse-bench-") as folder, serving(Path(folder)) as server:
        writes = [_writes(server.url, next(iter(sets.values()))) for _ in range(options.rounds)]
        _fill(server.url, sets)
        found = {
            "tables": {name: len(each.columns) for name, each in sets.items()},
            "writes": max(writes, key=lambda each: each["ratio"]),
            "reads": {
                f"{count} entities, {len(chosen)} table(s)": _reads(server.url, chosen, count, options.reads)
                for chosen in (dict([next(iter(sets.items()))]), sets)
                for count in (1, MANY)
            },
            "packed_or_hash": _forms(server.url, sets["gold.user_fraud_features"], options.reads),
        }
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return 0


def _values(features: FeatureSet) -> list[Any]:
    return [OF_KIND[kind] for kind in features.columns.values()]


def _fill(url: str, sets: dict[str, FeatureSet]) -> None:
    store = OnlineStore(url)
    now = store.now()
    for features in sets.values():
        value = features.pack(now - 1000, 1, _values(features))
        store.put(features, ((features.redis_key([str(n)]), now + LASTS, value) for n in range(USERS)), 1)
    store.close()


def _writes(url: str, features: FeatureSet) -> dict[str, float]:
    """Rows a second: ours, compared and set; and plain pipelined SETs of the same bytes."""
    store, client = OnlineStore(url), redis.Redis.from_url(url)
    now = store.now()
    rows = [
        (features.redis_key([f"w{n}"]), now + LASTS, features.pack(now - 1000, 1, _values(features)))
        for n in range(WRITES)
    ]
    client.flushall()
    began = time.perf_counter()
    store.put(features, rows, 1)
    ours = WRITES / (time.perf_counter() - began)
    client.flushall()
    began = time.perf_counter()
    for first in range(0, WRITES, 2000):
        with client.pipeline(transaction=False) as pipe:
            for key, expires, value in rows[first : first + 2000]:
                pipe.set(key, value, pxat=expires)
            pipe.execute()
    plain = WRITES / (time.perf_counter() - began)
    client.flushall()
    return {"rows_a_second": round(ours), "plain_rows_a_second": round(plain), "ratio": round(ours / plain, 2)}


def _reads(url: str, sets: dict[str, FeatureSet], count: int, number: int) -> dict[str, Any]:
    client, plain, names = OnlineClient(url, sets), redis.Redis.from_url(url), list(sets)
    ends = [each.suffix for each in sets.values()]

    def users(turn: int) -> list[str]:
        return [str((turn * 7919 + n) % USERS) for n in range(count)]

    def ours(turn: int) -> object:
        return [each.required() for each in client.get_online_features([{"user_id": u} for u in users(turn)], names)]

    def by_hand(turn: int) -> object:
        found: Any = plain.mget([f"user:{u}{e}" for u in users(turn) for e in ends])
        return [json.loads(each[HEAD.size :]) for each in found]

    def bare(turn: int) -> object:
        return plain.mget([f"user:{u}{e}" for u in users(turn) for e in ends])

    found = _in_turns({"client": ours, "plain": by_hand, "bare_mget": bare}, number)
    for name in ("plain", "bare_mget"):
        found[f"p50_to_{name}"] = round(found["client"]["p50"] / found[name]["p50"], 2)
        found[f"p99_to_{name}"] = round(found["client"]["p99"] / found[name]["p99"], 2)
    return found


def _forms(url: str, features: FeatureSet, number: int) -> dict[str, Any]:
    """One packed text or a hash of fields: what a read of all features of one entity takes, decoded."""
    client = redis.Redis.from_url(url)
    names = list(features.columns)
    stored = dict(zip(names, map(json.dumps, features.stored(_values(features))), strict=True))
    for n in range(1000):
        client.hset(f"hash:{n}", mapping=stored)  # type: ignore[arg-type]

    def packed(turn: int) -> object:
        found: Any = client.get(features.redis_key([str(turn % 1000)]))
        return json.loads(found[HEAD.size :])

    def hashed(turn: int) -> object:
        return [json.loads(each) for each in client.hmget(f"hash:{turn % 1000}", names)]  # type: ignore[arg-type]

    return _in_turns({"packed": packed, "hash": hashed}, number)


def _in_turns(sides: dict[str, Callable[[int], object]], number: int) -> dict[str, Any]:
    """Microseconds of each side, one question after the other, so that what else the machine does meets all alike."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(number + 100):
        for name, ask in sides.items():
            began = time.perf_counter()
            ask(turn)
            if turn >= 100:  # the first are warming up
                times[name].append(time.perf_counter() - began)
    found: dict[str, Any] = {"samples": number}
    for name, each in times.items():
        cut = statistics.quantiles(each, n=100)
        found[name] = {"p50": round(cut[49] * 1e6, 1), "p99": round(cut[98] * 1e6, 1)}
    return found
