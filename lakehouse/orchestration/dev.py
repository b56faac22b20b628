"""`dagster dev`, which says in a sentence why it ends where one of its two processes has ended: it ends with either."""

from __future__ import annotations

import logging
import re
import signal
import sys

from dagster._cli import main

_ENDED = re.compile(r"dagster-(webserver|daemon) process shut down unexpectedly with return code (-?\d+)")
_NAMES = {"webserver": "web interface", "daemon": "daemon"}


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


if __name__ == "__main__":
    words = InWords()
    logging.getLogger("dagster").addFilter(words)
    try:
        main()  # type: ignore[no-untyped-call]
    finally:
        if words.ended:
            sys.exit(1)
