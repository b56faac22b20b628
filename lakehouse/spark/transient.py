"""Which errors pass by themselves, so that trying again may help: of network, disk and engine, and lost races.

A run that lost a race to another one plans anew from the newest inputs: days that are published from these are left
alone, so a second attempt costs what is still to do. One that lost to somebody's restore or swap does not: a decision
is not to be undone by a retry.

A mistake in a transform, data that fails its audit and an interrupt are none of these: trying again would only take
longer to say so, or start again what a person has stopped.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

from pyspark.errors import PySparkException

from lakehouse.errors import DecidedMeanwhileError, PublishConflictError

# fmt: off
_OF_THE_SYSTEM = {
    errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ECONNREFUSED,
    errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET,
    errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENOLCK,
}
# fmt: on
# Spark tells what went wrong in a worker or on the way to it only in words.
_OF_THE_ENGINE = re.compile(
    r"ExecutorLostFailure|FetchFailed|MetadataFetchFailed|ExecutorDeadException|StatusCode\.UNAVAILABLE"
    r"|java\.net\.(ConnectException|SocketException|SocketTimeoutException|NoRouteToHostException)"
    r"|java\.util\.concurrent\.TimeoutException|RpcTimeoutException|Stale file handle"
)


def is_transient(error: BaseException) -> bool:
    """Whether trying again may help, by the error or what it says it was caused by."""
    causes = list(_causes(error))
    decided = any(isinstance(each, DecidedMeanwhileError) for each in causes)
    return not decided and any(_passes(each) for each in causes)


def _passes(error: BaseException) -> bool:
    if isinstance(error, ConnectionError | TimeoutError | PublishConflictError):
        return True
    if isinstance(error, OSError):
        return error.errno in _OF_THE_SYSTEM
    return isinstance(error, PySparkException) and _OF_THE_ENGINE.search(str(error)) is not None


def _causes(error: BaseException) -> Iterator[BaseException]:
    each: BaseException | None = error
    while each is not None:
        yield each
        each = each.__cause__
