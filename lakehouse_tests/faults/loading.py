"""One load of features in a process of its own, slowed down, so that it can be killed within."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lakehouse.online import load as module
from lakehouse.online.load import load
from lakehouse.read.lake import Lake
from lakehouse.spark.session import start
from lakehouse_tests.conftest import engine_settings
from lakehouse_tests.fixtures.profiles import DAYS, TABLE, noon, profiles

ROWS = 50  # at a time


def slow(writer: Callable[..., Any]) -> Callable[..., Any]:
    """The same, in small batches with time between them, in the workers too."""

    def made(*of: Any) -> Any:
        inner = writer(*of)

        def write(batches: Iterator[Any]) -> Iterator[Any]:
            def small() -> Iterator[Any]:
                for batch in batches:
                    for first in range(0, batch.num_rows, ROWS):
                        time.sleep(0.02)
                        yield batch.slice(first, ROWS)

            yield from inner(small())

        return write

    return made


def main() -> None:
    """Load Wednesday's features of the lake at a root into a Redis."""
    root, url = Path(sys.argv[1]), sys.argv[2]
    module._writer = slow(module._writer)
    settings = engine_settings(root)
    table = profiles()
    lake = Lake(settings, {TABLE: table}, lambda: start(settings))
    load(lake, url, table, noon(DAYS[2]))


if __name__ == "__main__":
    main()
