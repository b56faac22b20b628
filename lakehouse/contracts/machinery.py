"""The version of the machinery that decides rows: how files are read, rules judged, rows chosen and set aside."""

from __future__ import annotations

ENGINE_VERSION = 4
"""Raised where the same table files and inputs can give other rows than before: every day is then of older code.

A test notices a change of the modules in question, and asks.
"""

MACHINERY = frozenset(
    {
        "build", "catalog", "checks", "cli", "commands", "contracts", "days", "definitions", "delta", "environment",
        "errors", "features", "kafka", "lazy", "lineage", "online", "orchestration", "pairs", "privacy", "quarantine",
        "query", "read", "records", "report", "runs", "sample", "servers", "settings", "sources", "spark", "store",
        "texts", "users", "versions",
    }
)  # fmt: skip
"""What this project's package holds beside tables and their helpers; `ENGINE_VERSION` stands for it."""
