"""A table as older code of it has it: what its days were to read then, and not what its contract reads today.

The fingerprint of a day is over the code and over what the day reads. So that of older code can be made again, and a
change of inputs be told from one of code, each version of the code keeps what its contract reads in a file under the
root. With today's reads, a longer window would make each day of the table look as if its inputs had changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from lakehouse import store
from lakehouse.contracts import Input, Table
from lakehouse.read.lake import Lake

_FOLDER = "contracts"  # under the root: by table, a file for each version of its code


def keep_reads(lake: Lake, table: Table) -> None:
    """Keep what days of a table read, once for each version of its code; of what takes batches, no day is stale.

    Args:
        lake: which builds the table.
        table: that is about to be built.
    """
    if table.taken is None and not store.exists(place := _place(lake, table, table.code_version)):
        store.put(place, json.dumps(_reads(table)), flush=True)  # one cut short by a power cut would stay for good


def by_code(lake: Lake, table: Table, codes: Mapping[date, str]) -> Iterator[tuple[Table, list[date]]]:
    """By code version of some days the table as that code has it, itself where it is of today, with its days sorted.

    Args:
        lake: where the table is.
        table: as it is today.
        codes: by day, the code version that built it.
    """
    days_of: dict[str, list[date]] = {}
    for day in sorted(codes):
        days_of.setdefault(codes[day], []).append(day)
    for code, days in days_of.items():
        yield table if code == table.code_version else _as_built_by(lake, table, code), days


def _place(lake: Lake, table: Table, code: str) -> Path:
    return lake.settings.root / _FOLDER / table.id / f"{code}.json"


def _reads(table: Table) -> dict[str, Any]:
    """What decides which rows a day is made from (`lakehouse.build.plan`), and where these are, as JSON has it."""
    return {
        "inputs": {name: _input_as_json(each) for name, each in table.upstream.items()},
        "unique_days": table.unique_days,
        "keep_first_by": list(table.keep_first_by),
        "allowed_lateness": None if table.allowed_lateness is None else table.allowed_lateness.days,
        "sets_aside": bool(table.rules),
        "tokens": list(table.privacy.tokens),
    }


def _input_as_json(each: Input) -> dict[str, Any]:
    after = each.hours_close_after
    hours = None if after is None else after // timedelta(hours=1)
    return {"table": each.table, "before": each.days_before, "after": each.days_after, "hours_close_after": hours}


def _as_built_by(lake: Lake, table: Table, code: str) -> Table:
    """The table with the code version of older code, and its reads where they are kept and can be read."""
    made = copy(table)
    made.__dict__["code_version"] = code  # a cached property
    try:
        reads = _from_json(table, json.loads(store.read_text(_place(lake, table, code))))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return made  # what built the days kept none, or the file is not whole: as today's contract reads
    if all(each.table in lake.tables for each in reads["inputs"].values() if isinstance(each, Input)):
        # Not by `replace`: today's policy need not fit to the older reads, and nothing is built by either.
        made.__dict__.update(reads)
        made.__dict__.pop("upstream", None)  # a cached property over the inputs
    return made


def _from_json(table: Table, told: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a table of which `_reads` told."""
    late = told["allowed_lateness"]
    landed = {name: each for name, each in table.inputs.items() if name not in table.upstream}
    return {
        "inputs": landed | {name: _input_from_json(each) for name, each in told["inputs"].items()},
        "unique_within": timedelta(days=told["unique_days"]),
        "keep_first_by": tuple(told["keep_first_by"]),
        "allowed_lateness": None if late is None else timedelta(days=late),
        # Without a rule there was no quarantine, and no day's inputs have changed because it is in none.
        "rules": table.rules if told["sets_aside"] else (),
        # The key is an input of what has tokens, and of nothing else.
        "privacy": replace(table.privacy, tokens=tuple(told["tokens"])),
    }


def _input_from_json(told: Mapping[str, Any]) -> Input:
    hours = told["hours_close_after"]
    after = None if hours is None else timedelta(hours=hours)
    return Input(told["table"], told["before"], told["after"], after)
