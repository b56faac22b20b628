"""A process that writes a training set and is killed as it puts one of the files in place."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.features import written
from lakehouse.features.training import TrainingSet


def write(out: Path, value: int, at: int) -> None:
    """Write a file of five rows and its record; killed at that rename, 0 for none. Changes the process for good."""
    calls, replace = list[Any](), Path.replace

    def dying(self: Path, target: Any) -> Path:
        calls.append(target)
        if len(calls) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(self, target)

    def parts(_made: Any, _time: Any, folder: Path) -> None:
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"value": [value] * 5}), folder / "part-0.parquet")

    Path.replace, written._parts = dying, parts  # type: ignore[method-assign, assignment]
    manifest = written.Manifest("labels.csv", "", None, "event_time", (), False, {"gold.seen": value}, {})
    nothing: Any = None
    with written._alone(out) as drafts:
        written._write(TrainingSet(nothing, 5, {}, ()), manifest, out, drafts)
