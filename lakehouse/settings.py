"""One settings object, read once from `LAKEHOUSE_*` environment variables or `.env`."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
from contextlib import suppress
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

from dotenv import dotenv_values
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as SourceSettingsError

from lakehouse import store
from lakehouse.days import EARLIEST, LATEST
from lakehouse.environment import SourceUrls, bad_value, source_setting, unreadable
from lakehouse.errors import SettingsError
from lakehouse.store.disk import private_umask

_UNUSABLE = re.compile(r"[\[\]]|%[0-9A-Fa-f]{2}")  # delta-rs reads the path as a URL
LAYERS = ("bronze", "silver", "gold")  # folders of a package of tables, and of the tables under the root
UPKEEP_CRON = "30 2 * * *"
UPKEEP_OFF = "off"
_SOURCE = re.compile(r"postgres(ql)?://[^\s/]+/[^\s/]+|kafka(\+ssl)?://\S+")
_SOURCE_EXAMPLES = "postgresql://user:password@host:5432/database or kafka+ssl://user:password@host:9093"
_SPARK_URL = re.compile(r"^(local(\[[^\]]+\])?|sc://.+|spark://.+|yarn|k8s://.+)$")


class Settings(BaseSettings):
    """Everything that differs between a laptop and a cluster."""

    model_config = SettingsConfigDict(
        env_prefix="LAKEHOUSE_", env_file=".env", env_ignore_empty=True, extra="ignore", frozen=True
    )

    root: Path = Field(Path(".lakehouse"), description="Folder of the lakehouse: landing zone, tables, Dagster state")
    tables: str = Field(
        "lakehouse", description="Package whose folders bronze, silver and gold hold the tables, such as mycompany.lake"
    )
    spark_url: str = Field(
        "local[*]", description="Where Spark runs: local[N], sc://host:port, spark://…, yarn, k8s://…"
    )
    spark_memory: str = Field("", description="Memory of a local engine, such as 2g; empty: an eighth of the machine")
    spark_config: dict[str, str] = Field(
        default_factory=dict, description="Further Spark settings, as JSON; those that decide rows are refused"
    )
    backfill_spark_url: str = Field("", description="Where Spark runs for backfills; empty: where live runs' does")
    backfill_spark_memory: str = Field("", description="Memory of a local engine of a backfill; empty: a live run's")
    backfill_spark_config: dict[str, str] = Field(
        default_factory=dict, description="Spark settings of backfills, beside those of live runs, as JSON"
    )
    backfill_days: int = Field(
        0, ge=0, description="Most days in one run of a backfill that Dagster's daemon runs; 0: the whole range"
    )
    engine_minutes: float = Field(
        15.0, ge=0, description="Minutes after its last use that a warm local engine ends; 0: an engine in each process"
    )
    engine_dir: Path | None = Field(
        None, description="Folder of warm engines, which lakehouses may share; empty: engine, under the root"
    )
    spark_ui: bool = Field(True, description="Whether a local engine shows Spark's own pages, to its owner alone")
    jars_dir: Path | None = Field(None, description="Folder of the engine's jars; empty: the user's cache folder")
    first_day: date = Field(date(2010, 12, 1), ge=EARLIEST, description="First daily partition")
    last_day: date | None = Field(
        None, le=LATEST, description="Last daily partition, where data has ended; empty: yesterday, or an open today"
    )
    pii_key: SecretStr | None = Field(
        None,
        description="Key of the HMAC that tokenises personal data; empty: made once, kept under the root (mode 0600)",
    )
    source_urls: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="Databases and brokers that tables are taken from, as JSON by source; or a variable for each, "
        "`LAKEHOUSE_<SOURCE>_URL=postgresql://user:password@host/database`, `kafka[+ssl]://[user:password@]host:port`",
    )
    alert_webhook: SecretStr | None = Field(None, description="Where alerts are posted; empty: they are only logged")
    alert_routes: dict[str, SecretStr] = Field(
        default_factory=dict, description="Addresses for the alerts of some owners, as JSON by owner"
    )
    alert_secret: SecretStr | None = Field(None, description="Key of the HMAC that signs posted alerts")
    alert_timeout: float = Field(5.0, gt=0, le=15, description="Seconds a webhook has to answer, in three attempts")
    alert_quiet_hours: float = Field(24.0, ge=0, description="Hours after which a failure that lasts is told again")
    pii_old_keys: tuple[SecretStr, ...] = Field(
        (), description="Keys before LAKEHOUSE_PII_KEY, as a JSON list, for as long as rows carry their tokens"
    )
    auto_days: int = Field(31, ge=0, description="Most days built at once for new files; 0: nothing runs by itself")
    undo_days: int = Field(
        7,
        ge=1,
        le=90,
        description="Days for which any version of a table can be read and restored; vacuum keeps what they need",
    )
    upkeep_cron: str = Field(
        UPKEEP_CRON, description="When tables are tidied, as a cron expression in UTC; off: only by command"
    )
    upkeep_minutes: float = Field(60.0, gt=0, description="Most minutes that tidying takes in one night")
    upkeep_gb: float = Field(50.0, gt=0, description="Most GB of files that are merged in one night")
    report_url: str = Field(
        "", description="Where the report is served, for links from assets; lakehouse dev serves it beside the UI"
    )
    redis_url: SecretStr | None = Field(None, description="Redis that serves features; empty: that of `redis start`")
    port: int = Field(3000, ge=1, le=65535, description="Port of the Dagster UI, on 127.0.0.1")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Where values come from, the first wins; addresses of single sources win over those in one JSON object.

        Args:
            settings_cls: this class.
            init_settings: what a caller gives.
            env_settings: variables of the environment.
            dotenv_settings: lines of `.env`, and of the lakehouse's own file.
            file_secret_settings: files of a folder of secrets; none is set.
        """
        texts = [each for each in (env_settings, dotenv_settings) if isinstance(each, EnvSettingsSource)]
        single = SourceUrls(settings_cls, *texts)
        return init_settings, single, env_settings, dotenv_settings, file_secret_settings

    @field_validator("engine_dir")
    @classmethod
    def _found_from_everywhere(cls, value: Path | None) -> Path | None:
        return None if value is None else value.expanduser().absolute()

    @field_validator("root")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        path = value.expanduser().absolute()
        if _UNUSABLE.search(str(path)):
            raise ValueError(f"{path} has brackets or an escape such as %20 in it, which table paths cannot hold")
        return path

    @field_validator("spark_url", "backfill_spark_url")
    @classmethod
    def _known_engine(cls, value: str) -> str:
        if value and not _SPARK_URL.match(value):
            raise ValueError(f"{value!r} is none of local[N], sc://host:port, spark://host:port, yarn, k8s://host:port")
        return value

    @field_validator("spark_memory", "backfill_spark_memory")
    @classmethod
    def _memory(cls, value: str) -> str:
        if value and not re.fullmatch(r"\d+[mg]", value):
            raise ValueError(f"{value!r} is not a size such as 1500m or 2g")
        return value

    @field_validator("upkeep_cron")
    @classmethod
    def _cron(cls, value: str) -> str:
        if value != UPKEEP_OFF and not re.fullmatch(r"[\d*/,\-]+( [\d*/,\-]+){4}", value):
            raise ValueError(f"{value!r} is neither off nor five fields such as {UPKEEP_CRON!r}")
        return value

    @field_validator("alert_webhook", "alert_routes", "report_url")
    @classmethod
    def _web_address(cls, value: Any) -> Any:
        for each in value.values() if isinstance(value, dict) else [value]:
            text = each.get_secret_value() if isinstance(each, SecretStr) else each
            # The value is not repeated: a path may be a password. A user before the host would reach name servers.
            if text and not re.fullmatch(r"https?://[^\s/@?#]+([/?#]\S*)?", text):
                raise ValueError("is not an address such as https://host/path, without a user")
        return value

    def for_backfill(self) -> Settings:
        """The settings as runs of backfills use them: with their own engine as far as one is set."""
        return self.model_copy(
            update={
                "spark_url": self.backfill_spark_url or self.spark_url,
                "spark_memory": self.backfill_spark_memory or self.spark_memory,
                "spark_config": {**self.spark_config, **self.backfill_spark_config},
            }
        )

    def source_url(self, source: str) -> SecretStr | None:
        """Address of what tables are taken from, as `Extract` or `Topic` names it; None where none is set.

        Raises:
            SettingsError: it is no address; the value is not repeated, for it holds a password.
        """
        url = self.source_urls.get(source)
        if url is not None and not _SOURCE.fullmatch(url.get_secret_value()):
            raise SettingsError(
                f"{source_setting(source)}: is not an address such as {_SOURCE_EXAMPLES}. "
                "`.env.example` lists the settings."
            )
        return url

    @property
    def landing(self) -> Path:
        """The landing zone."""
        return self.root / "landing"

    @property
    def dagster_home(self) -> Path:
        """Dagster's state."""
        return self.root / "dagster"

    @property
    def own_file(self) -> Path:
        """Settings of this lakehouse alone, in the form of `.env`; variables and `.env` win over them."""
        return self.root / "lake.env"

    def keep(self, **values: object) -> None:
        """Write settings of this lakehouse alone, in one step, to a file as open as it is already, or else as the root.

        Args:
            **values: by name of the setting, in place of what is there; None takes one away.
        """
        found = {**dotenv_values(self.own_file), **{f"LAKEHOUSE_{n.upper()}": value for n, value in values.items()}}
        self.root.mkdir(parents=True, exist_ok=True)
        told = ["# Settings of this lakehouse; variables and .env win over them."]
        told += [f"{name}={value}" for name, value in found.items() if value is not None]
        mode = self.own_file.stat().st_mode if self.own_file.exists() else 0o666 & ~private_umask(self.root)
        _draft(self.own_file, "\n".join(told) + "\n", stat.S_IMODE(mode)).replace(self.own_file)

    @property
    def is_local(self) -> bool:
        """True where Spark is on this machine, in one process: this lakehouse's warm engine, or an own one."""
        return self.spark_url.startswith("local")

    @property
    def uses_connect(self) -> bool:
        """True where Spark is reached through Spark Connect."""
        return self.spark_url.startswith("sc://")

    @property
    def engine_name(self) -> str:
        """Where Spark is, for people: the address without what follows it, which may be a token."""
        return self.spark_url.partition(";")[0].rstrip("/")

    @property
    def pii_key_file(self) -> Path:
        """Where the present key is kept, unless it comes from the environment."""
        return self.root / "keys" / "pii.key"

    def pii_key_bytes(self) -> bytes:
        """The HMAC key: from the environment, else made once and kept (mode 0600) under the root.

        Raises:
            SettingsError: where the kept key is empty.
        """
        if self.pii_key is not None:
            return self.pii_key.get_secret_value().encode()
        return self.kept_key(self.pii_key_file)

    def pii_old_keys_bytes(self) -> dict[str, bytes]:
        """Earlier keys by their id: those of the environment and those that `lakehouse keys rotate` put aside."""
        found = [each.get_secret_value().encode() for each in self.pii_old_keys]
        found += [path.read_text().strip().encode() for path in sorted(self.pii_key_file.parent.glob("pii-*.key"))]
        present = self.pii_key_bytes() if self.has_pii_key else b""
        return {key_id(key): key for key in found if key and key != present}

    @property
    def has_pii_key(self) -> bool:
        """False in a lakehouse that has tokenised nothing yet: who only looks makes no key."""
        return self.pii_key is not None or self.pii_key_file.exists()

    def rotate_pii_key(self) -> str:
        """Put the present key aside and make a new one; returns the new one's id.

        Killed at any point, either the old or the new key is the present one, and neither is lost.

        Raises:
            SettingsError: where the key comes from the environment, which only its owner can change.
        """
        if self.pii_key is not None:
            raise SettingsError(
                "The key comes from LAKEHOUSE_PII_KEY, so it is changed there: add the present key to "
                'LAKEHOUSE_PII_OLD_KEYS (a JSON list such as ["…"]) and set LAKEHOUSE_PII_KEY to the new one.'
            )
        path = self.pii_key_file
        aside = path.with_name(f"pii-{key_id(self.pii_key_bytes())}.key")
        if not aside.exists():  # else a killed rotation came this far
            os.link(path, aside)  # before its name goes to another key: at no moment is the old key without one
        _draft(path, secrets.token_hex(32)).replace(path)
        store.fsync([path.parent])
        return key_id(self.pii_key_bytes())

    def kept_key(self, path: Path) -> bytes:
        """A secret of the lakehouse's own: made once and kept (mode 0600).

        Raises:
            SettingsError: where the file is empty.
        """
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft = _draft(path, secrets.token_hex(32))
            try:
                with suppress(FileExistsError):  # the first of two racing processes wins; both then read the same key
                    os.link(draft, path)
            finally:
                draft.unlink()
        key = path.read_text().strip().encode()
        if not key:
            raise SettingsError(f"{path} is empty. Put the key back, or remove it: new tokens then differ from old.")
        return key


