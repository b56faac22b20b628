"""What the machinery that decides rows was when `ENGINE_VERSION` was last thought about; run as a module to renew it."""

from __future__ import annotations

import ast
import hashlib
import json
from pathlib import Path
from typing import Any

import lakehouse
from lakehouse.contracts.machinery import ENGINE_VERSION
from lakehouse.contracts.syntax import meaning

PACKAGE = Path(lakehouse.__file__).parent
RECORD = Path(__file__).with_name("engine.json")
COMMAND = "python -m lakehouse_tests.engine"

DECIDES_ROWS = (
    # Reading: which lines, fields and database rows there are, and who is left out of them.
    "pairs", "sources.reader", "sources.lines", "sources.json_lines", "sources.postgres", "sources.kafka", "sources.people",
    "sources.people_in_lines", "contracts.landing",
    "contracts.extract", "contracts.topic",
    "records.erasures", "build.intake.batch", "build.intake.from_database", "build.intake.from_topic", "build.intake.poison",
    "build.intake.take", "transforms.columns",
    # Rules: which rows are set aside.
    "contracts.rules", "contracts.clock", "contracts.bronze", "contracts.message", "build.late",
    # Building: which days are read, which of two rows is kept, which days an upsert replaces.
    "build.build", "build.work", "build.grow", "build.unique", "build.route", "build.stage", "build.upsert", "read.key_index", "build.slices", "contracts.slices",
    "build.intake.closings",
    # Reading tables back: partition values, columns that were added later.
    "read.lake", "read.promote", "contracts.schema_versions",
    # Settings of the engine.
    "spark.config", "spark.session", "spark.fixed_settings",
)  # fmt: skip


def now() -> dict[str, Any]:
    """The engine's version, and a digest of each module that decides rows: prose and formatting do not count."""
    digests = {}
    for name in sorted(DECIDES_ROWS):
        source = (PACKAGE / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8")
        text = meaning(ast.parse(source), decorators={}, fields={}, calls={})
        digests[name] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return {"version": ENGINE_VERSION, "modules": digests}


def recorded() -> dict[str, Any]:
    """What was renewed last."""
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    RECORD.write_text(json.dumps(now(), indent=2) + "\n", encoding="utf-8")
