"""A run that waits for others leaves them the processor, and can be ended."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from dagster import DagsterInstance, In, JobDefinition, Nothing, RetryPolicy, job, op
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._utils.interrupts import capture_interrupts

from lakehouse.orchestration.instance import opened_instance
from lakehouse.orchestration.jobs import lake_executor
from lakehouse.settings import Settings

POOL = "silver_orders"


@op(pool=POOL)
def waits() -> None:
    """Begins once there is a slot."""


@op(retry_policy=RetryPolicy(max_retries=1, delay=60))
def fails() -> None:
    """Is tried again after a minute."""
    raise OSError


@op(ins={"before": In(Nothing)})
def follows() -> None:
    """Begins after another."""


@job(executor_def=lake_executor)
def in_pool() -> None:
    """A run that waits for a slot."""
    follows(before=waits())


@job(executor_def=lake_executor)
def tried_again() -> None:
    """A run that waits for its next try."""
    fails()


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    """Dagster's files, with a pool whose slot a run holds."""
    with opened_instance(Settings(root=tmp_path)) as opened:
        opened.event_log_storage.set_concurrency_slots(POOL, 1)
        assert opened.event_log_storage.claim_concurrency_slot(POOL, "holder", "step").is_claimed
        yield opened


@contextmanager
def after(seconds: float, action: Callable[[], object]) -> Iterator[None]:
    """Something happens meanwhile."""
    timer = threading.Timer(seconds, action)
    timer.start()
    yield
    timer.join()


def terminate(instance: DagsterInstance) -> None:
    """End the only run, as the launcher does."""
    (run,) = instance.get_runs()
    instance.report_run_canceling(run)
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_run_without_a_slot_sleeps_and_then_goes_on(instance: DagsterInstance) -> None:
    """Without it, each run that waits for another would keep a processor busy with looking at its clock."""
    began, used = time.monotonic(), time.thread_time()
    with after(3, lambda: instance.event_log_storage.free_concurrency_slots_for_run("holder")):
        done = in_pool.execute_in_process(instance=instance)
    assert done.success
    assert time.monotonic() - began >= 3
    assert time.thread_time() - used < 2, "of three seconds and more"


@pytest.mark.parametrize("ended", [in_pool, tried_again])
def test_a_run_that_waits_is_ended_at_once(instance: DagsterInstance, ended: JobDefinition) -> None:
    """Without it, *Terminate* would be noticed when the wait is over, which for a slot may be never."""
    began = time.monotonic()
    with capture_interrupts(), after(2, lambda: terminate(instance)), pytest.raises(DagsterExecutionInterruptedError):
        ended.execute_in_process(instance=instance, raise_on_error=True)
    assert time.monotonic() - began < 30
    (run,) = instance.get_runs()
    assert run.status.value == "CANCELED"
