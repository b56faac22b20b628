"""Words with a Spark Connect server of this machine, as its clients and its keeper have them."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Callable
from typing import Any

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # it warns of every process that is started

import grpc
import pyspark.sql.connect.proto as messages
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.proto.base_pb2_grpc import SparkConnectServiceStub
from pyspark.sql.connect.session import SparkSession

from lakehouse.spark.options import REMOTE

USER = "lakehouse"
_ENDING = re.compile("SparkContext was shut down|stopped SparkContext|OutOfMemoryError")
_MOMENT = 2.0  # seconds
_TRIES, _APART = 60, 4000  # milliseconds at most; a keeper takes less time to end an engine that answers no more
_DIRECTLY = [("grpc.enable_http_proxy", 0)]  # a proxy of the environment is not for this machine


class Wire:
    """A few questions to a server, each with a bound on its time."""

    def __init__(self, port: int, token: str) -> None:
        builder = _builder(port, token, str(uuid.uuid4()))
        self._own = str(builder.session_id)
        self._metadata: Any = builder.metadata()
        stub: Any = SparkConnectServiceStub
        self._stub = stub(builder.toChannel())

    def version(self, seconds: float) -> str:
        """The server's version of Spark; raises where it does not answer, or not to this token."""
        asked = messages.AnalyzePlanRequest(
            session_id=self._own,
            user_context=messages.UserContext(user_id=USER),
            spark_version=messages.AnalyzePlanRequest.SparkVersion(),
        )
        answer = self._stub.AnalyzePlan(asked, timeout=seconds, metadata=self._metadata)
        return str(answer.spark_version.version)

    def release(self, session: str, seconds: float) -> None:
        """Close a session: what runs in it is interrupted, and what it kept is dropped."""
        asked = messages.ReleaseSessionRequest(session_id=session, user_context=messages.UserContext(user_id=USER))
        self._stub.ReleaseSession(asked, timeout=seconds, metadata=self._metadata)


def is_ready(url: str, seconds: float) -> bool:
    """Whether a server of Spark Connect answers within some seconds; pyspark would wait for it for ever.

    Args:
        url: of the server, as `sc://host:port/;token=…`.
        seconds: that it has.
    """
    channel = DefaultChannelBuilder(url).toChannel()
    try:
        grpc.channel_ready_future(channel).result(timeout=seconds)
    except grpc.FutureTimeoutError:
        return False
    finally:
        channel.close()
    return True


class _WhileThere(DefaultPolicy):
    """Tries again as Spark's own policy does, but not to reach a server that has ended."""

    def __init__(self, check: Callable[[], None]) -> None:
        super().__init__(max_retries=_TRIES, max_backoff=_APART)
        self._check = check

    def can_retry(self, e: BaseException) -> bool:
        """Whether the call may be made again; raises where the server is gone."""
        if isinstance(e, grpc.RpcError):
            deadline = time.monotonic() + (_MOMENT if _ENDING.search(str(e)) else 0)
            self._check()
            while time.monotonic() < deadline:  # until its keeper has seen it, too
                time.sleep(0.1)
                self._check()
        return bool(super().can_retry(e))


def open_session(port: int, token: str, session: str, check: Callable[[], None]) -> Any:
    """A session of its own on the server; one is this process's only one at a time.

    Args:
        port: of the server.
        token: of the server.
        session: its id, a UUID.
        check: raises where the server is gone; asked before a call is repeated.
    """
    os.environ[REMOTE] = "1"
    made: Any = SparkSession.builder.channelBuilder(_builder(port, token, session)).create()
    made.client.set_retry_policies([_WhileThere(check)])
    return made


def _builder(port: int, token: str, session: str) -> DefaultChannelBuilder:
    url = f"sc://localhost:{port}/;token={token};user_id={USER};session_id={session}"
    return DefaultChannelBuilder(url, channelOptions=_DIRECTLY)
