"""The broker's jars, apart from the engine's: fetched when a broker is wanted, never on Spark's class path.

`python -m lakehouse.kafka.jars` fetches them (`make kafka`); `--relock` resolves `ivy.xml` anew and rewrites
`jars.lock`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from lakehouse.errors import LakehouseError
from lakehouse.settings import Settings, get_settings
from lakehouse.spark.jars import default_jars_dir, ensure_jars, relock, retrieve_with_ivy

IVY_FILE = Path(__file__).with_name("ivy.xml")
LOCK_FILE = Path(__file__).with_name("jars.lock")
_retrieve = partial(retrieve_with_ivy, ivy_file=IVY_FILE)


def broker_jars(settings: Settings, *, verify: bool = False) -> list[Path]:
    """The paths of the broker's jars, fetched first where any is missing.

    Args:
        settings: `jars_dir` is the folder of the engine's jars; these are in its folder `kafka`.
        verify: Read every checksum too.

    Raises:
        EngineError: Java is missing, a download failed, or what came is not what the lock file names.
    """
    folder = settings.jars_dir / "kafka" if settings.jars_dir else default_jars_dir(LOCK_FILE)
    return ensure_jars(folder, verify=verify, lock=LOCK_FILE, retrieve=_retrieve)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch or re-lock the jars; 0 on success, 3 where it could not be done."""
    parser = argparse.ArgumentParser(prog="python -m lakehouse.kafka.jars", description="Fetch the broker's jars.")
    parser.add_argument("--relock", action="store_true", help="resolve ivy.xml anew and rewrite jars.lock instead")
    options = parser.parse_args(arguments)
    try:
        if options.relock:
            found = relock(LOCK_FILE, _retrieve, beside_spark=False)
            sys.stdout.write("".join(f"{jar.name}\n" for jar in found))
            return 0
        jars = broker_jars(get_settings(), verify=True)
    except LakehouseError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    sys.stdout.write(f"{len(jars)} jars in {jars[0].parent}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
