"""One settings object, read once from `LAKEHOUSE_*` environment variables or `.env`."""

from __future__ import annotations

import os
import re
import secrets
from datetime import date
from functools import lru_cache
from pathlib import Path

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from pydantic_settings import SettingsError as SourceSettingsError

from lakehouse.errors import SettingsError

_UNUSABLE = re.compile(r"[\[\]]|%[0-9A-Fa-f]{2}")  # delta-rs reads the path as a URL
_SPARK_URL = re.compile(r"^(local(\[[^\]]+\])?|sc://.+|spark://.+|yarn|k8s://.+)$")


class Settings(BaseSettings):
    """Everything that differs between a laptop and a cluster."""

    model_config = SettingsConfigDict(
        env_prefix="LAKEHOUSE_", env_file=".env", env_ignore_empty=True, extra="ignore", frozen=True
    )

    root: Path = Field(Path(".lakehouse"), description="Folder of the lakehouse: landing zone, tables, Dagster state")
    spark_url: str = Field(
        "local[*]", description="Where Spark runs: local[N], sc://host:port, spark://…, yarn, k8s://…"
    )
    spark_memory: str = Field("", description="Memory of a local engine, such as 2g; empty: an eighth of the machine")
    spark_config: dict[str, str] = Field(default_factory=dict, description="Further Spark settings, as JSON")
    jars_dir: Path | None = Field(None, description="Folder of the engine's jars; empty: the user's cache folder")
    first_day: date = Field(date(2010, 12, 1), description="First daily partition")
    pii_key: SecretStr | None = Field(None, description="Key of the HMAC that tokenises personal data")
    alert_webhook: SecretStr | None = Field(None, description="Where alerts are posted; empty: they are only logged")
    alert_routes: dict[str, SecretStr] = Field(
        default_factory=dict, description="Addresses for the alerts of some owners, as JSON by owner"
    )
    alert_secret: SecretStr | None = Field(None, description="Key of the HMAC that signs posted alerts")
    alert_timeout: float = Field(5.0, gt=0, le=15, description="Seconds a webhook has to answer")
    alert_quiet_hours: float = Field(24.0, ge=0, description="Hours before what goes on failing is told again")
    port: int = Field(3000, ge=1, le=65535, description="Port of the Dagster UI")

    @field_validator("root")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        path = value.expanduser().absolute()
        if _UNUSABLE.search(str(path)):
            raise ValueError(f"{path} has brackets or an escape such as %20 in it, which table paths cannot hold")
        return path

    @field_validator("spark_url")
    @classmethod
    def _known_engine(cls, value: str) -> str:
        if not _SPARK_URL.match(value):
            raise ValueError(f"{value!r} is none of local[N], sc://host:port, spark://host:port, yarn, k8s://host:port")
        return value

    @field_validator("spark_memory")
    @classmethod
    def _memory(cls, value: str) -> str:
        if value and not re.fullmatch(r"\d+[mg]", value):
            raise ValueError(f"{value!r} is not a size such as 1500m or 2g")
        return value

    @field_validator("alert_webhook", "alert_routes")
    @classmethod
    def _web_address(cls, value: SecretStr | dict[str, SecretStr] | None) -> SecretStr | dict[str, SecretStr] | None:
        for each in value.values() if isinstance(value, dict) else [value]:
            # The value is not repeated: the path of a webhook is its password.
            if each is not None and not re.fullmatch(r"https?://[^\s/]+\S*", each.get_secret_value()):
                raise ValueError("is not an address such as https://host/path")
        return value

    @property
    def landing(self) -> Path:
        """The landing zone."""
        return self.root / "landing"

    @property
    def dagster_home(self) -> Path:
        """Dagster's state."""
        return self.root / "dagster"

    @property
    def uses_connect(self) -> bool:
        """True where Spark is reached through Spark Connect."""
        return self.spark_url.startswith("sc://")

    def pii_key_bytes(self) -> bytes:
        """The HMAC key: from the environment, else made once and kept (mode 0600) under the root.

        Raises:
            SettingsError: where the kept key is empty.
        """
        if self.pii_key is not None:
            return self.pii_key.get_secret_value().encode()
        path = self.root / "keys" / "pii.key"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
            descriptor = os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(32))
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(draft, path)  # the first of two racing processes wins; both then read the same key
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        key = path.read_text().strip().encode()
        if not key:
            raise SettingsError(f"{path} is empty. Put the key back, or remove it: new tokens then differ from old.")
        return key


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """The process's settings.

    Raises:
        SettingsError: naming every variable that does not validate.
    """
    try:
        return Settings()
    except ValidationError as error:
        problems = "; ".join(f"LAKEHOUSE_{str(e['loc'][0]).upper()}: {e['msg']}" for e in error.errors())
        raise SettingsError(f"{problems}. The settings are listed in the README.") from None
    except SourceSettingsError as error:  # a value that should be JSON and is not
        name = next((n for n in Settings.model_fields if f'"{n}"' in str(error)), "?")
        raise SettingsError(f"LAKEHOUSE_{name.upper()}: not valid JSON. The README lists the settings.") from None
