"""Which errors pass by themselves."""

from __future__ import annotations

import errno

import pytest
from pyspark.errors import PySparkException

from lakehouse.errors import DecidedMeanwhileError, EngineError, PublishConflictError, SourceError
from lakehouse.spark.transient import is_transient


def _from(cause: BaseException, error: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


LOST = "Job aborted due to stage failure: ... ExecutorLostFailure (executor 3 exited unrelated to the running tasks)"
PASSING = [
    ConnectionResetError("reset by peer"),
    TimeoutError("timed out"),
    OSError(errno.EIO, "Input/output error"),
    OSError(errno.ESTALE, "Stale file handle"),
    PublishConflictError("another run published it"),
    PySparkException(LOST),
    PySparkException('<_InactiveRpcError status = StatusCode.UNAVAILABLE details = "failed to connect">'),
    _from(ConnectionRefusedError("refused"), EngineError("The Spark engine did not start")),
]
LASTING = [
    ValueError("a mistake"),
    KeyError("amount"),
    OSError(errno.ENOSPC, "No space left on device"),
    FileNotFoundError(errno.ENOENT, "gone"),
    PermissionError(errno.EACCES, "denied"),
    PySparkException("[DIVIDE_BY_ZERO] Division by zero"),
    SourceError("landing/events: cannot be read"),
    MemoryError(),
    _from(OSError(errno.EIO, "no answer"), DecidedMeanwhileError("ann ran `lakehouse restore`")),
]


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_what_may_pass_is_tried_again(error: BaseException) -> None:
    """Without it, a moment without network would cost a night's run."""
    assert is_transient(error)


@pytest.mark.parametrize("error", [*LASTING, KeyboardInterrupt()], ids=repr)
def test_what_stays_is_not(error: BaseException) -> None:
    """Without it, a mistake would be reported after three attempts, and a full disk be filled further."""
    assert not is_transient(error)
