"""How often, and how soon, a stream tries again what met an error that may pass."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from lakehouse.spark.transient import is_transient

RETRIES = 3
FIRST_WAIT, LONGEST_WAIT = 1.0, 20.0  # seconds

Retried = Callable[[BaseException, float], None]
"""Is told of each error that is tried again, and in how many seconds."""


def attempts(stop: threading.Event, retried: Retried = lambda _error, _seconds: None) -> Retrying:
    """An error that may pass is tried again three times, with growing pauses; who stops the stream waits for no pause.

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

    return Retrying(
        retry=retry_if_exception(is_transient),
        stop=stop_after_attempt(1 + RETRIES),
        wait=wait_exponential_jitter(max=LONGEST_WAIT, multiplier=FIRST_WAIT),
        sleep=wait,
        before_sleep=told,
        reraise=True,
    )
