"""Variables of the environment whose names only table files know."""

from __future__ import annotations

import re
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource

_SOURCE_URL = re.compile(r"lakehouse_(\w+)_url")


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
