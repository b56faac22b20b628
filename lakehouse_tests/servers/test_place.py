"""What a keeper says in the log of its server."""

from __future__ import annotations

import errno
import io
import os

import pytest

from lakehouse.servers.place import say


class _Full(io.StringIO):
    """A log whose disk is full."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_keeper_whose_log_has_no_room_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the first line after its disk was full ended the keeper, and left what it kept to nobody."""
    monkeypatch.setattr("sys.stderr", _Full())
    say("cluster", "lost its worker-1")
