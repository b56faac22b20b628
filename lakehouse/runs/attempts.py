"""How often, and how soon, a stream tries again what met an error that may pass, and on which engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from lakehouse.errors import EngineLostError, SourceDownError
from lakehouse.read.lake import Lake
from lakehouse.spark.transient import is_transient
from lakehouse.spark.warm import is_lost

RETRIES = 3
FIRST_WAIT, LONGEST_WAIT = 1.0, 20.0  # seconds

Retried = Callable[[BaseException, float], None]
"""Is told of each error that is tried again, and in how many seconds."""


def retrying(stop: threading.Event, retried: Retried = lambda _error, _seconds: None) -> Retrying:
    """An error that may pass is tried again three times, with growing pauses; who stops the stream waits for no pause.

    A source that does not answer ends a stream that is stopped at once, since each try takes as long as its patience.

    Args:
        stop: set where the stream is to end.
        retried: see there.
    """

    def wait(seconds: float) -> None:
        stop.wait(seconds)

    def told(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if error is not None and state.next_action is not None:
            retried(error, state.next_action.sleep)

    enough = stop_after_attempt(1 + RETRIES)

    def is_stopped(state: RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        return stop.is_set() and isinstance(error, SourceDownError)

    return Retrying(
        retry=retry_if_exception(is_transient),
        stop=lambda state: enough(state) or is_stopped(state),
        wait=wait_exponential_jitter(max=LONGEST_WAIT, multiplier=FIRST_WAIT),
        sleep=wait,
        before_sleep=told,
        reraise=True,
    )


@contextmanager
def with_engine(lake: Lake) -> Iterator[None]:
    """One try on an engine that is there: where the one that the lake has used is gone, the try starts another.

    Within a try the session stays: what was planned on one that is gone goes with no plan of another, and a batch would
    take messages for broken on which only the engine had failed.

    Raises:
        EngineLostError: it ended meanwhile, however that was met.
    """
    _let_go(lake)
    try:
        yield
    except PySparkException as error:
        # Another thread of this process may have seen it first, and closed all sessions: that is no error of a plan.
        if _let_go(lake):
            raise EngineLostError("The warm engine ended while it was used.") from error
        raise


def _let_go(lake: Lake) -> bool:
    """Have a lake forget a session whose engine is gone; returns whether it was."""
    session = vars(lake).get("spark")  # none is started by asking
    if session is None or not is_lost(session):
        return False
    del lake.spark
    return True
