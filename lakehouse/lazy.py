"""Spark's functions and types, imported when the first of them is used: what reads logs alone never waits for them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["F", "T"]


class _Module:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self._name), name)
        if not name.startswith("__"):
            setattr(self, name, found)
        return found


if TYPE_CHECKING:
    from pyspark.sql import functions as F
    from pyspark.sql import types as T
else:
    F = _Module("pyspark.sql.functions")
    T = _Module("pyspark.sql.types")
