"""`dagster dev`, which says in a sentence why it ends where one of its two processes has ended: it ends with either.

Where the process that serves the code has ended, it would stay on and run nothing, for good: that one is started again.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
import time
from contextlib import suppress

from dagster._cli import main

from lakehouse import store
from lakehouse.errors import DaemonError
from lakehouse.orchestration.state import DEV
from lakehouse.servers.graphql import ask
from lakehouse.servers.ports import HERE
from lakehouse.settings import get_settings

_ENDED = re.compile(r"dagster-(webserver|daemon) process shut down unexpectedly with return code (-?\d+)")
_NAMES = {"webserver": "web interface", "daemon": "daemon"}
LOOK = 10.0  # seconds between two looks at the code
_CODE = """{workspaceOrError {... on Workspace {locationEntries {
    name locationOrLoadError {... on PythonError {className}}}}}}"""
_RELOAD = """mutation($name: String!) {reloadRepositoryLocation(repositoryLocationName: $name) {__typename}}"""


class InWords(logging.Filter):
    """Dagster (1.13) logs a traceback through its own code, and ends as if all were well."""

    ended = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Say it in place of Dagster's words; every other record is left as it is."""
        error = record.exc_info[1] if record.exc_info else None
        if found := _ENDED.search(str(error)):
            self.ended = True
            code = int(found[2])
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            record.msg = f"The {_NAMES[found[1]]} {how}, and Dagster ends with it. Start it again: lakehouse dev"
            record.args, record.exc_info = (), None
        return True


def keep_code_served(url: str) -> None:
    """Have Dagster start another code server where its own is gone; code that does not load is left as it is.

    Args:
        url: of the web interface.
    """
    entries = ask(url, _CODE)["workspaceOrError"].get("locationEntries", ())
    for name, found in ((each["name"], each["locationOrLoadError"]) for each in entries):
        if found and found.get("className") == "DagsterUserCodeUnreachableError":
            logging.getLogger("dagster").warning("The code server has ended, and is started again: %s", name)
            ask(url, _RELOAD, {"name": name})


def load_new_days(url: str, known: bytes) -> bytes:
    """Have Dagster load the code again where the lake's own settings have changed; gives those of now.

    The partitions are the days that the lake had when the code was loaded: `lakehouse land` may have added some since.

    Args:
        url: of the web interface.
        known: the settings that the code was loaded with.
    """
    present = own_settings()
    if present != known:
        logging.getLogger("dagster").warning("The lake's days have changed: the code is loaded again, to know them.")
        for entry in ask(url, _CODE)["workspaceOrError"].get("locationEntries", ()):
            ask(url, _RELOAD, {"name": entry["name"]})
    return present


def own_settings() -> bytes:
    """What is in `lake.env`; nothing where it is not there."""
    path = get_settings().own_file
    return store.read(path) if store.exists(path) else b""


def _watch(url: str, known: bytes) -> None:
    while True:
        time.sleep(LOOK)
        with suppress(DaemonError, OSError):  # it starts, or ends
            keep_code_served(url)
            known = load_new_days(url, known)


if __name__ == "__main__":
    os.environ[DEV] = str(os.getpid())
    words = InWords()
    logging.getLogger("dagster").addFilter(words)
    port = sys.argv[sys.argv.index("-p") + 1] if "-p" in sys.argv else ""
    if port.isdigit():
        threading.Thread(target=_watch, args=(f"http://{HERE}:{port}", own_settings()), daemon=True).start()
    try:
        main()  # type: ignore[no-untyped-call]
    finally:
        if words.ended:
            sys.exit(1)
