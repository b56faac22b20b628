"""Ports of this machine, for servers that nobody else is to reach."""

from __future__ import annotations

import socket

HERE = "127.0.0.1"


def is_free(port: int) -> bool:
    """Whether a server could listen on a port of this machine."""
    try:
        with socket.create_server((HERE, port)):
            return True
    except OSError:
        return False


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.create_server((HERE, 0)) as probe:
        return int(probe.getsockname()[1])
