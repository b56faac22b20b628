"""Where alerts go: a file of JSON lines, always, and webhooks, where they are configured."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import os
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from pydantic import SecretStr
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential, wait_random

from lakehouse.errors import LakehouseError
from lakehouse.orchestration.alerts.message import Message
from lakehouse.settings import Settings

LOG, WEBHOOK = "log", "webhook"
LARGEST_LOG = 10_000_000  # bytes; then a new one is begun and the last one kept
ATTEMPTS = 3
PAUSE = 0.5  # seconds before the second of them; it doubles
_AGAIN = {408, 425, 429}  # answers that ask for another attempt, as those from 500 on do
_CAUSES: dict[type[BaseException], str] = {
    TimeoutError: "LAKEHOUSE_ALERT_TIMEOUT was over",
    ConnectionRefusedError: "the connection was refused",
    socket.gaierror: "the host is not known",
    ssl.SSLCertVerificationError: "its certificate is not trusted",
}


class SinkError(LakehouseError):
    """A sink did not take a message. Neither its address nor its secret is in the text.

    Attributes:
        passing: another attempt may help, so other messages for this target need not be tried now.
    """

    def __init__(self, text: str, *, passing: bool) -> None:
        super().__init__(text)
        self.passing = passing


class Sink(Protocol):
    """What takes alerts."""

    def target(self, message: Message) -> str | None:
        """Which of its receivers a message goes to, by a name that tells nothing; None: to none of them."""

    def send(self, message: Message) -> None:
        """Hand the message over; it is safe with the receiver afterwards.

        Raises:
            SinkError: it is not.
        """


class LogSink:
    """A file of JSON lines under the root."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def target(self, message: Message) -> str:  # noqa: ARG002  # the one file
        """The file."""
        return LOG

    def send(self, message: Message) -> None:
        """Append a line and flush it to disk.

        Raises:
            SinkError: the file cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists() and self.path.stat().st_size > LARGEST_LOG:
                self.path.replace(self.path.with_suffix(".jsonl.1"))
            with self.path.open("a+b") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(end - 1, 0))
                torn = end > 0 and file.read(1) != b"\n"  # a process was killed in the middle of a line
                line = json.dumps(message.as_json(), ensure_ascii=False).encode()
                file.write(b"\n" * torn + line + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise SinkError(f"{self.path.name}: {error.strerror}", passing=True) from None


class WebhookSink:
    """JSON by POST to the owner's address, else to the one for all."""

    def __init__(
        self,
        default: SecretStr | None,
        routes: Mapping[str, SecretStr],
        secret: SecretStr | None = None,
        timeout: float = 5.0,
        pause: float = PAUSE,
    ) -> None:
        """A sink.

        Args:
            default: address for owners without one of their own; None: their messages are only logged.
            routes: addresses by owner.
            secret: key of the signature header; None: no signature.
            timeout: seconds for a connection and for each answer.
            pause: seconds before the second attempt; it doubles.
        """
        self._default, self._routes, self._secret = default, routes, secret
        self._timeout, self._pause = timeout, pause
        # A redirect is a failure: it would lead the message, and the path that is its password, elsewhere.
        self._opener = urllib.request.build_opener(_NoRedirect(), _InTime(), _InTimeEncrypted())

    def target(self, message: Message) -> str | None:
        """`webhook:<owner>` for an owner's own address, `webhook` for the one for all."""
        if message.owner in self._routes:
            return f"{WEBHOOK}:{message.owner}"
        return WEBHOOK if self._default else None

    def send(self, message: Message) -> None:
        """Post the message, with a few attempts.

        Raises:
            SinkError: the receiver did not answer with 2xx.
        """
        address = self._routes.get(message.owner, self._default)
        if address is None:
            return
        body = json.dumps(message.as_json(), ensure_ascii=False).encode()
        for attempt in Retrying(
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_exponential(multiplier=self._pause) + wait_random(0, self._pause / 2),
            retry=retry_if_exception(lambda error: isinstance(error, SinkError) and error.passing),
            reraise=True,
        ):
            with attempt:
                self._post(address.get_secret_value(), message.id, body)

    def _post(self, address: str, key: str, body: bytes) -> None:
        sent_at = str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "lakehouse",
            "Idempotency-Key": key,
            "X-Lakehouse-Timestamp": sent_at,
        }
        if self._secret is not None:
            headers["X-Lakehouse-Signature"] = signature(self._secret.get_secret_value(), sent_at, body)
        try:
            request = urllib.request.Request(address, data=body, headers=headers, method="POST")  # noqa: S310  # validated
            with self._opener.open(request, timeout=self._timeout):
                return
        except urllib.error.HTTPError as error:
            error.close()
            passing = error.code >= 500 or error.code in _AGAIN  # noqa: PLR2004
            raise SinkError(f"HTTP {error.code}", passing=passing) from None
        except (OSError, http.client.HTTPException) as error:
            cause = error.reason if isinstance(error, urllib.error.URLError) else error
            raise SinkError(f"no answer ({_why(cause)})", passing=True) from None
        except ValueError as error:
            # Such as a sign that is no ASCII: whoever has this address gets nothing, and all others their alerts.
            text = f"its address cannot be used ({type(error).__name__}): correct it in LAKEHOUSE_ALERT_WEBHOOK or "
            raise SinkError(f"{text}LAKEHOUSE_ALERT_ROUTES", passing=False) from None


def _why(cause: object) -> str:
    """Why nobody answered. What such errors say can name the address: only their kind is told."""
    return next((text for kind, text in _CAUSES.items() if isinstance(cause, kind)), type(cause).__name__)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class _Punctual(http.client.HTTPConnection):
    """A connection that ends where the whole answer is not there in time; a socket only counts from byte to byte."""

    def getresponse(self) -> http.client.HTTPResponse:
        late, line = threading.Event(), self.sock

        def end() -> None:
            late.set()
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

        clock = threading.Timer(self.timeout or 0, end)
        clock.daemon = True
        clock.start()
        try:
            return super().getresponse()
        finally:
            clock.cancel()
            if late.is_set():  # what came until then may look like an answer, and like any error
                raise TimeoutError


class _PunctualEncrypted(http.client.HTTPSConnection, _Punctual):
    pass


class _InTime(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(_Punctual, req)


class _InTimeEncrypted(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(_PunctualEncrypted, req)


def signature(secret: str, sent_at: str, body: bytes) -> str:
    """`sha256=` and the HMAC-SHA-256 in hex of `<timestamp>.<body>`: what a receiver compares with the header.

    Args:
        secret: the key, as both sides know it.
        sent_at: when it was sent, in seconds since the epoch, as the header says it.
        body: the bytes that are posted.
    """
    return "sha256=" + hmac.new(secret.encode(), f"{sent_at}.".encode() + body, hashlib.sha256).hexdigest()


def log_path(settings: Settings) -> Path:
    """The file of JSON lines."""
    return settings.root / "logs" / "alerts.jsonl"


def sinks_of(settings: Settings, *, pause: float = PAUSE) -> dict[str, Sink]:
    """The configured sinks by name; the log is always one.

    Args:
        settings: with the addresses.
        pause: seconds before a second attempt; it doubles.
    """
    sinks: dict[str, Sink] = {LOG: LogSink(log_path(settings))}
    if settings.alert_webhook or settings.alert_routes:
        sinks[WEBHOOK] = WebhookSink(
            settings.alert_webhook, settings.alert_routes, settings.alert_secret, settings.alert_timeout, pause
        )
    return sinks
