"""What runs print is kept and shown, without a process beside them."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lakehouse.orchestration.mirrored import mirrored

# Prints as a run does: from Python, from a child process, and a last line just before the end.
RUN = """
import os, subprocess, sys, time
from lakehouse.orchestration.mirrored import mirrored
with mirrored(sys.stdout, sys.argv[1]), mirrored(sys.stderr, sys.argv[2]):
    print("from Python", flush=True)
    subprocess.run(["echo", "from a child"])
    os.write(2, b"an error\\n")
    if len(sys.argv) > 3:
        time.sleep(60)
    print("the last line")
print("after it")
"""


def _started(folder: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", RUN, str(folder / "out"), str(folder / "err"), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_all_that_is_printed_is_kept_and_shown(tmp_path: Path) -> None:
    """Without it, the terminal would not say what a run says, or not its last line; or its page would not."""
    with _started(tmp_path) as run:
        out, error = run.communicate()
    assert run.returncode == 0
    kept = b"from Python\nfrom a child\nthe last line\n"
    assert ((tmp_path / "out").read_bytes(), (tmp_path / "err").read_bytes()) == (kept, b"an error\n")
    assert (out, error) == (kept + b"after it\n", b"an error\n")


def test_a_killed_run_leaves_no_process(tmp_path: Path) -> None:
    """Without it, each run that is killed would leave programs that look at its files for ever."""
    with _started(tmp_path, "stay") as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"from Python\n", "shown while it runs"
        if sys.platform == "linux":
            assert not Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text()
        run.send_signal(signal.SIGKILL)
        assert run.stdout.read() in {b"", b"from a child\n"}, "nobody is left to hold it open"
    assert (tmp_path / "out").read_bytes() == b"from Python\nfrom a child\n"


def test_a_run_ends_though_nobody_reads_what_it_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a terminal that is held up, or closed, would hold up or fail a run whose work is done."""
    monkeypatch.setattr("lakehouse.orchestration.mirrored._PATIENCE", 0.1)
    reader, writer = os.pipe()
    before = time.monotonic()
    with os.fdopen(writer, "w") as held_up, mirrored(held_up, str(tmp_path / "held up")):
        os.write(held_up.fileno(), b"x" * 1_000_000)  # more than a pipe takes
    assert time.monotonic() - before < 30
    assert (tmp_path / "held up").stat().st_size == 1_000_000
    os.close(reader)  # now that nobody can read, the thread that shows it ends
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed, mirrored(closed, str(tmp_path / "closed")):
        os.write(closed.fileno(), b"x")
    assert (tmp_path / "closed").read_bytes() == b"x"


def test_a_stream_that_is_no_file_is_left_alone(tmp_path: Path) -> None:
    """Without it, commands could not be tested in one process with what runs them."""
    stream = io.StringIO()
    with mirrored(stream, str(tmp_path / "out")):
        stream.write("seen")
    assert stream.getvalue() == "seen"
    assert (tmp_path / "out").read_bytes() == b""
