"""The process that an engine forks its Python workers from, with what each of them loads already loaded.

A worker lives for one task, so that a function runs with the code of now; left to itself it loads Arrow and pandas each
time, half a second. Nothing of this package is loaded here: its code may change while an engine is on. Spark loads
nothing before the fork because libraries may start threads; what is loaded here starts none of Python's, and its own
pools begin anew in a fork.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

from pyspark.daemon import manager

_LOADED = ("pyarrow", "pandas", "pyspark.worker", "pydantic_settings", "redis")


def main() -> None:
    """Load, and fork a worker whenever the engine asks for one; what is missing, a worker that needs it will say."""
    for name in _LOADED:
        with suppress(ImportError):
            import_module(name)
    manager()


if __name__ == "__main__":
    main()
