"""How a run waits for a slot of a pool, or for its next try: asleep, and until somebody ends it.

Dagster (1.13) means a run to sleep until it looks again whether a slot is free. But it takes the least of 0 and the
seconds that are left, so the run looks at its clock without end and keeps a processor busy; and *Terminate* is noticed
only when a step begins. Both cost most where runs collide: a backfill that waits for live runs would slow them down.
"""

from __future__ import annotations

import time

from dagster._core.errors import raise_execution_interrupts
from dagster._core.execution.plan.active import ActiveExecution
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext


def sleep_while_waiting() -> None:
    """From now on, runs of this process wait so."""
    InstanceConcurrencyContext.interval_to_next_pending_claim_check = _until_next_look  # type: ignore[method-assign]
    ActiveExecution.sleep_til_ready = _sleep_until_ready  # type: ignore[method-assign]


def _until_next_look(self: InstanceConcurrencyContext) -> float:
    """Seconds until it is looked again whether one of the slots is free."""
    now = time.time()
    looks = [at - now for step, at in self._pending_timeouts.items() if step in self._pending_claims]
    return max(0.0, min(looks, default=0.0))


def _sleep_until_ready(self: ActiveExecution) -> None:
    with raise_execution_interrupts():
        time.sleep(max(0.0, self.sleep_interval()))  # type: ignore[no-untyped-call]
