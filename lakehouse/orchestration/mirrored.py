"""What a run prints is kept in a file, and is shown where it was printed, too."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from dagster._core.execution.compute_logs import redirect_to_file
from dagster._utils import ensure_file

_EVERY = 0.5  # seconds between two looks at the file
_PATIENCE = 5.0  # seconds for whoever reads what is shown, at the end; a terminal that is held up holds up no run
_PIECE = 1 << 16  # bytes


@contextmanager
def mirrored(stream: IO[str], path: str) -> Iterator[None]:
    """Send what is printed to a stream, by child processes too, to a file, and show it as before.

    Dagster starts a `tail` for each stream, and another Python that ends it with the run: four processes a run, and the
    last second of what is printed is often not shown. A thread ends by itself, and with the process.

    Args:
        stream: one of the process's own; nothing is kept of one that is no file, such as a test's.
        path: of the file, which is added to.
    """
    ensure_file(path)
    try:
        shown = os.dup(stream.fileno())
    except (OSError, ValueError, AttributeError):
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_show, args=(Path(path), shown, ended), name="what a run prints", daemon=True)
    thread.start()
    try:
        with redirect_to_file(stream, path):
            yield
    finally:
        ended.set()
        thread.join(_PATIENCE)


def _show(path: Path, shown: int, ended: threading.Event) -> None:
    """Copy what is added to the file, until its end once there is one."""
    try:
        with path.open("rb", buffering=0) as file:
            at_end = False
            while not at_end:
                at_end = ended.wait(_EVERY)
                while piece := file.read(_PIECE):
                    while piece:
                        piece = piece[os.write(shown, piece) :]
    except OSError:  # nobody reads any more, or the file is gone: the run goes on
        pass
    finally:
        os.close(shown)
