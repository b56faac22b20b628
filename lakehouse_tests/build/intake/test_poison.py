"""How messages are found on which a table's code fails: by nothing but whether it fails on some of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException, ArithmeticException, PySparkException

from lakehouse.build.intake.poison import MOST, poison_in
from lakehouse.sources.spans import Span
from lakehouse.spark.transient import is_transient

ERROR = ArithmeticException("[DIVIDE_BY_ZERO] Division by zero")


class Code:
    """A table's code that fails on some messages, and how often it was tried.

    Args:
        bad: offsets, by partition, of the messages.
        together: of how many messages it fails besides, whatever they are.
    """

    def __init__(self, bad: set[tuple[int, int]], together: int = 1 << 60) -> None:
        self._bad, self._together, self.tries = bad, together, 0

    def failure(self, span: Span) -> str:
        """As `poison_in` asks for it."""
        self.tries += 1
        if span.end - span.start >= self._together:
            return "too many"
        return next((f"bad {at}" for at in sorted(self._bad) if _holds(span, at)), "")


def _holds(span: Span, at: tuple[int, int]) -> bool:
    return span.partition == at[0] and span.start <= at[1] < span.end


def spans(*lengths: int) -> list[Span]:
    """A span of each partition, from offset 100 on."""
    return [Span("visits", number, 100, 100 + length) for number, length in enumerate(lengths)]


@given(st.data(), st.lists(st.integers(1, 300), min_size=1, max_size=4))
def test_just_those_messages_are_found_and_soon(data: st.DataObject, lengths: list[int]) -> None:
    """Without it, a message more would be lost to the table, or a stream stand still while one is looked for."""
    offsets = [(span.partition, at) for span in spans(*lengths) for at in range(span.start, span.end)]
    bad = data.draw(st.sets(st.sampled_from(offsets), min_size=1, max_size=MOST))
    code = Code(bad)
    found = poison_in(spans(*lengths), code.failure, ERROR)
    assert {(span.partition, span.start): why for span, why in found.items()} == {at: f"bad {at}" for at in bad}
    assert all(span.end == span.start + 1 for span in found)
    assert code.tries <= len(lengths) + len(bad) * (math.ceil(math.log2(max(lengths))) + 2)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        pytest.param(Code({(0, at) for at in range(100, 101 + MOST)}), ERROR, id="on more than a few"),
        pytest.param(Code(set(), together=5), ERROR, id="on none alone"),
        pytest.param(Code({(0, 100)}), AnalysisException("no such column"), id="whatever they are"),
        pytest.param(Code({(0, 100)}), PySparkException("ExecutorLostFailure"), id="for now"),
    ],
)
def test_the_error_stays_where_it_is_no_messages(code: Code, error: PySparkException) -> None:
    """Without it, mistakes in code and lost engines would turn sound messages into dead letters."""
    with pytest.raises(type(error)) as raised:
        poison_in(spans(40), code.failure, error)
    assert raised.value is error


def test_an_engine_that_is_lost_meanwhile_blames_no_message() -> None:
    """Without it, the messages that were left to be looked at would be dead letters."""
    lost = PySparkException("StatusCode.UNAVAILABLE")
    assert is_transient(lost)

    def failure(span: Span) -> str:
        if span.end - span.start < 10:
            raise lost
        return "bad"

    with pytest.raises(PySparkException) as raised:
        poison_in(spans(40), failure, ERROR)
    assert raised.value is lost
