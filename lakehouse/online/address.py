"""Where the online store is, and connections to it; its password is never shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from lakehouse.errors import OnlineDownError, OnlineError, OnlineRefusedError, SettingsError
from lakehouse.online.server import server_of
from lakehouse.servers.certificates import certificates
from lakehouse.settings import Settings

if TYPE_CHECKING:
    from redis import Redis
    from redis.asyncio import Redis as AsyncRedis

SETTING = "LAKEHOUSE_REDIS_URL"
SECONDS = 5.0  # that Redis has for an answer
_CA = "?ca="
_URL = re.compile(r"(rediss?)://([^\s/@]*@)?[^\s/@:?]+(:\d+)?(/\d*)?(\?ca=[^\s&]+)?|unix://\S+")
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def redis_url(settings: Settings) -> str:
    """Address of the online store: that of the setting, or of the Redis that this lakehouse started.

    Raises:
        SettingsError: the setting is no address, or the file with certificates that it names cannot be read; its value
            is not repeated, for it holds a password.
        OnlineDownError: neither is there.
    """
    if settings.redis_url is not None:
        url = settings.redis_url.get_secret_value()
        if not _URL.fullmatch(url):
            raise SettingsError(f"{SETTING}: is not an address such as redis://user:password@host:6379/0.")
        return _with_certificates(url)
    if (found := server_of(settings)) is not None:
        return found.url
    raise OnlineDownError(f"No Redis is on. Start one: lakehouse redis start; or set {SETTING}.")


def _with_certificates(url: str) -> str:
    """An address with the certificates in place of the name of their file: the workers that write need no file."""
    address, named, file = url.partition(_CA)
    if not named or address.startswith("unix:"):
        return url
    if not address.startswith("rediss:"):
        raise SettingsError(f"{SETTING}: ca is for encrypted connections; write rediss://… .")
    # Comments in such a file may hold any sign; what reads the certificates takes none but ASCII.
    found = _CERTIFICATE.findall(certificates(unquote(file), SETTING))
    return f"{address}?ssl_ca_data={quote(chr(10).join(found), safe='')}"


def has_redis(settings: Settings) -> bool:
    """Whether the setting has an address, or a Redis that this lakehouse started is on."""
    return settings.redis_url is not None or server_of(settings) is not None


def shown(url: str) -> str:
    """The address for people: without login and password."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"unix://{parts.path}"
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "") + parts.path


def connect(url: str, seconds: float = SECONDS) -> Redis:
    """A connection that is made when it is first used; it does not try again by itself."""
    from redis import Redis

    made: Redis = Redis.from_url(url, **_options(seconds))
    return made


def connect_async(url: str, seconds: float = SECONDS) -> AsyncRedis:
    """As `connect`, for asyncio."""
    from redis.asyncio import Redis as AsyncRedis

    made: AsyncRedis = AsyncRedis.from_url(url, **_options(seconds))
    return made


def _options(seconds: float) -> dict[str, Any]:
    return {"socket_timeout": seconds, "socket_connect_timeout": seconds}


def failed(url: str, error: Exception) -> OnlineError:
    """What is said where Redis does not do what it is asked; not in its words, which may quote what it was sent.

    Args:
        url: its address.
        error: of its client.
    """
    from redis import exceptions

    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        why = "its certificate is not signed by anybody known here, is not for this host, or is out of date. Name the "
        why += f"file of who signs for it in {SETTING}: rediss://…?ca=/path/ca.pem"
    elif "MISCONF" in str(error):
        why = "it cannot write its files. Make room on its disk (its log: `lakehouse redis status`)"
    elif isinstance(error, exceptions.OutOfMemoryError):
        why = "its memory (`maxmemory`) is full. Give it more"
    elif isinstance(error, exceptions.ReadOnlyError):
        why = f"it is a copy, which only reads. Set {SETTING} to the server that it copies"
    elif isinstance(error, exceptions.AuthenticationError | exceptions.NoPermissionError):
        why = f"the login in {SETTING} is not taken, or may not do this. Correct it, or its rights"
    elif isinstance(error, exceptions.ResponseError):
        why = f"see its log ({type(error).__name__})"
    else:
        return OnlineDownError(
            f"Redis does not answer at {shown(url)}. See `lakehouse redis status`; once it is on, the same command "
            "goes on."
        )
    return OnlineRefusedError(f"Redis at {shown(url)} refuses: {why}; then the same command goes on.")


def told_by_workers(text: str) -> OnlineError | None:
    """What `failed` said in another process, whose error has come as text; None where the text does not have it."""
    for kind in (OnlineDownError, OnlineRefusedError):
        if said := re.search(rf"\b{kind.__name__}: (Redis .+)", text):
            return kind(said[1].strip())
    return None