def _draft(path: Path, text: str, mode: int = 0o600) -> Path:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}{store.DRAFT}")
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_EXCL, mode), "w") as file:
        os.fchmod(file.fileno(), mode)  # whatever the umask
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return draft


def key_id(key: bytes) -> str:
    """Eight hex digits that name a key and say nothing about it; they stand in every token made with it."""
    return hmac.new(key, b"lakehouse key id", hashlib.sha256).hexdigest()[:8]


def token_of(text: str, key: bytes) -> str:
    """The token of a text as tables hold it: `<key id>:<HMAC-SHA-256, 64 hex digits>`."""
    return f"{key_id(key)}:{hmac.new(key, text.encode(), hashlib.sha256).hexdigest()}"


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """The process's settings.

    Raises:
        SettingsError: naming every variable that does not validate, or the file that cannot be read.
    """
    try:
        found = Settings()  # where the lakehouse is must be known before its own settings can be read
        return Settings(_env_file=(found.own_file, ".env")) if found.own_file.exists() else found
    except PermissionError as error:
        raise SettingsError(unreadable(error)) from None
    except ValidationError as error:
        problems = "; ".join(bad_value(each) for each in error.errors())
        raise SettingsError(f"{problems}. `.env.example` lists the settings.") from None
    except SourceSettingsError as error:  # a value that should be JSON and is not
        name = next((n for n in Settings.model_fields if f'"{n}"' in str(error)), "?")
        raise SettingsError(f"LAKEHOUSE_{name.upper()}: not valid JSON. `.env.example` lists the settings.") from None
