"""An erasure and a stream are never on at the same time."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from filelock import FileLock

from lakehouse.privacy.alone import BusyError, alone, erasure_is_on, no_erasure
from lakehouse.store.disk import private_umask
from lakehouse_tests.fixtures.groups import masked

STREAM = """
import sys, time
from pathlib import Path
from lakehouse.privacy.alone import no_erasure
with no_erasure(Path(sys.argv[1]), "stream-1"):
    print("on", flush=True)
    time.sleep(600)
"""


def test_a_stream_and_an_erasure_keep_each_other_out(tmp_path: Path) -> None:
    """Without it, each batch would be a conflict, and the erasure end half done, with nobody told what to stop."""
    on = no_erasure(tmp_path, "stream-1"), no_erasure(tmp_path, "stream-2")
    with on[0], on[1], pytest.raises(BusyError, match="A stream is on"), alone(tmp_path):
        pass
    with alone(tmp_path), pytest.raises(BusyError, match="forget` is on"), no_erasure(tmp_path, "stream-1"):
        pass
    with no_erasure(tmp_path, "stream-1"):
        pass


def test_a_stream_that_was_killed_keeps_nobody_out(tmp_path: Path) -> None:
    """Without it, nobody could be forgotten after a power cut."""
    with subprocess.Popen([sys.executable, "-c", STREAM, str(tmp_path)], stdout=subprocess.PIPE, text=True) as stream:
        assert stream.stdout is not None
        assert stream.stdout.readline() == "on\n"
        with pytest.raises(BusyError, match="A stream is on"), alone(tmp_path):
            pass
        stream.kill()
    with alone(tmp_path):
        assert not list((tmp_path / "privacy" / "streams").iterdir())


def test_who_shares_a_root_streams_there_as_well(tmp_path: Path) -> None:
    """Without it, whoever came first, with a stream or a candidate, would keep all others of the team out for ever."""
    tmp_path.chmod(0o770)
    with masked(private_umask(tmp_path)), no_erasure(tmp_path, "stream-1"):
        made = [tmp_path / "privacy", *(tmp_path / "privacy").rglob("*")]
        assert len(made) == 4
        assert {each.name: oct(each.stat().st_mode & 0o777) for each in made} == {
            "privacy": "0o770", "streams": "0o770", "lock": "0o660", "stream-1": "0o660"
        }  # fmt: skip


def test_two_erasures_are_not_on_at_once(tmp_path: Path) -> None:
    """Without it, one would remove what the other is about to read."""
    with alone(tmp_path), pytest.raises(BusyError, match="forget` is on"), alone(tmp_path):
        pytest.fail("both are on")
    with alone(tmp_path):  # the first has ended
        pass


def test_a_look_whether_an_erasure_is_on_keeps_none_out(tmp_path: Path) -> None:
    """Without it, a sensor that looks every few seconds would now and then refuse whoever wants to forget somebody."""
    assert not erasure_is_on(tmp_path)
    assert not list(tmp_path.iterdir())
    with alone(tmp_path):
        assert erasure_is_on(tmp_path)
    assert not erasure_is_on(tmp_path)
    looking = FileLock(tmp_path / "privacy" / "lock", thread_local=False)
    looking.acquire()
    threading.Timer(0.2, looking.release).start()
    with alone(tmp_path):
        pass
