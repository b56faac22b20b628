"""A process that works on the engine of the settings, once for each line it reads.

`build`: the small lake of the crash tests; else the line is an order to stream (`faults.streaming`).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from lakehouse.settings import get_settings
from lakehouse.spark.session import start
from lakehouse.store.disk import keep_private
from lakehouse_tests.faults.crashing import run
from lakehouse_tests.faults.streaming import on_order


def main(root: Path) -> None:
    """Start, or join, the engine, and do what is told."""
    keep_private(root)  # as every command does
    engine = start(get_settings())
    os.environ["LAKEHOUSE_TEST_SPARK_URL"] = get_settings().spark_url  # others write than read
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        done = run(root, engine) if line == "build\n" else on_order(json.loads(line), engine)
        sys.stdout.write(json.dumps(done) + "\n")
        sys.stdout.flush()
    engine.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
