"""Ports of this machine, for servers that nobody else is to reach."""

from __future__ import annotations

import random
import socket

HERE = "127.0.0.1"
# Below those that a system gives to connections that go out (from 32768 on Linux, 49152 on macOS): such a one would
# be in the way of a server that starts a moment later, or comes again on its port.
_OWN = range(20_000, 32_000)


def is_free(port: int) -> bool:
    """Whether a server could listen on a port of this machine."""
    try:
        with socket.create_server((HERE, port)):
            return True
    except OSError:
        return False


def free_port(*others: int) -> int:
    """A port of this machine that nobody listens on, and that no connection is given meanwhile.

    Args:
        others: ports that are promised to servers which do not listen yet.
    """
    for port in random.sample(_OWN, 100):
        if port not in others and is_free(port):
            return port
    with socket.create_server((HERE, 0)) as probe:
        return int(probe.getsockname()[1])
