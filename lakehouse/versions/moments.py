"""Times that people name, and the versions that tables had then."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from lakehouse.delta.log import oldest_entry, read_entry, version_before
from lakehouse.errors import UsageError


def parse_moment(text: str) -> datetime:
    """A time as people write it; without a zone it is UTC.

    Raises:
        UsageError: where it is none.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is no time; expected such as 2026-11-20T10:00 (UTC)") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def version_at(path: Path, name: str, moment: datetime) -> int:
    """The version of a table that readers saw at a time.

    Args:
        path: folder of the table.
        name: of the table, for the message.
        moment: with its zone.

    Raises:
        UsageError: where it did not exist yet.
    """
    found = version_before(path, moment)
    if found is None:
        oldest = oldest_entry(path)
        began = read_entry(path, oldest).time
        raise UsageError(
            f"{name} cannot be read as of {moment:%Y-%m-%dT%H:%M:%SZ}: its log begins at {began:%Y-%m-%dT%H:%M:%SZ}."
        )
    return found
