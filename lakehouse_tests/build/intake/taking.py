"""A lake that takes batches from a PostgreSQL of the tests."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, date
from typing import Any

from pydantic import SecretStr

from lakehouse.build.build import build
from lakehouse.build.result import BuildResult
from lakehouse.build.stale import stale_days
from lakehouse.checks.metrics import Outcome
from lakehouse.contracts import Table
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import rows_of
from lakehouse_tests.fixtures.postgres import Shop
from lakehouse_tests.fixtures.shop.bronze.orders import orders
from lakehouse_tests.fixtures.shop.silver.order_status import order_status

ASKED = date(2026, 1, 1)
assert orders.extract is not None
EXTRACT = orders.extract


def variant(**change: Any) -> Table:
    """bronze.orders taken in another way."""
    return replace(orders, inputs={"rows": replace(EXTRACT, **change)})


class Taking:
    """A lake that takes from a shop."""

    def __init__(self, make: LakeFactory, shop: Shop, bronze: Table = orders, **kwargs: Any) -> None:
        self.shop, self.bronze = shop, bronze
        self.lake = make(bronze, order_status, **kwargs)
        self.point_to(shop.url)

    def point_to(self, url: str | None) -> None:
        """Set the address of the source."""
        secret = SecretStr(url) if url else None
        self.lake.settings = self.lake.settings.model_copy(update={"source_urls": {"orders": secret} if secret else {}})

    def take(self, *, whole: bool = False) -> BuildResult:
        """One batch."""
        return build(self.lake, self.bronze, [ASKED], run_id="test", force=whole)

    def refresh(self) -> list[date]:
        """Build the days of silver that are not current; returns them."""
        days = stale_days(self.lake, order_status)
        result = build(self.lake, order_status, days, run_id="test")
        assert result.with_status("published") == days
        return days

    def silver(self) -> set[tuple[str, ...]]:
        """Living orders as texts."""
        rows = rows_of(self.lake.path("silver.order_status"))
        assert len({row["order_id"] for row in rows}) == len(rows)
        return {
            (
                row["order_id"], row["user_id"], row["status"], str(row["amount"]), row["currency"],
                row["updated_at"].astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f"),
            )
            for row in rows if row["deleted_at"] is None
        }  # fmt: skip

    def versions(self) -> Counter[tuple[Any, ...]]:
        """How often each version of a row is in bronze."""
        rows = rows_of(self.lake.path("bronze.orders"))
        return Counter((row["order_id"], row["_xid"], row["_tombstone"], row["updated_at"]) for row in rows)

    def log(self, version: int) -> dict[str, list[Any]]:
        """The actions of one entry of bronze's log by kind."""
        path = self.lake.path("bronze.orders") / "_delta_log" / f"{version:020}.json"
        found: dict[str, list[Any]] = {}
        for line in path.read_text().splitlines():
            for kind, action in json.loads(line).items():
                found.setdefault(kind, []).append(action)
        return found


def commit_lag(result: BuildResult) -> Outcome:
    """The check of the lag."""
    (found,) = [each for each in result.outcomes if each.check == "commit_lag"]
    return found
