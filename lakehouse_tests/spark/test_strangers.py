"""An engine and other users of its machine, who reach its ports."""

from __future__ import annotations

import socket
import struct

import pytest
from pyspark.sql import SparkSession

REQUEST, FAILURE = 3, 5  # kinds of messages of Spark's network library
HEAD = struct.Struct(">qbqi")  # bytes of the whole, kind, number of the request, bytes of the body


@pytest.mark.spark
def test_an_engine_takes_nothing_from_who_has_no_secret(spark: SparkSession) -> None:
    """Without it, the driver makes objects of Java of the bytes that anybody on this machine sends it."""
    body, port = b"of a stranger", int(spark.conf.get("spark.driver.port") or 0)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as stranger, stranger.makefile("rb") as answer:
        stranger.sendall(HEAD.pack(HEAD.size + len(body), REQUEST, 7, len(body)) + body)
        _, kind, request, size = HEAD.unpack(answer.read(HEAD.size))
        told = answer.read(size).decode()
    assert (kind, request) == (FAILURE, 7)
    assert "Expected SaslMessage" in told
