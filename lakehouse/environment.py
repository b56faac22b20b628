"""Variables of the environment: those whose names only table files know, those that set nothing, and bad values."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from dotenv import dotenv_values
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource

_SOURCE_URL = re.compile(r"lakehouse_(\w+)_url")
_ALIKE = 0.8  # of `difflib`: one or two letters of a name; what is less like a setting may be somebody else's


def misspelt(known: Collection[str], *files: Path) -> dict[str, str]:
    """Variables that nothing reads, by name, with the setting whose name each is most like.

    Args:
        known: the settings, without `LAKEHOUSE_`.
        files: in the form of `.env`, which are read as well.
    """
    written = [name for file in files for name in dotenv_values(file)]
    said = {name.lower(): name for name in (*written, *os.environ) if name.upper().startswith("LAKEHOUSE_")}
    found = {}
    for lower, name in said.items():
        plain = lower.removeprefix("lakehouse_")
        if plain not in known and (meant := difflib.get_close_matches(plain, known, n=1, cutoff=_ALIKE)):
            found[name] = f"LAKEHOUSE_{meant[0].upper()}"
    return found


def unreadable(error: OSError) -> str:
    """What is wrong with a file of settings, or the folder it is in, that belongs to somebody else."""
    do = "Have its owner let you read it (docs/how-to/share-a-root.md), or choose another root (LAKEHOUSE_ROOT)."
    return f"{error.filename}: expected a file that you may read, permission denied. {do}"


def bad_value(error: Mapping[str, Any]) -> str:
    """One error of pydantic's as a sentence that names the variable; the value is said only where a check of ours does.

    Args:
        error: of `ValidationError.errors()`.
    """
    said = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be", 1)
    said = "must be a day such as 2011-01-04" if error["type"].startswith("date_") else said.partition(", unable to")[0]
    return f"LAKEHOUSE_{str(error['loc'][0]).upper()}: {said}"


def source_setting(source: str) -> str:
    """Name of the variable with the address of a database or of brokers, as `Extract` or `Topic` name it."""
    return f"LAKEHOUSE_{source.upper()}_URL"


class SourceUrls(PydanticBaseSettingsSource):
    """`LAKEHOUSE_<SOURCE>_URL` for any source: which there are, table files say, and no line here."""

    def __init__(self, settings: type[BaseSettings], *texts: EnvSettingsSource) -> None:
        super().__init__(settings)
        # The last one wins: a variable over a line of a file.
        self._set = {name.lower(): value for each in reversed(texts) for name, value in each.env_vars.items() if value}

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002
        """Nothing: the one value is made as a whole."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """The addresses by source."""
        named = {match[1]: value for name, value in self._set.items() if (match := _SOURCE_URL.fullmatch(name))}
        found = {name: url for name, url in named.items() if f"{name}_url" not in self.settings_cls.model_fields}
        return {"source_urls": found} if found else {}
