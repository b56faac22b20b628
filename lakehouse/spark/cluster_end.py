"""A driver on this lakehouse's own cluster, once that has ended.

Spark waits for a master to come again, for ever. The master of this cluster does not: the cluster ends with it, and the
next one listens on another port. So whoever watches here stops the session: the query that is on fails, with whatever
pyspark meets first, and `ended` says why.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from lakehouse.errors import EngineError
from lakehouse.settings import Settings
from lakehouse.spark.cluster import own_cluster

LOOK = 1.0  # seconds between two looks
_ended: list[str] = []  # the address of the cluster


def stop_with_cluster(settings: Settings, stop: Callable[[], object], *, own: bool) -> threading.Thread | None:
    """Stop a session of this process once the cluster has ended that it computes on; None where it is on another one.

    Args:
        settings: of the session.
        stop: it.
        own: `is_on`, asked before the session began: a cluster that has ended while it began is seen at once.
    """
    _ended.clear()
    if not own:
        return None
    watching = threading.Thread(target=_watch, args=(settings, stop), name="cluster", daemon=True)
    watching.start()
    return watching


def ended() -> EngineError | None:
    """Why whatever this process computes fails; None where its cluster is there, or it had none."""
    if not _ended:
        return None
    return EngineError(
        f"The cluster at {_ended[0]} has ended while it was used. Start one (lakehouse engine cluster start), export "
        "the address that it prints, and do it again: published days are skipped."
    )


def is_on(settings: Settings) -> bool:
    """Whether the engine of these settings is this lakehouse's own cluster, and that is on."""
    return own_cluster(settings) is not None


def _watch(settings: Settings, stop: Callable[[], object]) -> None:
    while is_on(settings):
        time.sleep(LOOK)
    _ended.append(settings.spark_url)
    stop()
