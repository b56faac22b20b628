"""Dagster's SQLite event log: a whole batch of events in one transaction, and pools that lose no slot.

Dagster hands over a range run's materializations in batches (`DAGSTER_EVENT_BATCH_SIZE`), but its SQLite storages write
them one by one, each in transactions of its own: about 10 ms an event, more than the Spark work of a small day.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log import ConsolidatedSqliteEventLogStorage
from dagster._utils.concurrency import ConcurrencyClaimStatus


class BatchedSqliteEventLogStorage(ConsolidatedSqliteEventLogStorage):
    """`ConsolidatedSqliteEventLogStorage` (one database for all runs): a batch is one transaction, no slot is lost."""

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """Store materializations or observations: rows, tags, and each asset's newest event, all or nothing."""
        newest: dict[str, tuple[EventLogEntry, int]] = {}
        with self.index_transaction() as connection:
            ids: list[int] = []
            for event in events:
                event_id = _inserted(connection.execute(self.prepare_insert_event(event)))
                ids.append(event_id)
                asset_key = event.dagster_event.asset_key if event.dagster_event else None
                if asset_key is not None:
                    newest[asset_key.to_string()] = (event, event_id)
            self._store_asset_event_tags(connection, events, ids)
            for event, event_id in newest.values():
                self._store_asset_event(connection, event, event_id)

    def claim_concurrency_slot(
        self, concurrency_key: str, run_id: str, step_key: str, priority: int | None = None
    ) -> ConcurrencyClaimStatus:
        """Claim a slot of a pool for a step, or queue the step.

        Dagster (1.13) looks for a free slot and then queues the step: where the only slot is freed in between, nobody
        is left to wake the step, which would wait for ever for a slot that is free. So each further look sees to that.
        """
        claim = super().claim_concurrency_slot(concurrency_key, run_id, step_key, priority)
        if claim.is_claimed or claim.is_assigned or not self.has_unassigned_slots(concurrency_key):
            return claim
        self.assign_pending_steps([concurrency_key])
        return super().claim_concurrency_slot(concurrency_key, run_id, step_key, priority)


def _inserted(result: Any) -> int:
    (event_id,) = result.inserted_primary_key
    return int(event_id)
