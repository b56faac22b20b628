"""How often, and how soon, a step is tried again after an error that passes by itself, and what is told of another."""

from __future__ import annotations

import random

MAX_RETRIES = 2
FIRST_WAIT = 5.0  # seconds; it doubles
SPARK_ERROR = "spark_error"
"""In the metadata of a failed step, the name of an error that is Spark's: its words stay in Dagster."""


def wait_before(retry: int) -> float:
    """Seconds before the nth retry, from 1; give or take a fifth, so that many steps do not come back at once."""
    return FIRST_WAIT * 2.0 ** (retry - 1) * random.uniform(0.8, 1.2)  # noqa: S311  # not a secret
