"""Named points between writes where a fault test can stop the process dead.

Inert unless `LAKEHOUSE_FAILPOINT` names one or several, with commas; then the process kills itself at the first that it
comes to, as `kill -9` would.
"""

from __future__ import annotations

import os
import signal

POINTS = (
    "before-stage",
    "after-stage",
    "before-quarantine-commit",
    "after-quarantine-commit",
    "before-commit",
    "after-commit",
)
# Of each slice of a build that is fanned out.
SLICE_POINTS = (
    "before-slice",
    "before-slice-noted",
    "after-slice",
)
# Of a restore and of a swap, which write no rows.
UNDO_POINTS = (
    "after-names",
    "before-quarantine-restore",
    "after-quarantine-restore",
    "after-restore",
    "before-quarantine-swap",
    "after-quarantine-swap",
    "after-swap",
)
# Of a compaction, which writes rows that are there already.
MERGE_POINTS = (
    "before-merge",
    "before-merge-commit",
    "after-merge-commit",
)
# Of `lakehouse forget`, beside those of the builds it starts.
FORGET_POINTS = (
    "before-landing-rewrite",
    "after-landing-rewrite",
    "before-erase-commit",
    "after-erase-commit",
    "before-purge",
    "after-clean-entry",
    "after-clean-checkpoint",
    "after-log-removal",
    "after-purge",
)
# Of a replay of quarantined rows, between the days it builds.
REPLAY_POINTS = (
    "after-replay-begun",
    "after-replay-built",
    "before-replay-end",
    "after-replay-end",
)


def failpoint(table: str, name: str) -> None:
    """Die here where the environment says so: by name alone, or as `layer.table:name`."""
    if {name, f"{table}:{name}"} & {*os.environ.get("LAKEHOUSE_FAILPOINT", "").split(",")}:
        os.kill(os.getpid(), signal.SIGKILL)
