"""Where a keeper is found, and what it says in the log of its server."""

from __future__ import annotations

import errno
import io
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lakehouse.servers.place import Place, say
from lakehouse_tests.commands.killing import until


class _Full(io.StringIO):
    """A log whose disk is full."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_keeper_whose_log_has_no_room_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the first line after its disk was full ended the keeper, and left what it kept to nobody."""
    monkeypatch.setattr("sys.stderr", _Full())
    say("cluster", "lost its worker-1")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the host name is all there is")
def test_a_new_host_name_hides_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop that joined another network said that a server was on, and that none was there to be ended."""
    place = Place(tmp_path / "place", tmp_path / "log")
    place.prepare()
    code = "import time; from pathlib import Path; from lakehouse.servers.place import Place; "
    code += f"Place(Path({str(place.folder)!r}), Path('log')).keep('server', lambda: time.sleep(60), 0o077)"
    with place.log.open("ab") as output:
        subprocess.run([sys.executable, "-c", code], stdout=output, stderr=output, check=True)
    until(place.pid, "the process id of the keeper")
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    assert place.end()
    assert not place.is_alive()
