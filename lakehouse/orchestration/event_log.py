"""Dagster's event log: batches in one transaction, a moment for each event, and no slot of a pool lost.

Dagster hands over a range run's materializations in batches (`DAGSTER_EVENT_BATCH_SIZE`), but its SQLite storages write
them one by one, each in transactions of its own: about 10 ms an event, more than the Spark work of a small day. Its
storage in PostgreSQL writes them together, and then tells of the last one's asset alone that it has something new.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dagster import AssetCheckEvaluation
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log import ConsolidatedSqliteEventLogStorage, SqlEventLogStorage
from dagster._utils.concurrency import ConcurrencyClaimStatus

_BURST = 10.0  # seconds by which the events of one step may be moved at most: 10,000 of them


class BatchedEventLogStorage(SqlEventLogStorage):
    """What comes before a storage of Dagster's that keeps all runs in one database.

    Dagster's pages take an asset's events of the same millisecond for one, and show only the last of them. A range run
    makes many within a millisecond, so each is stored a millisecond after the one before.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]
        self._last: dict[str, int] = {}  # by asset, the millisecond of its newest event

    def store_event(self, event: EventLogEntry) -> None:
        """Store one event."""
        super().store_event(_spaced(event, self._last))

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """Store materializations or observations: rows, tags, and each asset's newest event, all or nothing."""
        last = dict(self._last)
        events = [_spaced(event, last) for event in events]
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
        self._last = last

    def _store_runless_asset_check_evaluation(self, event: EventLogEntry, event_id: int | None) -> None:
        """Store what a check says of a partition without a run, in place of what it said before.

        Dagster (1.13) adds a row each time, which its own index forbids from the second time on: a stream, which tells
        of a day every few seconds, would end with that.
        """
        found = event.dagster_event.event_specific_data if event.dagster_event else None
        if isinstance(found, AssetCheckEvaluation) and found.partition is not None:
            self._update_asset_check_evaluation(event, event_id)
        else:
            super()._store_runless_asset_check_evaluation(event, event_id)

    def claim_concurrency_slot(
        self, concurrency_key: str, run_id: str, step_key: str, priority: int | None = None
    ) -> ConcurrencyClaimStatus:
        """Claim a slot of a pool for a step, or queue the step.

        Dagster (1.13) looks for a free slot and then queues the step: where the only slot is freed in between, nobody
        is left to wake the step, which would wait for ever for a slot that is free. So each further look sees to that.

        Args:
            concurrency_key: name of the pool.
            run_id: of the step's run.
            step_key: of the step.
            priority: among those that wait; the highest is first.
        """
        claim = super().claim_concurrency_slot(concurrency_key, run_id, step_key, priority)
        if claim.is_claimed or claim.is_assigned or not self.has_unassigned_slots(concurrency_key):
            return claim
        self.assign_pending_steps([concurrency_key])
        return super().claim_concurrency_slot(concurrency_key, run_id, step_key, priority)


class BatchedSqliteEventLogStorage(BatchedEventLogStorage, ConsolidatedSqliteEventLogStorage):
    """The same in a SQLite file."""


def _spaced(event: EventLogEntry, last: dict[str, int]) -> EventLogEntry:
    """The event in a millisecond of its own among its asset's, which `last` then holds."""
    found = event.dagster_event
    if found is None or found.asset_key is None or not (found.is_step_materialization or found.is_asset_observation):
        return event
    key, own = found.asset_key.to_string(), int(event.timestamp * 1000)
    before = last.get(key, 0)
    if own <= before < own + _BURST * 1000:
        own = before + 1
        event = event._replace(timestamp=(own + 0.5) / 1000)  # in the middle, where no rounding leaves it
    last[key] = own
    return event


def _inserted(result: Any) -> int:
    (event_id,) = result.inserted_primary_key
    return int(event_id)
