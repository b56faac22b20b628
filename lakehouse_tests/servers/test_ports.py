"""Ports that servers of this machine are started on."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from lakehouse.servers import ports
from lakehouse.servers.ports import HERE, free_port, is_free


def test_a_free_port_is_none_that_a_connection_may_be_given() -> None:
    """Without it, a connection that goes out a moment later would keep a server from starting, now and then."""
    given = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(given.read_text().split()[0]) if given.exists() else 49_152
    found = {free_port() for _ in range(20)}
    assert len(found) > 1
    assert max(found) < first
    assert all(map(is_free, found))


def test_a_port_that_is_taken_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, two servers would be sent to the same port."""
    with socket.create_server((HERE, 0)) as taken:
        port = taken.getsockname()[1]
        assert not is_free(port)
        monkeypatch.setattr(ports, "_OWN", [port] * 100)
        assert free_port() != port


def test_a_port_is_promised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a broker would now and then be told to have two doors on one port, and not start."""
    one = free_port()
    monkeypatch.setattr(ports, "_OWN", [one] * 100)
    assert free_port() == one
    assert free_port(one) != one
