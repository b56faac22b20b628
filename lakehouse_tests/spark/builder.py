"""A process that builds the small lake of the crash tests on the engine of the settings, once for each line it reads."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lakehouse.settings import get_settings
from lakehouse.spark.session import start
from lakehouse.store.disk import keep_private
from lakehouse_tests.faults.crashing import run


def main(root: Path) -> None:
    """Start, or join, the engine, and build when told to."""
    keep_private(root)  # as every command does
    engine = start(get_settings())
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        sys.stdout.write(json.dumps(run(root, engine)) + "\n")
        sys.stdout.flush()
    engine.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
