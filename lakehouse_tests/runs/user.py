"""A process that streams on the warm engine of the settings, and prints a line of JSON a turn; it ends with its input."""

from __future__ import annotations

import json
import sys
import threading

from pydantic import SecretStr

from lakehouse.catalog import lake_beside
from lakehouse.read.lake import Lake
from lakehouse.runs.attempts import retrying
from lakehouse.runs.background import BackgroundBuilds
from lakehouse.runs.stream import Pace, turns
from lakehouse.settings import get_settings
from lakehouse.spark.session import start
from lakehouse.spark.warm import place_of
from lakehouse_tests.fixtures.streaming import SOURCE, streamed


def main(url: str, topic: str) -> None:
    """Take from a topic; gold is built beside it."""
    settings = get_settings().model_copy(update={"source_urls": {SOURCE: SecretStr(url)}})
    lake = Lake(settings, {each.id: each for each in streamed(topic)}, lambda: start(settings))
    source, stop = lake.table("bronze.visits"), threading.Event()

    def ended() -> None:
        sys.stdin.read()
        stop.set()

    def retried(error: BaseException, _seconds: float) -> None:
        tell({"error": f"{type(error).__name__}: {error}"})

    threading.Thread(target=ended, daemon=True).start()
    with BackgroundBuilds(lake_beside(lake), [source], "run", 0, retrying(stop, retried)) as beside:
        for turn in turns(lake, [source], "run", stop, pace=Pace(0.2, 0), beside=beside, retried=retried):
            address = place_of(settings).address()
            tell({"messages": turn.messages, "built": sorted(turn.built), "engine": address and address.pid})


def tell(line: dict[str, object]) -> None:
    """Print a line."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
