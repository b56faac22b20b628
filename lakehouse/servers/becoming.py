"""The process that becomes a server: it takes the place, leaves who started it behind, and runs that in its stead."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from lakehouse.servers.place import Place


def _become(orders: dict[str, Any]) -> None:
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)  # the orders came by it
    os.close(empty)
    # What holds `alive` goes along: it is the server's own for as long as it lives, and the process id stays the same.
    os.execvp(orders["command"][0], orders["command"])  # noqa: S606 - a list, no shell


def main() -> None:
    """Take the orders from standard input, and become the server."""
    orders = json.load(sys.stdin)
    place = Place(Path(orders["folder"]), Path(orders["log"]))
    place.keep(orders["what"], lambda: _become(orders), orders["umask"], with_children=True)


if __name__ == "__main__":
    main()
