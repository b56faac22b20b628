"""A steady pace: what the sender does between two messages."""

from __future__ import annotations

import time

from lakehouse.kafka import sending


def test_a_pause_of_less_than_a_millisecond_is_waited_for_and_not_spun_through() -> None:
    # The client's `poll` takes whole milliseconds: for 0.0004 it returns at once, and again, on a processor of its own.
    asked: list[float] = []

    def poll(seconds: float) -> int:
        asked.append(seconds)
        time.sleep(int(seconds * 1000) / 1000)
        return 0

    sending._wait(poll, time.monotonic() + 0.0004)
    sending._wait(poll, time.monotonic() + 0.0124)
    assert asked, "nothing was waited for"
    assert min(asked) >= 0.001, "a poll that does not wait"
    assert len(asked) <= 4, "more than one poll for a pause, and one for what its rounding left"
