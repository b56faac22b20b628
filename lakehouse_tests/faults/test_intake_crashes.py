"""kill -9 of the intake and of those who write into its source: in the end the lake has what the source has, once.

Writers run all the while, with savepoints, rollbacks, deletions and transactions that take their time; their clients are
killed at any moment. The intake is killed at every point where it writes, at bronze and at silver, and goes on.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from lakehouse.delta.failpoints import POINTS
from lakehouse.read.lake import table_path
from lakehouse_tests.faults.laboratory import KILLED, EngineProcess, Laboratory
from lakehouse_tests.fixtures.making import rows_of
from lakehouse_tests.fixtures.postgres import Server, Session, Shop
from lakehouse_tests.fixtures.shop.bronze.orders import orders
from lakehouse_tests.fixtures.shop.silver.order_status import order_status
from lakehouse_tests.fixtures.tally import tally

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.crash]
WRITERS, ORDERS, LARGE = 5, 25, 20_000
AT_SILVER = 2  # of its points, which are those of any upsert and tested as such
AT_BRONZE = ("before-stage", "after-stage", "before-commit", "after-commit")
SAID = "{kills} kills of the intake, {writers} of writers, {versions} versions taken, {lost} lost, {doubled} doubled"


def statements(chance: random.Random) -> str:
    """One transaction of a writer, which may end in nothing."""
    made = ["BEGIN"]
    for _ in range(chance.randint(1, 4)):
        number = chance.randrange(ORDERS)
        amount, day = chance.randrange(10_000) / 100, f"2026-03-{1 + number % 3:02}Z"
        put = (
            f"INSERT INTO orders VALUES ('o{number}', 'u{number}', 's{chance.random()}', {amount}, 'EUR', '{day}', "
            "clock_timestamp()) ON CONFLICT (order_id) DO UPDATE SET status = excluded.status"
        )
        change = f"UPDATE orders SET amount = {amount} WHERE order_id = 'o{number}'"
        move = f"UPDATE orders SET created_at = created_at + interval '1 day' WHERE order_id = 'o{number}'"
        delete = f"DELETE FROM orders WHERE order_id = 'o{number}'"
        below = f"SAVEPOINT s; {change}; {chance.choice(['RELEASE', 'ROLLBACK TO'])} s"
        (chosen,) = chance.choices([put, change, move, delete, below], [8, 4, 1, 2, 4])
        made += [chosen, f"SELECT pg_sleep({chance.choice([0, 0, 0.01, 0.1, 0.5])})"]
    return "; ".join([*made, chance.choices(["COMMIT", "ROLLBACK"], [4, 1])[0]])


class Writers:
    """Clients that change the shop until they are told to stop."""

    def __init__(self, shop: Shop, seed: int) -> None:
        self.kills = 0
        self._shop, self._stop = shop, threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(random.Random(seed + number),)) for number in range(WRITERS)
        ]

    def _write(self, chance: random.Random) -> None:
        while not self._stop.is_set():
            with self._shop.client() as client:
                session = Session(client)
                for _ in range(chance.randint(2, 8)):
                    session(statements(chance))
                assert client.stdin is not None
                client.stdin.write(statements(chance) + ";\n")
                client.stdin.flush()
                time.sleep(chance.choice([0, 0.02, 0.2]))
                client.kill()
                self.kills += 1

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture(scope="module")
def laboratory(engine_process: EngineProcess) -> Laboratory:
    """What takes batches, and is killed."""
    return Laboratory(engine_process, "intaking")


def assert_equal(root: Path, shop: Shop, **counts: int) -> None:
    """Silver has the orders of the source, and bronze has no version twice."""
    silver = {
        (
            row["order_id"], row["user_id"], row["status"], str(row["amount"]), row["currency"],
            row["updated_at"].strftime("%Y-%m-%d %H:%M:%S.%f"),
        )
        for row in rows_of(table_path(root, "silver.order_status")) if row["deleted_at"] is None
    }  # fmt: skip
    bronze = rows_of(table_path(root, "bronze.orders"))
    versions = Counter((row["order_id"], row["_xid"], row["_tombstone"]) for row in bronze)
    wanted = shop.orders()
    doubled = sum(versions.values()) - len(versions)
    lost = len(wanted ^ silver)
    tally("intake", SAID, versions=len(versions), lost=lost, doubled=doubled, **{"kills": 0, "writers": 0} | counts)
    assert (sorted(wanted - silver), sorted(silver - wanted), doubled) == ([], [], 0)


def test_killed_everywhere_while_others_write(
    laboratory: Laboratory, server: Server, tmp_path: Path, seed: int, cases: Callable[[int], int]
) -> None:
    """Without it, a crash could skip rows or double them, and rows of late commits or below savepoints be missed."""
    chance, shop, kills, taken = random.Random(seed), server.shop(), 0, 0
    at_silver = [f"{order_status.id}:{each}" for each in POINTS]
    with Writers(shop, seed) as writers, shop.session() as slow:
        time.sleep(0.5)
        for _ in range(cases(1)):
            slow("BEGIN; SELECT place('slow', 'placed', 1, '2026-03-01Z') WHERE NOT EXISTS "
                 "(SELECT FROM orders WHERE order_id = 'slow'); UPDATE orders SET status = 'later' WHERE order_id = 'slow'")  # fmt: skip
            points = [f"{orders.id}:{each}" for each in AT_BRONZE] + chance.sample(at_silver, AT_SILVER)
            for number, point in enumerate(chance.sample(points, len(points))):
                killed = laboratory.run(tmp_path, point, url=shop.url) == KILLED
                kills += killed
                assert killed or point.startswith(order_status.id), "the intake had nothing to do"
                if number % 3 == 2:
                    taken += laboratory.run(tmp_path, url=shop.url)["rows"]
            slow("COMMIT")
    assert kills >= len(AT_BRONZE)
    assert taken
    laboratory.run(tmp_path, url=shop.url)
    assert_equal(tmp_path, shop, kills=kills, writers=writers.kills)
    assert laboratory.run(tmp_path, url=shop.url) == {"rows": 0, "days": 0}


def test_killed_with_its_engine_while_it_reads(laboratory: Laboratory, server: Server, tmp_path: Path) -> None:
    """Without it, a batch that was read in part could be taken for a whole one."""
    shop = server.shop()
    shop.run("SELECT place('a', 'placed', 1)")
    laboratory.run(tmp_path, url=shop.url)
    shop.run(f"INSERT INTO orders SELECT 'n' || n, 'u', 's', n, 'EUR', now(), now() FROM generate_series(1, {LARGE}) n")
    laboratory.order(tmp_path, forked=False, url=shop.url)
    staged = table_path(tmp_path, "bronze.orders") / "staged"
    laboratory.kill_as_it_writes(staged)
    held = len(rows_of(table_path(tmp_path, "bronze.orders")))
    assert held in (1, 1 + LARGE)  # whole, where the kill came too late on a busy machine
    assert laboratory.run(tmp_path, url=shop.url) == {"rows": 1 + LARGE - held, "days": 1}
    assert_equal(tmp_path, shop, kills=1)
