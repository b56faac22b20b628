"""How a client waits for an engine that does not answer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from pyspark.errors import PySparkException

from lakehouse.errors import EngineError, EngineLostError
from lakehouse.settings import Settings
from lakehouse.spark import warm
from lakehouse.spark.keeper import ASK, PATIENCE
from lakehouse.spark.wire import _WhileThere


def test_a_client_waits_until_the_keeper_has_ended_an_engine_that_does_not_answer() -> None:
    """Without it, it gives up before, in the words of gRPC, and the next command finds the same engine."""

    def gone() -> None:
        raise EngineLostError("gone")

    policy = _WhileThere(lambda: None)
    assert policy.max_retries is not None
    assert policy.max_backoff is not None
    assert policy.max_retries * policy.max_backoff / 1000 > 3 * (ASK + PATIENCE)
    with pytest.raises(EngineLostError):
        _WhileThere(gone).can_retry(grpc.RpcError())


def test_an_engine_that_its_keeper_does_not_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Frozen:
        @property
        def version(self) -> str:
            raise PySparkException("StatusCode.UNAVAILABLE")

    address = SimpleNamespace(pid=7, log="its.log")
    joined: Any = SimpleNamespace(spark=Frozen(), address=address, leave=lambda: None, is_there=lambda: True)
    monkeypatch.setattr(warm, "_joined", {})
    monkeypatch.setattr(warm, "_use", lambda *_: joined)
    with pytest.raises(EngineError, match=r"process 7\) does not answer\. End it with `lakehouse engine stop"):
        warm.join(Settings(root=tmp_path))
